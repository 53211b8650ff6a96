"""Durations as they are typed: 90d, 24h, 10m. Timestamps without a UTC offset."""

import re
from datetime import datetime

import typer

_DURATION = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_MAX_S = 100 * 366 * 86_400
"""A century. A longer duration is a typing mistake."""


def duration_us(text: str) -> int:
    """Return the duration in microseconds, the unit of instants.

    Raises:
        BadParameter: the text is neither 0 nor a whole number followed by s, m, h, d or w.
    """
    if text == "0":
        return 0
    match = _DURATION.fullmatch(text)
    if not match or int(match[1]) * _SECONDS[match[2]] > _MAX_S:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90d, 24h or 10m.")
    return int(match[1]) * _SECONDS[match[2]] * 1_000_000


def aware_datetime(text: str, timezone: str) -> datetime:
    """Return the instant of an ISO 8601 timestamp; one without an offset is in the given time zone."""
    from zoneinfo import ZoneInfo

    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=ZoneInfo(timezone))
