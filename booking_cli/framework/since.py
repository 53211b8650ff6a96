"""Instants that a command compares by itself, where others let the service read them."""

from datetime import datetime


def aware(text: str, timezone: str) -> datetime:
    """The instant of an ISO 8601 timestamp; without an offset it is the time of that zone."""
    from zoneinfo import ZoneInfo

    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=ZoneInfo(timezone))
