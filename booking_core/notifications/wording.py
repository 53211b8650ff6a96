"""How things are put to people: money, times, and text that somebody typed. No storage, no clock.

Wall time is the organization's, and its zone is always named: a guest may read from anywhere.
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
"""Marks that turn the direction of what stands around them. Letters of a script that runs from right to left need none
of them, and a name with one could make the rest of a line read as something else."""


def one_line(text: str) -> str:
    """The text as it can stand in a header, or in a line with others: no line breaks, no control characters, nothing
    that cannot be encoded, and blanks only between words."""
    return " ".join(_UNPRINTABLE.sub(" ", _REORDERING.sub("", text)).split())


def lines(text: str) -> list[str]:
    """The lines of a text, each such that nothing in it can pass for another line."""
    return [one_line(line) for line in text.strip().splitlines()]


def shortened(text: str, length: int) -> str:
    """The text, cut where it is longer than that."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


money = formatted


def day(zone: Zone, at: int) -> str:
    """`24 December 2026`."""
    return _day(zone.wall(at))


def _day(wall: datetime) -> str:
    return f"{wall.day} {_MONTHS[wall.month - 1]} {wall.year}"


def _moment(wall: datetime) -> str:
    return f"{_DAYS[wall.weekday()]} {_day(wall)}, {wall:%H:%M}"


def moment(zone: Zone, at: int) -> str:
    """`Thursday 24 December 2026, 10:00`."""
    return _moment(zone.wall(at))


def span(zone: Zone, starts_at: int, ends_at: int) -> str:
    """`Thursday 24 December 2026, 10:00–12:30`; with the day of the end when that is another."""
    starts, ends = zone.wall(starts_at), zone.wall(ends_at)
    if ends_at <= starts_at:
        return _moment(starts)
    return f"{_moment(starts)}–{ends:%H:%M}" if starts.date() == ends.date() else f"{_moment(starts)} – {_moment(ends)}"


def zone_name(zone: Zone, at: int) -> str:
    """`Europe/Oslo, UTC+01:00`: the offset tells the two hours apart that a clock change makes of one."""
    offset = zone.iso(at)[19:]
    return f"{zone.name}, UTC{'' if offset in ('+00:00', 'Z') else offset}"
