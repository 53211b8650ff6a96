"""Quotes: the price of a booking that is not made, the seats that it needs, and each reason why it would be refused.

The checks are those of a new booking (`batch`), in their order, and none of them ends the quote. Nothing is locked and
nothing is written, so that a booking may be refused a moment later.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, InsufficientCapacity, NotFound
from booking_core.bookings import capacity, previews, pricing, references, store
from booking_core.bookings.pricing import Quote
from booking_core.bookings.references import Reference
from booking_core.bookings.rules import CREATED, LockedDeparture, money
from booking_core.catalogue import departures, holds
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingOrder
from booking_core.records import idempotency


def quote(tx: Tx, actor: Actor, order: BookingOrder, *, key: str | None = None) -> dict[str, Any]:
    """Return the quote of an order in the shape of the API.

    Args:
        key: the idempotency key of the order. An order that was booked is allowed: its repetition returns the booking.

    Raises:
        NotFound: the organization has no such departure.
    """
    found = store.get_quoted(tx, actor.organization.id, order.departure_id, hold_id=order.hold_id, at=actor.at)
    if found is None:
        raise NotFound("There is no such departure.")
    departure, seats_held = found
    offered = pricing.offer_of(departure)
    priced, problems = pricing.evaluate(actor.organization, offered, order.guests, order.add_ons or ())
    refusals = [
        *_reference_refusals(tx, actor, order),
        *capacity.refusals(departure, actor.organization, actor.at),
        *_hold_refusals(tx, actor, order),
        *problems,
    ]
    refusals += _seat_refusals(departure, priced, seats_held)
    booking_id = None if key is None else _booked_with(tx, actor, key)
    if booking_id is not None:
        refusals = []
    return _present(actor, departure, priced, seats_held, refusals, booking_id, is_priced=not problems)


def _booked_with(tx: Tx, actor: Actor, key: str) -> str | None:
    """Return the id of the booking that was made with an idempotency key; None where the key has none."""
    stored = idempotency.find_answer(tx, actor, key)
    if stored is None or stored.status != CREATED:
        return None
    made = orjson.loads(stored.body)
    booking = made.get("booking", made)  # a checkout has its booking in it
    return str(booking["id"]) if "booking_number" in booking else None


def _reference_refusals(tx: Tx, actor: Actor, order: BookingOrder) -> Iterator[BookingError]:
    text = order.external_reference if order.external_reference_unique else None
    if text is not None and references.is_taken(tx, Reference(actor.organization.id, text)):
        yield references.taken()


def _hold_refusals(tx: Tx, actor: Actor, order: BookingOrder) -> Iterator[BookingError]:
    if order.hold_id is None:
        return
    try:
        hold = holds.find(tx, actor.organization.id, order.hold_id)
        holds.require_usable(hold, order.departure_id, actor.at)
    except BookingError as refusal:
        yield refusal


def _seat_refusals(departure: LockedDeparture, priced: Quote, seats_held: int) -> Iterator[BookingError]:
    try:
        capacity.require_seats(departure, priced.seats, seats_held=seats_held)
    except InsufficientCapacity as refusal:
        yield refusal


def _present(
    actor: Actor,
    departure: LockedDeparture,
    priced: Quote,
    seats_held: int,
    refusals: list[BookingError],
    booking_id: str | None,
    *,
    is_priced: bool,
) -> dict[str, Any]:
    zone, organization = actor.organization.zone, actor.organization
    ends_at = departures.ends_at(departure.starts_at, departure.ends_at, departure.duration_minutes)
    lead = departure.hours_before_booking_closes, organization.hours_before_booking_closes
    return {
        "allowed": not refusals,
        "refusals": previews.present_refusals(refusals),
        "booking_id": booking_id,
        "experience": {"id": departure.experience_id, "title": departure.title, "slug": departure.slug},
        "departure": {
            "id": departure.id,
            "starts_at": zone.iso(departure.starts_at),
            "ends_at": zone.iso(ends_at),
        },
        "booking_closes_at": zone.iso(departures.closes_at(departure.starts_at, *lead)),
        "seats": priced.seats,
        "seats_available": departures.seats_available(departure.seats_total, departure.seats_taken, seats_held),
        "guests": orjson.Fragment(priced.guests),
        "add_ons": orjson.Fragment(priced.add_ons),
        "totals": _totals(priced.subtotal_minor, departure.currency) if is_priced else None,
    }


def _totals(subtotal_minor: int, currency: str) -> dict[str, Any]:
    """Present the totals of a booking of the API, which has neither discount nor gift card."""
    subtotal, nothing = money(subtotal_minor, currency), money(0, currency)
    return {"subtotal": subtotal, "discount": nothing, "gift_card": nothing, "total": subtotal}
