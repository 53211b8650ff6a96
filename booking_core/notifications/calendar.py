"""The calendar entry of a booking (RFC 5545). No storage, no clock.

Times are in UTC: this needs no description of a time zone, which programs read in different ways, and a calendar shows
them in the time zone of its user. The guest's secret link is left out, because calendars are shared.
"""

import re

import orjson

from booking_core.clock import SECOND, to_datetime
from booking_core.context import Organization
from booking_core.languages import ENGLISH, Language
from booking_core.models.bookings import BookingStatus
from booking_core.notifications.formatting import lines, one_line
from booking_core.notifications.summary import BookingDetails

_STATUSES = {
    BookingStatus.PENDING: "TENTATIVE",
    BookingStatus.CONFIRMED: "CONFIRMED",
    BookingStatus.CANCELLED: "CANCELLED",
}
_LINE_OCTETS = 75
_SPECIAL = re.compile(r"([\\;,])")


def entry(
    row: BookingDetails, organization: Organization, *, organizer: str, at: int, wording: Language = ENGLISH
) -> bytes:
    """Return the booking as one event, which replaces every earlier entry of the same booking.

    A cancelled booking has no alarm and blocks no time. The address of the event is the organization's website.

    Args:
        organizer: an e-mail address, which the standard requires.
        at: the instant at which the entry is written.
        wording: the language of its texts.
    """
    domain = organizer.rpartition("@")[2]
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Booking Service//Bookings//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        "BEGIN:VEVENT",
        f"UID:{row.id}@{domain}",
        f"DTSTAMP:{_utc(at)}",
        f"SEQUENCE:{sequence(row)}",
        f"STATUS:{_STATUSES[BookingStatus(row.status)]}",
        f"DTSTART:{_utc(row.starts_at)}",
        *([f"DTEND:{_utc(row.ends_at)}"] if row.ends_at > row.starts_at else []),
        f"SUMMARY:{_text(row.title)}",
        *([f"LOCATION:{_text(row.address)}"] if row.address else []),
        *([f"GEO:{row.latitude:.6f};{row.longitude:.6f}"] if _has_place(row) else []),
        f"DESCRIPTION:{_paragraphs(_description(row, organization, wording))}",
        *([f"URL:{organization.website}"] if organization.website else []),
        f'ORGANIZER;CN="{_parameter(organization.name)}":mailto:{organizer}',
        "TRANSP:TRANSPARENT" if row.status == BookingStatus.CANCELLED else "TRANSP:OPAQUE",
        *([] if row.status == BookingStatus.CANCELLED else _alarm(row)),
        "END:VEVENT",
        "END:VCALENDAR",
    ]
    return b"".join(map(_folded, lines))


def sequence(row: BookingDetails) -> int:
    """Return a number that grows with each change of the booking.

    It is twice the seconds from the booking's creation to the change, plus one; a cancellation adds one more, so that
    it comes after other changes in the same second.
    """
    if row.updated_at <= row.created_at and row.status != BookingStatus.CANCELLED:
        return 0
    return 2 * ((row.updated_at - row.created_at) // SECOND) + 1 + (row.status == BookingStatus.CANCELLED)


def _has_place(row: BookingDetails) -> bool:
    return row.latitude is not None and row.longitude is not None


def _alarm(row: BookingDetails) -> list[str]:
    """Return a reminder one day before the start."""
    return ["BEGIN:VALARM", "ACTION:DISPLAY", f"DESCRIPTION:{_text(row.title)}", "TRIGGER:-P1D", "END:VALARM"]


def _description(row: BookingDetails, organization: Organization, wording: Language) -> str:
    """Return the booking's number, where to meet and what to bring; each on a line of its own in the entry."""
    if row.booking_number is None:
        first = wording.gettext("Booking with %(operator)s", operator=organization.name)
    else:
        names = {"number": row.booking_number, "operator": organization.name}
        first = wording.gettext("Booking %(number)s with %(operator)s", **names)
    items = ", ".join(orjson.loads(row.what_to_bring or "[]"))
    bring = wording.gettext("Please bring: %(items)s", items=items) if items else None
    contact = " · ".join(filter(None, (organization.contact_phone, organization.contact_email)))
    return "\n".join(filter(None, (first, row.meeting_point, bring, contact)))


def _utc(at: int) -> str:
    return f"{to_datetime(at):%Y%m%dT%H%M%SZ}"


def _text(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(value))


def _paragraphs(value: str) -> str:
    """Return a text whose line breaks are kept."""
    return "\\n".join(map(_text, lines(value)))


def _parameter(value: str) -> str:
    """Return the value for a quoted parameter, which may hold anything but a double quote."""
    return one_line(value).replace('"', "'")


def _folded(line: str) -> bytes:
    """Fold a line after at most 75 octets, never within a character."""
    folded, octets_left = bytearray(), _LINE_OCTETS
    for character in line:
        octets = character.encode()
        if len(octets) > octets_left:
            folded += b"\r\n "
            octets_left = _LINE_OCTETS - 1
        folded += octets
        octets_left -= len(octets)
    return bytes(folded) + b"\r\n"
