"""Single bookings, made by staff, by an agent, or at the storefront.

Prices, capacity and rows are the same as for the bookings of the API. Only these bookings may have a discount, a gift
card, a hold whose seats they take over, and a card payment that comes later.
"""

from booking_core import payments
from booking_core.base import tokens
from booking_core.base.clock import MINUTE
from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, Malformed
from booking_core.bookings import capacity, drafts, presenting, pricing, rules, store
from booking_core.bookings.drafts import BookingDraft, BookingRequest
from booking_core.bookings.rules import CREATED, Reference
from booking_core.bookings.store import BookingWithPayment
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus
from booking_core.payments import gift_cards
from booking_core.payments.gift_cards import Redeemed
from booking_core.records import events, idempotency
from booking_core.records.idempotency import Answer, Once


def create(tx: Tx, actor: Actor, request: BookingRequest) -> bytes:
    """Create a booking, confirmed or pending until its card is charged, and return it as JSON.

    Raises:
        Malformed: no guests, or a negative discount.
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, `departure_closed`, `departure_started` or `external_reference_taken`.
        Unprocessable: a line that is not offered, a discount larger than the subtotal, a gift card that does not pay.
        InsufficientCapacity: fewer seats are available.
    """
    if not request.guests:
        raise Malformed.at("guests", "must have at least one line", "too_short")
    organization = actor.organization
    departure, context = capacity.lock_bookable(
        tx, actor, request.departure_id, email=request.customer.email, hold_id=request.hold_id
    )
    if request.external_reference is not None and request.external_reference_unique:
        _require_free(tx, Reference(organization.id, request.external_reference))
    quote = pricing.quote(organization, departure, request.guests, request.add_ons or ())
    due_minor = pricing.apply_discount(quote.subtotal_minor, request.discount_minor)
    rules.require(capacity.refusals_of_seats(departure, quote.seats, seats_held=context.seats_held))
    draft = BookingDraft(
        organization=organization,
        request=request,
        departure=departure,
        quote=quote,
        at=context.at,
        customer_id=context.customer_id or tokens.new_id(),
        is_new_customer=context.customer_id is None,
        source=request.source,
        discount_minor=request.discount_minor,
        has_address=request.has_address,
    )
    booking_id = tokens.new_id()
    redeemed = _redeem(tx, actor, draft, booking_id, request.gift_card_code, due_minor)
    if redeemed:
        draft.gift_card_minor = redeemed.amount_minor
    if request.check_due is not None:
        request.check_due(due_minor - draft.gift_card_minor, departure.currency)
    return _write(tx, actor, draft, booking_id, redeemed)


def create_once(tx: Tx, actor: Actor, request: BookingRequest, once: Once) -> Answer:
    """Create the booking and store its answer for the idempotency key, or replay the stored answer (decisions I1-I7).

    Refusals are not stored: nothing was written, and the key can be used again.

    Raises:
        IdempotencyInProgress: a request with this key is still running.
        IdempotencyKeyReused: the key was used for another request.
        BookingError: as `create`.
    """

    def act() -> Answer:
        return Answer(CREATED, create(tx, actor, request))

    def refuse(error: BookingError) -> Answer:
        raise error

    return idempotency.execute(tx, actor, once, act, refuse)


def _require_free(tx: Tx, reference: Reference) -> None:
    """Lock a reference until the transaction ends, and check that no booking has it."""
    lock = store.references_query([reference], blocking=True)
    if tx.pipeline(lock, store.taken_query([reference]))[1]:
        raise rules.reference_taken()


def _redeem(
    tx: Tx, actor: Actor, draft: BookingDraft, booking_id: str, code: str | None, due_minor: int
) -> Redeemed | None:
    """Redeem a gift card for the amount due. With nothing due the card is not touched."""
    if code is None or not due_minor:
        return None
    return gift_cards.redeem(
        tx,
        actor,
        code=code,
        booking_id=booking_id,
        currency=draft.departure.currency,
        wanted_minor=due_minor,
        customer_id=draft.customer_id,
    )


def _write(tx: Tx, actor: Actor, draft: BookingDraft, booking_id: str, redeemed: Redeemed | None) -> bytes:
    """Lock the counters, the last lock of the transaction, number the booking and its events, and write all rows."""
    organization, at = draft.organization, draft.at
    row = drafts.build_row(draft, booking_id, actor.secret_keys.first_id)
    is_pending = row.status == BookingStatus.PENDING
    event_count = draft.is_new_customer + 1 + bool(redeemed) + (not is_pending)
    number, sequence = events.lock_sequences(tx, {organization.id: (1, event_count)})[organization.id]
    row = row._replace(booking_number=number + 1)
    expiry = {}
    if is_pending:  # it keeps its seats until then (decision B8)
        minutes = organization.pending_minutes
        expiry["expires_at"] = at + (actor.installation.pending_minutes if minutes is None else minutes) * MINUTE
    extra_events = [redeemed.event] if redeemed else []
    drafts.write(tx, draft, row, sequence + 1, extra_events=extra_events, **expiry)
    if is_pending:
        payments.expect(
            tx, organization.id, booking_id=row.id, amount_minor=row.total_minor, currency=row.currency, at=at
        )
    if draft.quote.seats:
        capacity.take_seats(tx, organization.id, draft.departure.id, draft.quote.seats, at=at)
    return presenting.render_for(actor, BookingWithPayment(row, 0, None))
