"""What each mail says: the templates, and what they are given.

A template is ours; what a guest typed is data to it, never a template. In HTML it is escaped, in plain text it is kept
to its line, so that nobody can write a sentence of ours.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from markupsafe import Markup

from booking_core.context import Organization
from booking_core.notifications import calendar
from booking_core.notifications.message import Letter
from booking_core.notifications.rules import GUEST_KINDS
from booking_core.notifications.summary import BookingRow, Summary, summary
from booking_core.notifications.wording import moment as wall_moment
from booking_core.notifications.wording import money, one_line, shortened, zone_name
from booking_core.outbox import OutboxKind

_FOLDER = Path(__file__).with_name("templates")
_SUBJECT_LENGTH_MAX = 150


def _plain(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=1)
def _environments() -> Mapping[str, SandboxedEnvironment]:
    """For plain text and for HTML."""
    return {
        suffix: SandboxedEnvironment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=suffix == "html",
            undefined=StrictUndefined,
            finalize=_plain,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        for suffix in ("txt", "html")
    }


_BOOKED: Mapping[OutboxKind, Callable[[Summary], str]] = {
    OutboxKind.BOOKING_CONFIRMATION_MAIL: lambda it: f"Booking confirmed: {it.title}, {it.day}",
    OutboxKind.BOOKING_CANCELLATION_MAIL: lambda it: f"Booking cancelled: {it.title}, {it.day}",
    OutboxKind.BOOKING_RESCHEDULING_MAIL: lambda it: f"New time for your booking: {it.title}, {it.day}",
    OutboxKind.STAFF_BOOKING_MAIL: lambda it: f"New booking{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_CANCELLATION_MAIL: lambda it: f"Cancelled{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_RESCHEDULING_MAIL: lambda it: f"Moved{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_REFUND_REFUSED_MAIL: lambda it: f"{it.refund_task}{_number(it)}: {it.title}, {it.day}",
    OutboxKind.STAFF_REFUND_REVIEW_MAIL: lambda it: f"{it.refund_task}{_number(it)}: {it.title}, {it.day}",
}
_OTHER: Mapping[OutboxKind, Callable[[Mapping[str, Any]], str]] = {
    OutboxKind.STAFF_KEY_EXPIRING_MAIL: lambda it: f"The API key {it['name']} is about to expire",
    OutboxKind.STAFF_WEBHOOK_FAILING_MAIL: lambda it: "A webhook endpoint is failing",
    OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL: lambda it: "A webhook endpoint was switched off",
}


def _number(booking: Summary) -> str:
    return "" if booking.number is None else f" {booking.number}"


def _moment(organization: Organization, at: int) -> str:
    return f"{wall_moment(organization.zone, at)} ({zone_name(organization.zone, at)})"


def _facts(organization: Organization, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of an effect in words: an instant is a time here, an amount is money."""
    facts = dict(payload)
    for name in ("previous_starts_at", "expires_at", "since"):
        if name in facts:
            facts[name] = _moment(organization, facts[name])
    if "amount_minor" in facts:
        facts["amount"] = money(facts["amount_minor"], facts["currency"])
    return facts


def write(
    kind: OutboxKind,
    organization: Organization,
    booking: BookingRow | None,
    payload: str,
    *,
    organizer: str,
    manage_url: str | None,
    at: int,
) -> Letter:
    """The letter of an effect.

    Args:
        organizer: an address that the calendar entry names.
        manage_url: the guest's link, for the guest's mails.
    """
    facts = _facts(organization, orjson.loads(payload))
    about = None if booking is None else summary(booking, organization)
    subject = _OTHER[kind](facts) if about is None else _BOOKED[kind](about)
    given = facts | {
        "subject": subject,
        "organization": organization.name,
        "booking": about,
        "manage_url": manage_url if kind in GUEST_KINDS else None,
    }
    rendered = {
        suffix: environment.get_template(f"{kind}.{suffix}").render(given)
        for suffix, environment in _environments().items()
    }
    entry = None
    if booking is not None and kind in GUEST_KINDS:
        entry = calendar.entry(booking, organization, organizer=organizer, at=at)
    return Letter(shortened(one_line(subject), _SUBJECT_LENGTH_MAX), rendered["txt"], rendered["html"], entry)
