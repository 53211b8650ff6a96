"""Describe bookings in questions and notes, for the client and the operator half of `booking bookings`."""

from collections.abc import Mapping
from typing import Any

from booking_cli.framework.context import Cli


def describe(booking: Mapping[str, Any]) -> str:
    """Return a booking's number, guest, experience and start."""
    title = booking["experience"]["title"]
    start = start_text(booking["departure"])
    return f"booking {booking['booking_number']} of {booking['customer']['name']} ({title}, {start})"


def start_text(departure: Mapping[str, Any]) -> str:
    """Return the start of a departure to the minute, in the organization's time zone."""
    return str(departure["starts_at"])[:16].replace("T", " ")


def write_created(cli: Cli, booking: Mapping[str, Any], *, is_replay: bool) -> None:
    """Write a new booking, or the one that an earlier run with the same key created."""
    cli.render.one(booking)
    if is_replay:
        cli.render.note("This booking was created before with the same key; nothing was booked now.")
