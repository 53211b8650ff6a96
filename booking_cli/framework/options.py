"""Options that several commands share, as Annotated types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from booking_cli.framework.arguments import (
    OFFERED,
    amount_text,
    counts,
    idempotency_key,
    identifier,
    one_of,
    texts_by_name,
    timestamp,
)

DEFAULT_LIMIT = 25


def option(usage: str, help: str, **settings: Any) -> Any:  # noqa: A002 - Typer's name
    """Return a Typer option.

    Args:
        usage: its names and the name of its value, as a help page shows them: `--limit, -n N`.
        settings: of `typer.Option`.
    """
    words = [word.rstrip(",") for word in usage.split()]
    names = [word for word in words if word.startswith("-")]
    if len(words) > len(names):
        settings["metavar"] = words[-1]
    return typer.Option(*names, help=help, **_completed(settings))


def argument(name: str, help: str, **settings: Any) -> Any:  # noqa: A002 - Typer's name
    """Return a Typer argument; `settings` are passed to `typer.Argument`."""
    return typer.Argument(metavar=name, help=help, **_completed(settings))


def choice(*names: str, choices: Sequence[str], help: str) -> Any:  # noqa: A002 - Typer's name
    """Return a Typer option that takes one of the choices."""
    return option(" ".join(names), help, metavar="|".join(choices), parser=one_of(*choices))


def _completed(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a parameter, with the words that its parser offers to completion."""
    words = getattr(settings.get("parser"), OFFERED, None)
    return settings | {"autocompletion": lambda: words} if words else settings


# Lists

Limit = Annotated[int, option("--limit, -n N", "Maximum number of items to list.", min=1)]
AllPages = Annotated[bool, option("--all", "List all items, on however many pages.")]
StartingAfter = Annotated[str | None, option("--starting-after CURSOR", "Continue after the next_cursor of a list.")]
Order = Annotated[str, choice("--order", choices=("asc", "desc"), help="Sort by creation time.")]


@dataclass(frozen=True, slots=True)
class Paging:
    """The options of a list that comes page by page. A command takes all of them as one argument."""

    limit: Limit = DEFAULT_LIMIT
    all_pages: AllPages = False
    order: Order = "desc"
    starting_after: StartingAfter = None

    @property
    def most(self) -> int | None:
        """Return the largest number of items; None lists all of them."""
        return None if self.all_pages else self.limit


FIRST_PAGE = Paging()

UpdatedSince = Annotated[
    str | None, option("--updated-since T", "Filter by last change: 2h (ago) or ISO 8601.", parser=timestamp)
]
ExperienceFilter = Annotated[str | None, option("--experience ID", "Filter by experience.", parser=identifier)]

# Organizations

Org = Annotated[str, option("--org SLUG", "The organization.")]
OrgFilter = Annotated[str | None, option("--org SLUG", "Filter by organization.")]
OrgOfDatabase = Annotated[str | None, option("--org SLUG", "Use the database, for this organization (operator).")]
OrgOfId = Annotated[str | None, option("--org SLUG", "The organization; needed when several have this id.")]
OrgOfBooking = Annotated[str | None, option("--org SLUG", "The organization; needed with a booking number.")]
UseApi = Annotated[bool, option("--api", "Use the API, also without an API key.", hidden=True)]

# The service

Reload = Annotated[bool, option("--reload", "Restart when the code changes; for development.")]

# Bookings

BookingRef = Annotated[str, argument("BOOKING", "The booking's id, or its number together with --org.")]
Departure = Annotated[str, option("--departure ID", "The departure; see `booking availability`.")]
CheckoutId = Annotated[str, argument("ID", "The checkout's id.", parser=identifier)]
GiftCard = Annotated[str | None, option("--gift-card CODE", "A gift card to redeem.")]
HoldId = Annotated[str | None, option("--hold HOLD", "The hold whose seats are booked; it ends.")]
Guests = Annotated[list[str], option("--guest TIER=COUNT", "Number of guests of a price tier; repeatable.")]
AddOns = Annotated[list[str] | None, option("--add-on ID=COUNT", "Number of an add-on; repeatable.")]
GuestName = Annotated[str, option("--name NAME", "The guest's full name.")]
GuestEmail = Annotated[str, option("--email EMAIL", "The guest's e-mail address.")]
GuestPhone = Annotated[str | None, option("--phone PHONE", "The guest's phone number.")]
GuestLocale = Annotated[str | None, option("--locale TAG", "The guest's language for mails and page: de, fr-CH, ...")]
ExternalReference = Annotated[
    str | None, option("--external-reference TEXT", "The name of the booking in your own system.")
]
UniqueReference = Annotated[bool, option("--unique", "Refuse it if a booking has this --external-reference already.")]
Metadata = Annotated[list[str] | None, option("--metadata NAME=TEXT", "A text of yours; repeatable.")]
ExternalReferenceFilter = Annotated[str | None, option("--external-reference TEXT", "Find by external reference.")]
StaffNote = Annotated[str | None, option("--note TEXT", "A note for the staff.")]

Amount = Annotated[str, option("--amount AMOUNT", "The amount: 500.00, or 50000 in minor units.", parser=amount_text)]

# Changes

DryRun = Annotated[bool, option("--dry-run", "Show what would be done, without doing it.")]
IdempotencyKey = Annotated[
    str | None,
    option(
        "--idempotency-key KEY",
        "Make the change once, however often the command is run with this key; default: a new key.",
        parser=idempotency_key,
    ),
]


def party(guests: list[str], add_ons: list[str] | None) -> dict[str, Any]:
    """Return the fields of a party: the counts of its guests, and of its add-ons if there are any."""
    fields = {"guests": counts(guests, "tier_id")}
    return fields | ({"add_ons": counts(add_ons, "id")} if add_ons else {})


@dataclass(frozen=True, slots=True)
class Basket:
    """The options of an order: its guests, and what they say. A command takes all of them as one argument."""

    guest: Guests
    name: GuestName
    email: GuestEmail
    phone: GuestPhone = None
    add_on: AddOns = None
    note: StaffNote = None
    locale: GuestLocale = None
    external_reference: ExternalReference = None
    unique: UniqueReference = False
    metadata: Metadata = None

    def fields(self, **texts: str | None) -> dict[str, Any]:
        """Return the fields of the order without those that are not given.

        Args:
            texts: further fields.
        """
        customer = {"name": self.name, "email": self.email} | ({"phone": self.phone} if self.phone else {})
        fields = party(self.guest, self.add_on) | {"customer": customer}
        texts |= {"note": self.note, "locale": self.locale, "external_reference": self.external_reference}
        fields |= {name: text for name, text in texts.items() if text}
        fields |= {"external_reference_unique": True} if self.unique else {}
        return fields | ({"metadata": texts_by_name(self.metadata)} if self.metadata else {})
