"""Cancel and move a booking for its guest, until the organization's deadlines (decisions/0017).

A guest moves a booking to another departure of the same experience, at the same prices. Staff and the API may do more,
at any time: they call `cancel` and `reschedule`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from booking_core.base.clock import DAY
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import capacity, changes, presenting, pricing, rules, store, terms
from booking_core.bookings.cancel import Cancellation, cancel_one
from booking_core.bookings.changes import LockedBooking
from booking_core.bookings.reschedule import lock_target, reschedule_locked
from booking_core.bookings.rules import BookingRow, BookingState, LockedDeparture
from booking_core.bookings.terms import Refundable
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.models.bookings import CancelReason
from booking_core.models.reasons import ErrorReason

AHEAD = 92 * DAY
"""The span of departures that a guest is offered, as in availability."""
OFFERED_MAX = 60


def guest_may_cancel(actor: Actor, booking: BookingState) -> bool:
    """Return whether the guest may cancel the booking now."""
    return not any(_refusals_of_cancellation(actor, booking))


def guest_may_move(actor: Actor, booking: BookingState) -> bool:
    """Return whether the guest may move the booking now."""
    return not any(_refusals_of_move(actor, booking))


def _refusals_of_cancellation(actor: Actor, booking: BookingState) -> Iterator[Conflict]:
    until = actor.organization.guest_cancels_until(booking.starts_at)
    return _refusals(actor, booking, until, "cancel", "cancellation_not_allowed", "cancellation_too_late")


def _refusals_of_move(actor: Actor, booking: BookingState) -> Iterator[Conflict]:
    until = actor.organization.guest_moves_until(booking.starts_at)
    return _refusals(actor, booking, until, "move", "moves_not_allowed", "moves_too_late")


def _refusals(
    actor: Actor, booking: BookingState, until: int | None, verb: str, not_allowed: ErrorReason, too_late: ErrorReason
) -> Iterator[Conflict]:
    yield from rules.refusals_of_cancelled(booking)
    if until is None:
        yield Conflict(not_allowed, f"Guests do not {verb} bookings of this organization themselves.")
    elif actor.at >= until:
        yield Conflict(too_late, f"The guest could {verb} the booking until {actor.organization.zone.iso(until)}.")


def refundable_now(actor: Actor, booking: LockedBooking) -> Refundable:
    """Return the payment that the guest's cancellation of a locked booking would refund."""
    return terms.refundable(booking.as_read, actor.organization, actor.at)


def cancel_by_guest(tx: Tx, actor: Actor, booking: LockedBooking) -> bytes:
    """Cancel a locked booking for its guest, as `cancel` does.

    Raises:
        Conflict: `booking_cancelled`, `cancellation_not_allowed` or `cancellation_too_late`.
    """
    rules.require(_refusals_of_cancellation(actor, booking.row))
    return cancel_one(tx, actor, booking, Cancellation(CancelReason.CUSTOMER))


class Move(NamedTuple):
    """A departure that a guest can move to."""

    departure_id: str
    starts_at: int
    ends_at: int
    seats_available: int


def find_moves(tx: Tx, actor: Actor, booking_id: str) -> list[Move]:
    """Return the departures that the guest can move to now, by start. There are none when the policy refuses a move.

    Raises:
        NotFound: the organization has no such booking.
    """
    organization, booking = actor.organization, changes.read(tx, actor, booking_id)
    row, window = booking.row, {"at": actor.at, "before": actor.at + AHEAD}
    if not guest_may_move(actor, row):
        return []
    return [
        Move(target.id, target.starts_at, rules.ends_at(target), available)
        for target, seats_held in store.find_offered(
            tx, organization.id, row.experience_id, **window, limit=OFFERED_MAX
        )
        if target.id != row.departure_id
        and not capacity.refusals(target, organization, actor.at)
        and (available := departures.seats_available(target.seats_total, target.seats_taken, seats_held))
        >= booking.details.seats
        and _costs_the_same(row, target)
    ]


def move(tx: Tx, actor: Actor, booking: LockedBooking, departure_id: str) -> bytes:
    """Move a locked booking for its guest and return it as JSON. The same departure leaves it unchanged.

    Raises:
        NotFound: the experience has no such departure.
        Conflict: `moves_not_allowed`, `moves_too_late`, `price_differs`, or as `reschedule`.
        InsufficientCapacity: the other departure has fewer available seats.
    """
    rules.require(_refusals_of_move(actor, booking.row))
    target = lock_target(tx, actor, booking, departure_id)
    if target is None or target.experience_id != booking.row.experience_id:
        raise NotFound("The experience has no such departure.")
    if not _costs_the_same(booking.row, target):
        raise Conflict("price_differs", "The departure has other prices.")
    return presenting.render_for(actor, reschedule_locked(tx, actor, booking, departure_id).booking)


def _costs_the_same(row: BookingRow, target: LockedDeparture) -> bool:
    tiers = pricing.tiers_of(target)
    return target.currency == row.currency and all(
        (tier := tiers.get(line["tier_id"])) is not None and tier.price_minor == line["unit_price"]["amount_minor"]
        for line in orjson.loads(row.guests)
    )
