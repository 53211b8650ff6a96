"""Rules of holds: limits and presentation. No storage, no clock."""

from typing import Any, NamedTuple

from booking_core.base.clock import Zone
from booking_core.base.errors import Malformed
from booking_core.models.limits import COUNT_MAX

HOLD_S_DEFAULT = 600
HOLD_S_MAX = 86_400
"""A day: a longer hold would block seats for other guests."""


class HoldRow(NamedTuple):
    """A hold, in the order of its columns."""

    id: str
    departure_id: str
    seats: int
    expires_at: int
    ended_at: int | None


def check(seats: int, for_s: int) -> None:
    """Refuse a number of seats or a duration out of range.

    Raises:
        Malformed: for the field that is out of range.
    """
    if not 1 <= seats <= COUNT_MAX:
        raise Malformed.at("seats", f"must be a whole number from 1 to {COUNT_MAX}", "range")
    if not 1 <= for_s <= HOLD_S_MAX:
        raise Malformed.at("for", f"must be from a second to {HOLD_S_MAX // 3600} hours", "range")


def present(row: HoldRow, zone: Zone) -> dict[str, Any]:
    """Return the hold as JSON-ready values."""
    return {
        "id": row.id,
        "departure_id": row.departure_id,
        "seats": row.seats,
        "expires_at": zone.iso(row.expires_at),
    }
