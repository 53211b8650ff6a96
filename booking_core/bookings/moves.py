"""Moves by guests: the departures that the organization's policy lets a guest choose, and the move itself.

A guest moves to another departure of the same experience, at the same prices, while the policy allows it
(`guest_moves_until_hours`). Staff may do more (`reschedule`).
"""

from dataclasses import dataclass

import orjson

from booking_core.base.clock import DAY, HOUR
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import BookingError, Conflict, NotFound
from booking_core.bookings import capacity, queries, reschedule, store
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.catalogue import departures, experiences
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus

AHEAD = 92 * DAY
"""The span of departures that are offered, as in availability."""
OFFERED_MAX = 60


@dataclass(frozen=True, slots=True)
class Move:
    """A departure that a guest can move to."""

    departure_id: str
    starts_at: int
    ends_at: int
    seats_available: int


def moves_until(organization: Organization, starts_at: int) -> int | None:
    """Return the instant until which guests move a booking of that start; None: the policy does not allow it."""
    hours = organization.guest_moves_until_hours
    return None if hours is None else starts_at - hours * HOUR


def find_moves(tx: Tx, actor: Actor, booking_id: str) -> list[Move]:
    """Return the departures that the guest can move to now, by start. There are none when the policy refuses a move.

    Raises:
        NotFound: the organization has no such booking.
    """
    organization = actor.organization
    row, seats = store.get(tx, organization.id, booking_id), store.get_seats(tx, organization.id, booking_id)
    if row is None:
        raise NotFound("There is no such booking.")
    if _refusal(actor, row) is not None:
        return []
    found = store.find_offered(
        tx,
        organization.id,
        row.experience_id,
        after=actor.at,
        before=actor.at + AHEAD,
        limit=OFFERED_MAX,
    )
    return [
        _move(target, available)
        for target, held in found
        if target.id != row.departure_id
        and _is_bookable(target, organization, actor.at)
        and (available := departures.seats_available(target.seats_total, target.seats_taken, held)) >= seats
        and _costs_the_same(row, target)
    ]


def move(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Move a booking for its guest and return it as JSON. The same departure leaves it unchanged.

    Raises:
        NotFound: the organization has no such booking, or the experience no such departure.
        Conflict: `moves_not_allowed`, `moves_too_late`, `price_differs`, or as `reschedule`.
        InsufficientCapacity: the other departure has fewer available seats.
    """
    booking = queries.lock(tx, actor, booking_id)
    if refusal := _refusal(actor, booking.row):
        raise refusal
    target = store.lock_departures(tx, _keys(actor, booking, departure_id)).get((actor.organization.id, departure_id))
    if target is None or target.experience_id != booking.row.experience_id:
        raise NotFound("The experience has no such departure.")
    if not _costs_the_same(booking.row, target):
        raise Conflict("price_differs", "The departure has other prices.")
    return reschedule.reschedule(tx, actor, booking_id, departure_id)


def _keys(actor: Actor, booking: queries.LockedBooking, departure_id: str) -> list[tuple[str, str]]:
    """Return the keys of both departures, which are locked in sorted order, as `reschedule` does."""
    return [(actor.organization.id, each) for each in (departure_id, booking.row.departure_id)]


def _refusal(actor: Actor, row: BookingRow) -> BookingError | None:
    if row.status == BookingStatus.CANCELLED:
        return Conflict("booking_cancelled", "The booking is cancelled.")
    until = moves_until(actor.organization, row.starts_at)
    if until is None:
        return Conflict("moves_not_allowed", "Guests do not move bookings of this organization themselves.")
    return Conflict("moves_too_late", "It is too late to move the booking.") if actor.at >= until else None


def _is_bookable(target: LockedDeparture, organization: Organization, at: int) -> bool:
    try:
        capacity.require_bookable(target, organization, at)
    except Conflict:
        return False
    return True


def _costs_the_same(row: BookingRow, target: LockedDeparture) -> bool:
    tiers = experiences.tiers(target.price_tiers, target.price_from_minor, target.price_minor, target.prices)
    return target.currency == row.currency and all(
        (tier := tiers.get(line["tier_id"])) is not None and tier.price_minor == line["unit_price"]["amount_minor"]
        for line in orjson.loads(row.guests)
    )


def _move(target: LockedDeparture, available: int) -> Move:
    ends_at = departures.ends_at(target.starts_at, target.ends_at, target.duration_minutes)
    return Move(target.id, target.starts_at, ends_at, available)
