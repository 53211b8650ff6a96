"""Holds: seats of a departure that are kept for a checkout for some minutes, until it is booked, released or expired.

The package has their rows and rules. Seats are held in `storefront`, and taken over by `bookings`, since both ask the
capacity rule.
"""

from booking_core.catalogue.holds import store
from booking_core.catalogue.holds.rules import Hold, HoldKey, is_live, present, require_usable
from booking_core.catalogue.holds.store import count_live, existing, find, lock, locks_query, seats_held_by_others
from booking_core.db.engine import Tx

__all__ = [
    "Hold",
    "HoldKey",
    "count_live",
    "existing",
    "find",
    "is_live",
    "lock",
    "locks_query",
    "present",
    "require_usable",
    "seats_held_by_others",
    "take_over",
]


def take_over(tx: Tx, organization_id: str, hold_id: str, booking_id: str, *, at: int) -> None:
    """End a locked hold, whose seats the booking has from now on."""
    tx.update(store.TAKE_OVER, organization_id=organization_id, id=hold_id, booking_id=booking_id, ended_at=at)
