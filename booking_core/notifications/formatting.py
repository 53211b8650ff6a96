"""Formats of user text, places and zones, and of money and times for staff. No storage, no clock.

Guests read money and times in their own language (`booking_core.base.languages`).
"""

import re
from urllib.parse import urlencode

from booking_core.base.clock import Zone
from booking_core.base.languages import ENGLISH
from booking_core.models.money import formatted

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
    """Return a date such as `24 December 2026`, for staff."""
    return ENGLISH.day(zone, at)


def moment(zone: Zone, at: int) -> str:
    """Return a time such as `Thursday 24 December 2026, 10:00`, for staff."""
    return ENGLISH.moment(zone, at)


def span(zone: Zone, starts_at: int, ends_at: int) -> str:
    """Return a span such as `Thursday 24 December 2026, 10:00–12:30`, for staff."""
    return ENGLISH.span(zone, starts_at, ends_at)


def zone_name(zone: Zone, at: int) -> str:
    """Return a zone such as `Europe/Oslo, UTC+01:00`.

    The offset distinguishes the two equal hours of a clock change.
    """
    offset = zone.iso(at)[19:]
    return f"{zone.name}, UTC{'' if offset in ('+00:00', 'Z') else offset}"


def map_url(latitude: float | None, longitude: float | None, address: str | None) -> str | None:
    """Return the address of a map of the meeting place, which telephones open in their own program."""
    if latitude is not None and longitude is not None:
        place = f"{latitude:.6f},{longitude:.6f}"
    elif address and address.strip():
        place = one_line(address)
    else:
        return None
    return f"https://www.google.com/maps/search/?{urlencode({'api': 1, 'query': place})}"
