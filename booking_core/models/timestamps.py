"""Reads timestamps as clients write them (decision R10)."""

import re
from datetime import datetime

from booking_core.models.reasons import Fault

_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d{1,9}))?(?:([Zz])|([+\- ])(\d\d):?(\d\d))?)?", re.ASCII
)


def split(text: str) -> tuple[datetime, int, int | None]:
    """Return the wall time of an ISO 8601 timestamp to the second, its microseconds, and the minutes of its offset.

    Without a time it is midnight, without an offset None. A space where a `+` stood in an unescaped URL is read as `+`.

    Raises:
        Fault: it is no timestamp.
    """
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise Fault("wrong_format", "must be an ISO 8601 timestamp")
    day, minutes, seconds, fraction, utc, sign, hours_off, minutes_off = match.groups()
    try:
        wall = datetime.fromisoformat(f"{day}T{minutes or '00:00'}{seconds or ':00'}")
    except ValueError:
        raise Fault("wrong_format", "is not a moment of the calendar") from None
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    if utc or not sign:
        return wall, micros, 0 if utc else None
    if int(hours_off) > 23 or int(minutes_off) > 59:
        raise Fault("wrong_format", "has an impossible offset")
    offset = int(hours_off) * 60 + int(minutes_off)
    return wall, micros, -offset if sign == "-" else offset


def timestamp(text: str) -> str:
    """Validate a timestamp, and return its text.

    Raises:
        Fault: it is no timestamp.
    """
    split(text)
    return text
