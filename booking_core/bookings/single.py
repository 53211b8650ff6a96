"""One booking by itself: made by staff, by an agent, or at the storefront.

What it costs and what it leaves is decided by the same rules as for the bookings of the API (`sale`); this adds what
only these may have: a discount, a gift card, a hold that is taken over, and a card that is charged later.
"""

from dataclasses import dataclass

from booking_core import departures, events, gift_cards, idempotency, payments, tokens
from booking_core.bookings import rules, sale, store
from booking_core.bookings.create import CREATED
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.sale import Draft, Sale
from booking_core.bookings.store import DepartureRow
from booking_core.clock import MINUTE
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.errors import BookingError, InsufficientCapacity, Malformed, NotFound
from booking_core.gift_cards import Redeemed
from booking_core.idempotency import Answer, Once
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingStatus


@dataclass(frozen=True, slots=True)
class ForSale:
    """A departure that can be booked, held until the transaction ends, so that its seats are what they are."""

    departure: DepartureRow
    at: int
    available: int
    customer_id: str | None

    def refuse_more_than_available(self, seats: int) -> None:
        """
        Raises:
            InsufficientCapacity: there are fewer seats.
        """
        if seats > self.available:
            raise InsufficientCapacity(self.available)


def lock_for_sale(
    tx: Tx, actor: Actor, departure_id: str, *, email: str | None = None, hold_id: str | None = None
) -> ForSale:
    """The departure, if it can be booked, with the seats that are left to whoever has that hold.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
    """
    organization = actor.organization
    departure = store.lock_departures(tx, [(organization.id, departure_id)]).get((organization.id, departure_id))
    if departure is None:
        raise NotFound("There is no such departure.")
    key = None if email is None else email_key(email)
    around = store.around(tx, organization.id, departure_id, email_key=key, hold_id=hold_id)
    sale.refuse_unbookable(departure, organization, around.at)
    left = departures.seats_available(departure.seats_total, departure.seats_taken, around.seats_held)
    return ForSale(departure, around.at, left, around.customer_id)


def seats_left(tx: Tx, actor: Actor, departure_id: str) -> int:
    """How many seats can be sold or held now; nobody else sells or holds one before the transaction ends.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
    """
    return lock_for_sale(tx, actor, departure_id).available


def create(tx: Tx, actor: Actor, draft: Draft) -> bytes:
    """The new booking as JSON: confirmed, or pending until its card is charged.

    Raises:
        Malformed: no guests, or a negative discount.
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed` or `departure_started`.
        Unprocessable: a line that is not offered, a discount larger than the subtotal, a gift card that does not pay.
        InsufficientCapacity: there are fewer seats.
    """
    if not draft.guests:
        raise Malformed.at("guests", "must have at least one line", "too_short")
    bookable = lock_for_sale(tx, actor, draft.departure_id, email=draft.customer.email, hold_id=draft.hold_id)
    quote = sale.price(actor.organization, bookable.departure, draft)
    due = rules.discounted(quote.subtotal_minor, draft.discount_minor)
    bookable.refuse_more_than_available(quote.seats)
    sold = Sale(
        organization=actor.organization,
        terms=draft,
        departure=bookable.departure,
        quote=quote,
        at=bookable.at,
        customer_id=bookable.customer_id or tokens.new_id(),
        brings_customer=bookable.customer_id is None,
        source=draft.source,
        discount_minor=draft.discount_minor,
    )
    booking_id = tokens.new_id()
    redeemed = _redeem(tx, actor, sold, booking_id, due)
    if redeemed:
        sold.gift_card_minor = redeemed.amount_minor
    return _write(tx, actor, sold, booking_id, redeemed)


def create_once(tx: Tx, actor: Actor, draft: Draft, once: Once) -> Answer:
    """Create the booking and store its answer for the key, or return the answer that is stored (decisions I1 to I7).

    What is refused is not stored: nothing was done, and the same key may be used again.

    Raises:
        IdempotencyInProgress: a request with this key still runs.
        IdempotencyKeyReused: the key was used for another request.
        BookingError: as `create`.
    """

    def act() -> Answer:
        return Answer(CREATED, create(tx, actor, draft))

    def refuse(error: BookingError) -> Answer:
        raise error

    return idempotency.execute(tx, actor, once, act, refuse)


def _redeem(tx: Tx, actor: Actor, sold: Sale, booking_id: str, due_minor: int) -> Redeemed | None:
    """What the draft's gift card pays of what is due; a card is not touched when nothing is."""
    assert isinstance(sold.terms, Draft)
    if sold.terms.gift_card_code is None or not due_minor:
        return None
    return gift_cards.redeem(
        tx,
        actor,
        code=sold.terms.gift_card_code,
        booking_id=booking_id,
        currency=sold.departure.currency,
        wanted_minor=due_minor,
        customer_id=sold.customer_id,
    )


def _write(tx: Tx, actor: Actor, sold: Sale, booking_id: str, redeemed: Redeemed | None) -> bytes:
    """Numbers the booking and its events, the last lock of the transaction, and collects all its rows."""
    organization_id = sold.organization.id
    booked = sale.row(sold, booking_id, actor.secret_keys.first_id)
    is_pending = booked.status is BookingStatus.PENDING
    event_count = sold.brings_customer + 1 + bool(redeemed) + (not is_pending)
    number, sequence = events.lock_sequences(tx, {organization_id: (1, event_count)})[organization_id]
    booked = booked._replace(booking_number=number + 1)
    expiry = {"expires_at": _expires_at(actor, sold.at)} if is_pending else {}
    shown = sale.write(tx, sold, booked, sequence + 1, also=[redeemed.told] if redeemed else [], **expiry)
    if is_pending:
        _expect_payment(tx, sold, booked)
    if sold.quote.seats:
        change = {"organization_id": organization_id, "id": sold.departure.id, "updated_at": sold.at}
        tx.update(store.TAKE_SEATS, **change, seats_taken=sold.quote.seats)
    return shown


def _expires_at(actor: Actor, at: int) -> int:
    """Until when a pending booking keeps its seats (decision B8)."""
    own = actor.organization.pending_minutes
    return at + (actor.installation.pending_minutes if own is None else own) * MINUTE


def _expect_payment(tx: Tx, sold: Sale, booked: BookingRow) -> None:
    payments.expect(
        tx,
        sold.organization.id,
        booking_id=booked.id,
        amount_minor=booked.total_minor,
        currency=booked.currency,
        at=sold.at,
    )
