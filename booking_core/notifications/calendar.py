"""The calendar entry of a booking (RFC 5545). No storage, no clock.

Times are in UTC: this needs no description of a time zone, which programs read in different ways, and a calendar shows
them in the time zone of its user. The guest's secret link is left out, because calendars are shared.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

import orjson

from booking_core.base.clock import SECOND, to_datetime
from booking_core.base.context import Organization
from booking_core.base.languages import ENGLISH, Language
from booking_core.models.bookings import BookingStatus
from booking_core.notifications.formatting import lines, one_line
from booking_core.notifications.summary import MailBooking

if TYPE_CHECKING:
    from icalendar import Alarm

_STATUSES = {
    BookingStatus.PENDING: "TENTATIVE",
    BookingStatus.CONFIRMED: "CONFIRMED",
    BookingStatus.CANCELLED: "CANCELLED",
}


def entry(
    row: MailBooking, organization: Organization, *, organizer: str, at: int, wording: Language = ENGLISH
) -> bytes:
    """Return the booking as one event, which replaces every earlier entry of the same booking.

    A cancelled booking has no alarm and blocks no time. The address of the event is the organization's website.

    Args:
        organizer: an e-mail address, which the standard requires.
        at: the instant of the entry.
        wording: the language of its texts.
    """
    from icalendar import Calendar, Event  # imported late: it takes a tenth of a second

    calendar = Calendar(
        prodid="-//Booking Service//Bookings//EN", version="2.0", calscale="GREGORIAN", method="PUBLISH"
    )
    event = Event(uid=f"{row.id}@{organizer.rpartition('@')[2]}")
    event.add("dtstamp", to_datetime(at))
    event.add("sequence", sequence(row))
    event.add("status", _STATUSES[BookingStatus(row.status)])
    event.add("dtstart", to_datetime(row.starts_at))
    if row.ends_at > row.starts_at:
        event.add("dtend", to_datetime(row.ends_at))
    event.add("summary", one_line(row.title))
    if row.address:
        event.add("location", one_line(row.address))
    if row.latitude is not None and row.longitude is not None:
        event.add("geo", (row.latitude, row.longitude))
    event.add("description", _description(row, organization, wording))
    if organization.website:
        event.add("url", organization.website)
    event.add("organizer", f"mailto:{organizer}", parameters={"CN": one_line(organization.name).replace('"', "'")})
    is_cancelled = row.status == BookingStatus.CANCELLED
    event.add("transp", "TRANSPARENT" if is_cancelled else "OPAQUE")
    if not is_cancelled:
        event.add_component(_reminder(row))
    calendar.add_component(event)
    rendered: bytes = calendar.to_ical(sorted=False)
    return rendered


def sequence(row: MailBooking) -> int:
    """Return a number that grows with each change of the booking.

    It is twice the seconds from the booking's creation to the change, plus one; a cancellation adds one more: it comes
    after other changes in the same second.
    """
    if row.updated_at <= row.created_at and row.status != BookingStatus.CANCELLED:
        return 0
    return 2 * ((row.updated_at - row.created_at) // SECOND) + 1 + (row.status == BookingStatus.CANCELLED)


def _reminder(row: MailBooking) -> "Alarm":
    """Return an alarm one day before the start."""
    from icalendar import Alarm

    alarm = Alarm(action="DISPLAY")
    alarm.add("description", one_line(row.title))
    alarm.add("trigger", timedelta(days=-1))
    return alarm


def _description(row: MailBooking, organization: Organization, wording: Language) -> str:
    """Return the booking's number, where to meet and what to bring; each on a separate line of the entry."""
    if row.booking_number is None:
        first = wording.gettext("Booking with %(operator)s", operator=organization.name)
    else:
        names = {"number": row.booking_number, "operator": organization.name}
        first = wording.gettext("Booking %(number)s with %(operator)s", **names)
    items = ", ".join(orjson.loads(row.what_to_bring or "[]"))
    bring = wording.gettext("Please bring: %(items)s", items=items) if items else None
    contact = " · ".join(filter(None, (organization.contact_phone, organization.contact_email)))
    parts = "\n".join(filter(None, (first, row.meeting_point, bring, contact)))
    return "\n".join(map(one_line, lines(parts)))
