"""The entry for the guest's calendar (RFC 5545). No storage, no clock.

Times are written in UTC. A departure is an instant: in UTC it needs no description of a time zone, which programs read
in different ways, and a calendar shows it on the clock of whoever looks. The guest's secret link is not in it:
calendars are shared.
"""

import re

from booking_core.clock import SECOND, to_datetime
from booking_core.context import Organization
from booking_core.models.bookings import BookingStatus
from booking_core.notifications.summary import BookingRow
from booking_core.notifications.wording import one_line

_STATUSES = {
    BookingStatus.PENDING: "TENTATIVE",
    BookingStatus.CONFIRMED: "CONFIRMED",
    BookingStatus.CANCELLED: "CANCELLED",
}
_LINE_OCTETS = 75
_SPECIAL = re.compile(r"([\\;,])")


def entry(row: BookingRow, organization: Organization, *, organizer: str, at: int) -> bytes:
    """The booking as one event, which takes the place of every earlier entry of the same booking.

    Args:
        organizer: an e-mail address, which the standard wants in what is published.
        at: when it is written.
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
        f"DESCRIPTION:{_text(_description(row, organization))}",
        f'ORGANIZER;CN="{_parameter(organization.name)}":mailto:{organizer}',
        "TRANSP:OPAQUE",
        "END:VEVENT",
        "END:VCALENDAR",
    ]
    return b"".join(map(_folded, lines))


def sequence(row: BookingRow) -> int:
    """Grows whenever the booking changes: twice the seconds of its life until then, and cancelling comes after whatever
    else happened in the same second."""
    if row.updated_at <= row.created_at and row.status != BookingStatus.CANCELLED:
        return 0
    return 2 * ((row.updated_at - row.created_at) // SECOND) + 1 + (row.status == BookingStatus.CANCELLED)


def _description(row: BookingRow, organization: Organization) -> str:
    number = "" if row.booking_number is None else f" {row.booking_number}"
    return f"Booking{number} with {organization.name}"


def _utc(at: int) -> str:
    return f"{to_datetime(at):%Y%m%dT%H%M%SZ}"


def _text(value: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(value))


def _parameter(value: str) -> str:
    """Within quotes anything may stand but a quote."""
    return one_line(value).replace('"', "'")


def _folded(line: str) -> bytes:
    """The line, continued on the next after at most 75 octets and never within a character."""
    folded, room = bytearray(), _LINE_OCTETS
    for character in line:
        octets = character.encode()
        if len(octets) > room:
            folded += b"\r\n "
            room = _LINE_OCTETS - 1
        folded += octets
        room -= len(octets)
    return bytes(folded) + b"\r\n"
