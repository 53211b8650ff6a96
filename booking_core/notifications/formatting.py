"""Formats money, times and user text for mails and the guest's page. No storage, no clock.

Times are in the organization's zone, whose name is always shown: a guest may read them anywhere.
"""

import re
from datetime import datetime

from booking_core.clock import Zone
from booking_core.models.money import formatted

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January February March April May June July August September October November December".split()  # in no locale
)
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Marks that change the text direction. Right-to-left scripts do not need them, and a name with one could make the rest
of a line read as something else."""


def one_line(text: str) -> str:
    """Return the text on one line, safe for a header.

    It has no line breaks, no control characters, no lone surrogates, and single blanks between words.
    """
    return " ".join(_UNPRINTABLE.sub(" ", _REORDERING.sub("", text)).split())


def lines(text: str) -> list[str]:
    """Return the lines of a text, each without characters that break a line."""
    return [one_line(line) for line in text.strip().splitlines()]


def shortened(text: str, length: int) -> str:
    """Cut a text that is longer than `length`, and end it with an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


money = formatted


def day(zone: Zone, at: int) -> str:
    """Return a date such as `24 December 2026`."""
    return _day(zone.wall(at))


def _day(wall: datetime) -> str:
    return f"{wall.day} {_MONTHS[wall.month - 1]} {wall.year}"


def _moment(wall: datetime) -> str:
    return f"{_DAYS[wall.weekday()]} {_day(wall)}, {wall:%H:%M}"


def moment(zone: Zone, at: int) -> str:
    """Return a time such as `Thursday 24 December 2026, 10:00`."""
    return _moment(zone.wall(at))


def span(zone: Zone, starts_at: int, ends_at: int) -> str:
    """Return a span such as `Thursday 24 December 2026, 10:00–12:30`; with the date of the end on another day."""
    starts, ends = zone.wall(starts_at), zone.wall(ends_at)
    if ends_at <= starts_at:
        return _moment(starts)
    return f"{_moment(starts)}–{ends:%H:%M}" if starts.date() == ends.date() else f"{_moment(starts)} – {_moment(ends)}"


def zone_name(zone: Zone, at: int) -> str:
    """Return a zone such as `Europe/Oslo, UTC+01:00`.

    The offset distinguishes the two equal hours of a clock change.
    """
    offset = zone.iso(at)[19:]
    return f"{zone.name}, UTC{'' if offset in ('+00:00', 'Z') else offset}"
