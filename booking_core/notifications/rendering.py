"""Renders the subject, text, HTML and calendar entry of a mail from templates.

Text from a guest is data for a template, never a template. It is escaped in HTML and kept on one line in plain text, so
that it cannot pass for text of this service.
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
from booking_core.notifications.formatting import moment as wall_moment
from booking_core.notifications.formatting import money, one_line, shortened, zone_name
from booking_core.notifications.message import MailContent
from booking_core.notifications.rules import GUEST_KINDS
from booking_core.notifications.summary import BookingDetails, Summary, summary
from booking_core.outbox import OutboxKind

_FOLDER = Path(__file__).with_name("templates")
_SUBJECT_LENGTH_MAX = 150


def _plain(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@lru_cache(maxsize=1)
def _environments() -> Mapping[str, SandboxedEnvironment]:
    """Return the template environments for plain text and for HTML, by suffix."""
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
    """Return the payload of an outbox row with formatted instants and amounts."""
    facts = dict(payload)
    for name in ("previous_starts_at", "expires_at", "since"):
        if name in facts:
            facts[name] = _moment(organization, facts[name])
    if "amount_minor" in facts:
        facts["amount"] = money(facts["amount_minor"], facts["currency"])
    return facts


def render(
    kind: OutboxKind,
    organization: Organization,
    booking: BookingDetails | None,
    payload: str,
    *,
    organizer: str,
    manage_url: str | None,
    at: int,
) -> MailContent:
    """Render the mail of an outbox row.

    Args:
        organizer: the address of the organizer in the calendar entry.
        manage_url: the guest's link, for mails to the guest.
    """
    facts = _facts(organization, orjson.loads(payload))
    about = None if booking is None else summary(booking, organization)
    subject = _OTHER[kind](facts) if about is None else _BOOKED[kind](about)
    context = facts | {
        "subject": subject,
        "organization": organization.name,
        "booking": about,
        "manage_url": manage_url if kind in GUEST_KINDS else None,
    }
    rendered = {
        suffix: environment.get_template(f"{kind}.{suffix}").render(context)
        for suffix, environment in _environments().items()
    }
    entry = None
    if booking is not None and kind in GUEST_KINDS:
        entry = calendar.entry(booking, organization, organizer=organizer, at=at)
    return MailContent(shortened(one_line(subject), _SUBJECT_LENGTH_MAX), rendered["txt"], rendered["html"], entry)
