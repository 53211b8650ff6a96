"""What may be held, for how long, and how a hold is shown. No storage, no clock."""

import re
from typing import Any, NamedTuple

from booking_core.clock import Zone
from booking_core.errors import Malformed
from booking_core.models.base import UUID_PATTERN
from booking_core.models.limits import COUNT_MAX

HOLD_S_DEFAULT = 600
HOLD_S_MAX = 86_400
"""A day: longer keeps seats from everybody else."""


_UUID = re.compile(UUID_PATTERN)


def is_id(text: str) -> bool:
    """Whether the text can be an id; PostgreSQL would take anything else for an error of ours."""
    return _UUID.fullmatch(text) is not None


class HoldRow(NamedTuple):
    """Seats that a checkout has to itself, in the order they are read."""

    id: str
    departure_id: str
    seats: int
    expires_at: int
    ended_at: int | None


def check(seats: int, for_s: int) -> None:
    """Refuses a hold of nothing, and one that never seems to end.

    Raises:
        Malformed: naming what is wrong.
    """
    if not 1 <= seats <= COUNT_MAX:
        raise Malformed.at("seats", f"must be a whole number from 1 to {COUNT_MAX}", "range")
    if not 1 <= for_s <= HOLD_S_MAX:
        raise Malformed.at("for", f"must be from a second to {HOLD_S_MAX // 3600} hours", "range")


def present(row: HoldRow, zone: Zone) -> dict[str, Any]:
    """The hold, ready for JSON."""
    return {
        "id": row.id,
        "departure_id": row.departure_id,
        "seats": row.seats,
        "expires_at": zone.iso(row.expires_at),
    }
