"""Holds of the API: seats that an integrator keeps while its guest checks out.

They are the holds of the storefront, with a shorter duration and a bound on their number.
"""

from typing import Any

from booking_core import bookings
from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings.storefront import store
from booking_core.catalogue import holds
from booking_core.catalogue.holds import Hold
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.limits import HOLD_S_DEFAULT, LIVE_HOLDS_PER_ORGANIZATION
from booking_core.records import departure_touches


def create_hold(tx: Tx, actor: Actor, departure_id: str, seats: int, *, for_s: int | None = None) -> dict[str, Any]:
    """Hold seats of a departure, and return the hold in the shape of the API.

    Requests that run at the same moment do not wait for each other, and together may exceed the bound by their number.

    Args:
        for_s: the duration in seconds; None: the default.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed`, `departure_started` or `hold_limit_reached`.
        InsufficientCapacity: fewer seats are available.
    """
    bookings.lock_seats(tx, actor, departure_id, seats)
    if holds.count_live(tx, actor.organization.id, actor.at) >= LIVE_HOLDS_PER_ORGANIZATION:
        message = f"The organization has {LIVE_HOLDS_PER_ORGANIZATION} live holds, which is the limit."
        raise Conflict("hold_limit_reached", message)
    length = (HOLD_S_DEFAULT if for_s is None else for_s) * SECOND
    hold = Hold(tokens.new_id(), departure_id, seats, actor.at, actor.at + length, None, None)
    tx.insert(tables.holds, organization_id=actor.organization.id, **hold._asdict())
    departure_touches.touch(tx, actor.organization.id, [departure_id], at=actor.at)
    return holds.present(hold, actor.organization.zone, actor.at)


def get_hold(tx: Tx, actor: Actor, hold_id: str) -> dict[str, Any]:
    """Return a hold in the shape of the API.

    Raises:
        NotFound: the organization has no such hold.
    """
    return holds.present(_found(holds.find(tx, actor.organization.id, hold_id)), actor.organization.zone, actor.at)


def delete_hold(tx: Tx, actor: Actor, hold_id: str) -> None:
    """Release the seats of a hold. One that was released or has expired stays as it is.

    Raises:
        NotFound: the organization has no such hold.
        Conflict: `hold_booked`.
    """
    departure_touches.lock_of_hold(tx, actor.organization.id, hold_id)
    hold = _found(holds.lock(tx, actor.organization.id, hold_id))
    if hold.booking_id is not None:
        raise Conflict("hold_booked", "A booking has taken over the hold.")
    if hold.ended_at is None:
        tx.update(store.END, organization_id=actor.organization.id, id=hold.id, ended_at=actor.at)
        departure_touches.touch(tx, actor.organization.id, [hold.departure_id], at=actor.at)


def _found(hold: Hold | None) -> Hold:
    if hold is None:
        raise NotFound("There is no such hold.")
    return hold
