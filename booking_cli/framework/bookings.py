"""Describe bookings in questions and notes, and read the options of commands that book or check out."""

from collections.abc import Mapping
from typing import Annotated, Any

from booking_cli.framework.arguments import counts, texts_by_name
from booking_cli.framework.context import Cli
from booking_cli.framework.options import option

Departure = Annotated[str, option("--departure ID", "The departure; see `booking availability`.")]
GiftCard = Annotated[str | None, option("--gift-card CODE", "A gift card to redeem.")]
HoldId = Annotated[str | None, option("--hold HOLD", "The hold whose seats are booked; it ends.")]


_TEXTS = {
    **{name: name for name in ("note", "hold_id", "locale", "external_reference")},
    "gift_card": "gift_card_code",
}
"""Fields that are texts, by the name of their option."""


def describe(booking: Mapping[str, Any]) -> str:
    """Return a booking's number, guest, experience and start."""
    title = booking["experience"]["title"]
    start = start_text(booking["departure"])
    return f"booking {booking['booking_number']} of {booking['customer']['name']} ({title}, {start})"


def start_text(departure: Mapping[str, Any]) -> str:
    """Return the start of a departure to the minute, in the organization's time zone."""
    return str(departure["starts_at"])[:16].replace("T", " ")


def write_created(cli: Cli, booking: Mapping[str, Any], *, is_replay: bool) -> None:
    """Write a new booking, or the one that an earlier run with the same key created."""
    cli.render.one(booking)
    if is_replay:
        cli.render.note("This booking was created before with the same key; nothing was booked now.")


def basket(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a checkout without those that are not given.

    Args:
        given: `ctx.params` of a command with these options: guest, name, email, phone, add_on, unique and metadata, and
            those that are texts.
    """
    customer = {name: given[name] for name in ("name", "email")} | ({"phone": given["phone"]} if given["phone"] else {})
    fields: dict[str, Any] = {"guests": counts(given["guest"], "tier_id"), "customer": customer}
    fields |= {"add_ons": counts(given["add_on"], "id")} if given["add_on"] else {}
    fields |= {field: given[option] for option, field in _TEXTS.items() if given.get(option)}
    fields |= {"external_reference_unique": True} if given["unique"] else {}
    return fields | ({"metadata": texts_by_name(given["metadata"])} if given["metadata"] else {})
