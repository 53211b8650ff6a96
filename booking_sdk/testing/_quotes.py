"""Quotes and new holds of the fake, by the rules of its bookings."""

from datetime import timedelta

from booking_core.models.bookings import (
    BookedDeparture,
    BookedExperience,
    BookingOrder,
    BookingQuote,
)
from booking_core.models.holds import Hold, HoldCreate
from booking_core.models.limits import HOLD_S_DEFAULT, LIVE_HOLDS_PER_ORGANIZATION
from booking_sdk.testing._http import Refusal, conflict
from booking_sdk.testing._refusals import Check, refusal_rows, refusals_of
from booking_sdk.testing._store import Row, Store, select_fields
from booking_sdk.testing.factories import new_id, resource_fields, totals_fields


def create_hold(store: Store, request: HoldCreate) -> Row:
    """Hold seats. The checks run in the order of the service."""
    departure = store.get(store.departures, request.experience_date_id)
    store.check_bookable(departure)
    store.check_seats(departure, request.seats)
    if len(store.holds.live()) >= LIVE_HOLDS_PER_ORGANIZATION:
        raise conflict("hold_limit_reached", "There are too many live holds.")
    row = resource_fields(
        Hold,
        id=new_id(),
        departure_id=departure["id"],
        seats=request.seats,
        status="live",
        created_at=store.now,
        expires_at=store.at(store.clock.now + timedelta(seconds=request.expires_in_seconds or HOLD_S_DEFAULT)),
        booking_id=None,
    )
    store.holds.rows[row["id"]] = row
    return row


def get_hold(store: Store, hold_id: str) -> Row:
    """Return a hold with its present status."""
    row = store.get(store.holds.rows, hold_id)
    return {**row, "status": store.holds.status(row)}


def quote(store: Store, order: BookingOrder) -> Row:
    """Return the quote of an order, with each reason why it would be refused."""
    departure = store.get(store.departures, order.experience_date_id)
    experience = store.experiences[departure["experience_id"]]
    problems: list[Refusal] = []
    guests, seats = store.guest_lines(departure, order, problems)
    add_ons = store.add_on_lines(experience, order, problems)
    checks: tuple[Check, ...] = (
        lambda: store.check_reference(order),
        lambda: store.check_bookable(departure),
        lambda: store.holds.require_usable(order),
    )
    short = refusals_of([lambda: store.check_seats(departure, seats, order.hold_id)])
    refusals = [*refusals_of(checks), *problems, *short]
    total = sum(line["count"] * line["unit_price"]["amount_minor"] for line in (*guests, *add_ons))
    return resource_fields(
        BookingQuote,
        is_bookable=not refusals,
        refusals=refusal_rows(refusals),
        experience=select_fields(BookedExperience, experience),
        departure=select_fields(BookedDeparture, departure),
        booking_closes_at=departure["booking_closes_at"],
        seats=seats,
        seats_available=store.seats_left(departure, order.hold_id),
        guests=guests,
        add_ons=add_ons,
        totals=None if problems else totals_fields(total, guests[0]["unit_price"]["currency"]),
    )
