"""The capacity rule: a departure that can be booked, and a check that it has enough seats left.

The batch of the API, single bookings, reschedules and holds all use `require_bookable` and `require_seats`.
"""

from dataclasses import dataclass

from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict, InsufficientCapacity, NotFound
from booking_core.bookings import store
from booking_core.bookings.rules import LockedDeparture
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.models.base import email_key


def refusals(departure: LockedDeparture, organization: Organization, at: int) -> list[Conflict]:
    """Return each reason why a departure cannot be booked at an instant, in the order of decision B4."""
    found = _cancelled(departure)
    if departure.status == "closed":
        found.append(Conflict("departure_closed", "The departure is closed for booking."))
    started, lead = _started(departure, at), organization.hours_before_booking_closes
    if not started and at >= departures.closes_at(departure.starts_at, departure.hours_before_booking_closes, lead):
        found.append(Conflict("departure_closed", "Booking of this departure has closed."))
    return found + started


def _cancelled(departure: LockedDeparture) -> list[Conflict]:
    is_cancelled = departure.status == "cancelled"
    return [Conflict("departure_cancelled", "The departure is cancelled.")] if is_cancelled else []


def _started(departure: LockedDeparture, at: int) -> list[Conflict]:
    has_started = at >= departure.starts_at
    return [Conflict("departure_started", "The departure has started.")] if has_started else []


def require_ahead(departure: LockedDeparture, at: int) -> None:
    """Check that a departure will take place, after an instant.

    Raises:
        Conflict: `departure_cancelled` or `departure_started`.
    """
    for refusal in _cancelled(departure) + _started(departure, at):
        raise refusal


def require_bookable(departure: LockedDeparture, organization: Organization, at: int) -> None:
    """Check that a departure can be booked at an instant.

    Raises:
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`, the first of `refusals`.
    """
    for refusal in refusals(departure, organization, at):
        raise refusal


def require_seats(departure: LockedDeparture, seats: int, *, seats_held: int, seats_sold: int = 0) -> None:
    """Check that a locked departure has enough available seats.

    Args:
        seats: that are wanted.
        seats_held: by live holds of other checkouts.
        seats_sold: earlier in this transaction, and not yet part of the row.

    Raises:
        InsufficientCapacity: fewer seats are available.
    """
    available = departures.seats_available(departure.seats_total, departure.seats_taken + seats_sold, seats_held)
    if seats > available:
        raise InsufficientCapacity(available)


@dataclass(frozen=True, slots=True)
class BookableDeparture:
    """A departure that can be booked, locked until the transaction ends, so that its seats cannot change."""

    departure: LockedDeparture
    at: int
    seats_held: int
    customer_id: str | None

    def require_seats(self, seats: int) -> None:
        """Check that the departure has enough available seats, as `capacity.require_seats` does."""
        require_seats(self.departure, seats, seats_held=self.seats_held)


def lock_bookable(
    tx: Tx, actor: Actor, departure_id: str, *, email: str | None = None, hold_id: str | None = None
) -> BookableDeparture:
    """Lock a departure and check that it can be booked.

    Args:
        email: of the guest, whose customer record is looked up.
        hold_id: a hold whose seats count as available.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
    """
    organization = actor.organization
    departure = store.lock_departures(tx, [(organization.id, departure_id)]).get((organization.id, departure_id))
    if departure is None:
        raise NotFound("There is no such departure.")
    key = None if email is None else email_key(email)
    context = store.get_context(tx, organization.id, departure_id, email_key=key, hold_id=hold_id)
    require_bookable(departure, organization, context.at)
    return BookableDeparture(departure, context.at, context.seats_held, context.customer_id)


def lock_seats(tx: Tx, actor: Actor, departure_id: str, seats: int) -> None:
    """Lock a departure and check that it can be booked with so many seats. The caller stores what takes the seats.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
        InsufficientCapacity: fewer seats are available.
    """
    lock_bookable(tx, actor, departure_id).require_seats(seats)


def take_seats(tx: Tx, organization_id: str, departure_id: str, seats: int, *, at: int) -> None:
    """Add seats to the taken seats of a locked departure; a negative number gives seats back.

    The check of the table refuses more seats than its ceiling.
    """
    key = {"organization_id": organization_id, "id": departure_id}
    tx.update(store.TAKE_SEATS, **key, updated_at=at, seats_taken=seats, announce_at=at)
