"""Quotes: the price of a booking that is not made, the seats that it needs, and each reason why it would be refused.

The checks are the same as for a new booking (`batch`), in the same order, and none of them ends the quote. Nothing is
locked and nothing is written: a booking may be refused a moment later.
"""

from typing import Any

import orjson

from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, NotFound
from booking_core.bookings import capacity, changes, pricing, rules, store
from booking_core.bookings.pricing import Quote
from booking_core.bookings.rules import CREATED, LockedDeparture, Reference
from booking_core.catalogue import departures, holds
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingOrder
from booking_core.models.money import totals_json
from booking_core.records import idempotency


def quote(tx: Tx, actor: Actor, order: BookingOrder, *, key: str | None = None) -> dict[str, Any]:
    """Return the quote of an order in the shape of the API.

    Args:
        key: the idempotency key of the order. An order that was booked is allowed: its repetition returns the booking.

    Raises:
        NotFound: the organization has no such departure.
    """
    organization, at = actor.organization, actor.at
    departure_and_seats = store.read_departure(tx, organization.id, order.departure_id, at=at, hold_id=order.hold_id)
    if departure_and_seats is None:
        raise NotFound.of("departure")
    departure, seats_held = departure_and_seats
    priced, problems = pricing.evaluate(organization, departure, order.guests, order.add_ons or ())
    refusals: list[BookingError] = []
    if order.external_reference is not None and order.external_reference_unique:
        reference = Reference(organization.id, order.external_reference)
        if tx.pipeline(store.taken_query([reference]))[0]:
            refusals.append(rules.reference_taken())
    refusals += capacity.refusals(departure, organization, at)
    if order.hold_id is not None:
        try:
            holds.require_usable(holds.find(tx, organization.id, order.hold_id), order.departure_id, at)
        except BookingError as refusal:
            refusals.append(refusal)
    refusals += problems
    refusals += capacity.refusals_of_seats(departure, priced.seats, seats_held=seats_held)
    booking_id = None if key is None else _booked_with(tx, actor, key)
    if booking_id is not None:
        refusals = []
    totals = None if problems else totals_json(priced.subtotal_minor, departure.currency)
    return {
        "allowed": not refusals,
        "refusals": changes.present_refusals(refusals),
        "booking_id": booking_id,
        **_present(actor, departure, priced, seats_held),
        "totals": totals,
    }


def _booked_with(tx: Tx, actor: Actor, key: str) -> str | None:
    """Return the id of the booking that was made with an idempotency key; None where the key has none."""
    stored = idempotency.find_answer(tx, actor, key)
    if stored is None or stored.status != CREATED:
        return None
    answer = orjson.loads(stored.body)
    booking = answer.get("booking", answer)  # a checkout has its booking in it
    return str(booking["id"]) if "booking_number" in booking else None


def _present(actor: Actor, departure: LockedDeparture, priced: Quote, seats_held: int) -> dict[str, Any]:
    zone = actor.organization.zone
    lead = departure.hours_before_booking_closes, actor.organization.hours_before_booking_closes
    return {
        "experience": {"id": departure.experience_id, "title": departure.title, "slug": departure.slug},
        "departure": {
            "id": departure.id,
            "starts_at": zone.iso(departure.starts_at),
            "ends_at": zone.iso(rules.ends_at(departure)),
        },
        "booking_closes_at": zone.iso(departures.closes_at(departure.starts_at, *lead)),
        "seats": priced.seats,
        "seats_available": departures.seats_available(departure.seats_total, departure.seats_taken, seats_held),
        "guests": orjson.Fragment(priced.guests),
        "add_ons": orjson.Fragment(priced.add_ons),
    }
