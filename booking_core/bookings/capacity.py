"""The capacity rule: a departure that can be booked, and a check that it has enough seats left.

The batch of the API, single bookings, reschedules, quotes and holds all use `refusals` and `refusals_of_seats`.
"""

from collections.abc import Sequence

from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict, InsufficientCapacity, NotFound
from booking_core.bookings import pricing, store
from booking_core.bookings.pricing import Quote
from booking_core.bookings.rules import LockedDeparture, require
from booking_core.bookings.store import BookingContext
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.models.base import email_key
from booking_core.models.bookings import GuestLineInput


def refusals(
    departure: LockedDeparture, organization: Organization, at: int, *, for_sale: bool = True
) -> list[Conflict]:
    """Return each reason why a departure cannot be booked at an instant, in the order of decision B4.

    The codes are `departure_cancelled`, `departure_closed` and `departure_started`.

    Args:
        for_sale: False leaves out `departure_closed`, for changes of a booking that need no seats.
    """
    conflicts = []
    if departure.status == "cancelled":
        conflicts.append(Conflict("departure_cancelled", "The departure is cancelled."))
    if for_sale and departure.status == "closed":
        conflicts.append(Conflict("departure_closed", "The departure is closed for booking."))
    elif for_sale and not pricing.tiers_of(departure):
        conflicts.append(Conflict("departure_closed", "The departure has no price, so it is closed for booking."))
    hours, lead = departure.hours_before_booking_closes, organization.hours_before_booking_closes
    if at >= departure.starts_at:
        conflicts.append(Conflict("departure_started", "The departure has started."))
    elif for_sale and at >= departures.closes_at(departure.starts_at, hours, lead):
        conflicts.append(Conflict("departure_closed", "Booking of this departure has closed."))
    return conflicts


def refusals_of_seats(
    departure: LockedDeparture, seats: int, *, seats_held: int, seats_sold: int = 0
) -> list[InsufficientCapacity]:
    """Return the refusal if a departure has fewer available seats.

    Args:
        seats: that are wanted.
        seats_held: by live holds of other checkouts.
        seats_sold: earlier in this transaction, and not yet part of the row.
    """
    available = departures.seats_available(departure.seats_total, departure.seats_taken + seats_sold, seats_held)
    return [InsufficientCapacity(available)] if seats > available else []


def lock_bookable(
    tx: Tx, actor: Actor, departure_id: str, *, email: str | None = None, hold_id: str | None = None
) -> tuple[LockedDeparture, BookingContext]:
    """Lock a departure until the transaction ends, check that it can be booked, and return it with its context.

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
        raise NotFound.of("departure")
    key = None if email is None else email_key(email)
    context = store.get_context(tx, organization.id, departure_id, email_key=key, hold_id=hold_id)
    require(refusals(departure, organization, context.at))
    return departure, context


def lock_party(
    tx: Tx, actor: Actor, departure_id: str, guests: Sequence[GuestLineInput], *, hold_id: str | None = None
) -> Quote:
    """Lock a departure, check that it can be booked with a party, and return the price of the party.

    Args:
        hold_id: a hold whose seats count as available.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
        Unprocessable: a tier is not offered, or the sum exceeds 64 bits.
        InsufficientCapacity: fewer seats are available.
    """
    departure, context = lock_bookable(tx, actor, departure_id, hold_id=hold_id)
    quote = pricing.quote(actor.organization, departure, guests, ())
    require(refusals_of_seats(departure, quote.seats, seats_held=context.seats_held))
    return quote


def take_seats(tx: Tx, organization_id: str, departure_id: str, seats: int, *, at: int) -> None:
    """Add seats to the taken seats of a locked departure; a negative number gives seats back.

    The check of the table refuses more seats than its ceiling.
    """
    key = {"organization_id": organization_id, "id": departure_id}
    tx.update(store.TAKE_SEATS, **key, updated_at=at, seats_taken=seats, announce_at=at)
