"""Change the party of a booking: fewer guests, more guests, or other tiers and add-ons, in one transaction.

Guests who leave are a cancellation of a part: their seats are free again, and what was paid for them is refunded by the
terms of a cancellation. Guests who join need seats, as for a new booking (decisions/0011).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from booking_core import payments
from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, Conflict
from booking_core.bookings import capacity, changes, party_pricing, previews, pricing, queries, rules, store
from booking_core.bookings.party_pricing import PartyQuote
from booking_core.bookings.previews import Change, ChangedMoney, Check
from booking_core.bookings.queries import LockedBooking
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.bookings.store import ShownBooking
from booking_core.db.engine import Tx
from booking_core.models.bookings import (
    AddOnInput,
    ChangeSettlement,
    GuestLineInput,
    PaymentMethod,
    PaymentMode,
    PaymentSource,
    PaymentStatus,
    RefundMode,
)
from booking_core.payments import PaymentRow, Release, gift_cards
from booking_core.payments.gift_cards import Redemption
from booking_core.records import outbox, timeline
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

_RECEIVED = frozenset({PaymentStatus.PAID, PaymentStatus.UNPAID, PaymentStatus.PARTIALLY_REFUNDED})
"""Of payments that may have an amount: a part of one may have been recorded by hand, or refunded at the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A wanted party, with all of its guests."""

    guests: Sequence[GuestLineInput]
    add_ons: Sequence[AddOnInput] | None = None
    """None leaves the add-ons as they are."""
    refund: RefundMode = RefundMode.AUTO
    in_full: bool = False
    """Refund all that was paid for the guests who leave, regardless of the policy."""


@dataclass(frozen=True, slots=True)
class _State:
    """A booking with the rows that its change depends on."""

    booking: LockedBooking
    departure: LockedDeparture
    seats_held: int
    at: int
    payment: PaymentRow | None

    @property
    def received_minor(self) -> int:
        """Return what was received for the booking, and is neither released nor refunded."""
        if self.payment is None or self.payment.status not in _RECEIVED:
            return 0
        return self.payment.amount_minor - self.payment.refunded_minor


@dataclass(frozen=True, slots=True)
class _Plan:
    """A decided change of party."""

    row: BookingRow
    seats: int
    quote: PartyQuote
    release: Release
    change: Change


def change_party(tx: Tx, actor: Actor, booking_id: str, party: Party) -> bytes:
    """Change the party of a booking, and return the change as JSON. The same party leaves the booking unchanged.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled`, `booking_pending`, `booking_checked_in`, `booking_no_show`,
            `departure_cancelled`, `departure_closed`, `departure_started`, `payment_pending` or `paid_by_card`.
        Unprocessable: a tier or add-on that changes is not offered, or the sum exceeds 64 bits.
        InsufficientCapacity: the departure has fewer available seats.
    """
    state = _lock(tx, actor, booking_id)
    previews.require(_checks(actor, state))
    plan = _plan(actor, state, party)
    previews.require(_checks_of_plan(actor, state, plan))
    if plan.row is not state.booking.row:
        _write(tx, actor, state, plan)
    return previews.render(actor, plan.change)


def preview_party(tx: Tx, actor: Actor, booking_id: str, party: Party) -> bytes:
    """Return the change that `change_party` would make now, with each reason to refuse it. Nothing is locked.

    Raises:
        NotFound: the organization has no such booking.
    """
    state = _read(tx, actor, booking_id)
    refused, plan = list(previews.refusals(_checks(actor, state))), None
    try:
        plan = _plan(actor, state, party)
    except BookingError as error:
        refused.append(error)
    if plan is not None:
        refused.extend(previews.refusals(_checks_of_plan(actor, state, plan)))
    if refused or plan is None:
        booking = state.booking
        return previews.render(actor, Change(booking.shown(booking.row), booking.details.seats, None, tuple(refused)))
    return previews.render(actor, plan.change)


# Reading ---------------------------------------------------------------------------------------------------------


def _lock(tx: Tx, actor: Actor, booking_id: str) -> _State:
    """Lock the booking, its departure and its payment, in the order of all transactions."""
    organization_id, booking = actor.organization.id, queries.lock(tx, actor, booking_id)
    key = (organization_id, booking.row.departure_id)
    departure = store.lock_departures(tx, [key])[key]
    context = store.get_context(tx, organization_id, departure.id)
    return _State(booking, departure, context.seats_held, context.at, payments.lock(tx, actor, booking_id))


def _read(tx: Tx, actor: Actor, booking_id: str) -> _State:
    booking = queries.read_unlocked(tx, actor, booking_id)
    found = store.find_target(tx, actor.organization.id, booking.row.departure_id, at=actor.at)
    assert found is not None
    return _State(booking, *found, actor.at, payments.get(tx, actor, booking_id))


# Checks ----------------------------------------------------------------------------------------------------------


def _checks(actor: Actor, state: _State) -> Iterator[Check]:
    """Yield the checks of any change of party, in the order of their refusals."""
    yield partial(rules.require_confirmed, state.booking.row)
    yield partial(_require_not_attended, state.booking.row)
    yield partial(capacity.require_ahead, state.departure, state.at)
    yield partial(_require_settled_card, state)


def _checks_of_plan(actor: Actor, state: _State, plan: _Plan) -> Iterator[Check]:
    if plan.quote.has_more_guests:
        yield partial(capacity.require_bookable, state.departure, actor.organization, state.at)
    yield partial(_require_no_more_by_card, state.booking.row, plan.row)
    joining = plan.seats - state.booking.details.seats
    if joining > 0:
        yield partial(capacity.require_seats, state.departure, joining, seats_held=state.seats_held)


def _require_not_attended(row: BookingRow) -> None:
    if row.checked_in_at is not None:
        raise Conflict("booking_checked_in", "The guests are checked in: take the check-in back first.")
    if row.no_show_at is not None:
        raise Conflict("booking_no_show", "The booking is recorded as a no-show: take that back first.")


def _require_settled_card(state: _State) -> None:
    if state.booking.row.payment_status == PaymentStatus.PENDING:
        raise Conflict("payment_pending", "The card is not charged yet, and would be charged for the former party.")


def _require_no_more_by_card(before: BookingRow, row: BookingRow) -> None:
    if row.payment_source == PaymentSource.STRIPE and row.total_minor > before.total_minor:
        message = "The card was charged for the former party: book the others as a booking of their own."
        raise Conflict("paid_by_card", message)


# Deciding --------------------------------------------------------------------------------------------------------


def _plan(actor: Actor, state: _State, party: Party) -> _Plan:
    booking, row = state.booking, state.booking.row
    quoted = party_pricing.quote(
        actor.organization, state.departure, row, booking.details.seats, party.guests, party.add_ons
    )
    if party_pricing.is_same(row, quoted):
        quoted = _unchanged(booking)
        changed = row
    else:
        changed = _changed_row(actor, state, quoted)
    released = _release(actor, state, quoted, party)
    money = _money(state, changed, quoted, released)
    shown = _shown(state, changed, released)
    return _Plan(changed, quoted.seats, quoted, released, Change(shown, quoted.seats, money))


def _shown(state: _State, row: BookingRow, released: Release) -> ShownBooking:
    """Return the booking as it is read after the change, without the money that is released from its payment."""
    if state.payment is None:
        return state.booking.shown(row)
    is_by_hand = row.payment_source != PaymentSource.STRIPE
    payment = state.payment._replace(
        amount_minor=state.payment.amount_minor - released.amount_minor, status=row.payment_status
    )
    recorded_minor = state.booking.details.recorded_minor - (released.amount_minor if is_by_hand else 0)
    return ShownBooking(row, recorded_minor, payment)


def _unchanged(booking: LockedBooking) -> PartyQuote:
    row = booking.row
    amounts = (row.subtotal_minor, row.discount_minor, row.gift_card_minor)
    return PartyQuote(row.guests, row.add_ons, booking.details.seats, *amounts, has_more_guests=False)


def _changed_row(actor: Actor, state: _State, quoted: PartyQuote) -> BookingRow:
    row = state.booking.row
    method, source, status = _payment(state, quoted)
    return row._replace(
        updated_at=max(actor.at, row.updated_at),  # never back, when the clock steps back
        guests=quoted.guests,
        add_ons=quoted.add_ons,
        subtotal_minor=quoted.subtotal_minor,
        discount_minor=quoted.discount_minor,
        gift_card_minor=quoted.gift_card_minor,
        total_minor=quoted.total_minor,
        payment_method=method,
        payment_source=source,
        payment_status=status,
    )


def _payment(state: _State, quoted: PartyQuote) -> tuple[str, str, str]:
    """Return method, source and status of the payment after the change.

    A booking that was received money for keeps its method, and its status if a part was refunded at the gateway. One
    that had nothing to pay, and has now, is paid on site.
    """
    row, total = state.booking.row, quoted.total_minor
    if state.payment is not None:
        if state.payment.refunded_minor:
            return row.payment_method, row.payment_source, row.payment_status
        status = PaymentStatus.PAID if state.received_minor >= total else PaymentStatus.UNPAID
        return row.payment_method, row.payment_source, status
    if total == 0:
        return pricing.payment(PaymentMode.EXTERNAL_PAID, 0, quoted.gift_card_minor)
    if row.payment_method in (PaymentMethod.FREE, PaymentMethod.GIFT_CARD):
        return pricing.payment(PaymentMode.PAY_ON_SITE, total)
    return row.payment_method, row.payment_source, row.payment_status


def _release(actor: Actor, state: _State, quoted: PartyQuote, party: Party) -> Release:
    """Return what was received beyond the new total, and its refund."""
    row = state.booking.row
    return payments.release_of(
        actor.organization,
        max(0, state.received_minor - quoted.total_minor),
        currency=row.currency,
        starts_at=row.starts_at,
        at=actor.at,
        is_kept=party.refund is RefundMode.NONE,
        in_full=party.in_full,
        by_hand=row.payment_source != PaymentSource.STRIPE,
    )


def _money(state: _State, row: BookingRow, quoted: PartyQuote, released: Release) -> ChangedMoney:
    before = state.booking.row
    gift_card_refund = before.gift_card_minor - quoted.gift_card_minor
    return ChangedMoney(
        settlement=_settlement(before, row, released, gift_card_refund),
        price_difference=_price(row) - _price(before),
        list_price=pricing.list_price(row, state.departure),
        refund=released.refund_minor,
        gift_card_refund=gift_card_refund,
        kept=released.kept_minor,
        balance_due=rules.unpaid_minor(row, state.received_minor),
    )


def _price(row: BookingRow) -> int:
    return row.subtotal_minor - row.discount_minor


def _settlement(before: BookingRow, row: BookingRow, released: Release, gift_card_refund: int) -> ChangeSettlement:
    if before.payment_method == PaymentMethod.EXTERNAL_PAID and row.total_minor != before.total_minor:
        return ChangeSettlement.ELSEWHERE
    if released.refund_minor or gift_card_refund:
        return ChangeSettlement.REFUNDED
    if released.kept_minor:
        return ChangeSettlement.KEPT
    if row.total_minor == before.total_minor:
        return ChangeSettlement.PRICE_KEPT
    return ChangeSettlement.BALANCE_DUE if row.total_minor > before.total_minor else ChangeSettlement.LESS_DUE


# Writing ---------------------------------------------------------------------------------------------------------


def _write(tx: Tx, actor: Actor, state: _State, plan: _Plan) -> None:
    """Write the change. All locks and reads come before the first write, but for the counters of the event."""
    booking, row, before = state.booking, plan.row, state.booking.row
    part = before.gift_card_minor - row.gift_card_minor
    redemption = gift_cards.lock_redemption(tx, actor, row.id, part_minor=part) if part > 0 else None
    number = payments.next_refund_number(tx, actor, row.id) if plan.release.refund_minor else 0
    if plan.seats != booking.details.seats:
        seats = plan.seats - booking.details.seats
        capacity.take_seats(tx, actor.organization.id, row.departure_id, seats, at=row.updated_at)
    _update(tx, actor, state, plan)
    restored = _give_back(tx, actor, state, plan, redemption, number)
    changes.publish(tx, actor, before, row, also=restored)
    _enqueue_mail(tx, actor, plan)
    _add_timeline_entry(tx, actor, booking, plan)


def _update(tx: Tx, actor: Actor, state: _State, plan: _Plan) -> None:
    row, organization = plan.row, actor.organization
    is_by_hand = row.payment_source != PaymentSource.STRIPE
    mode = PaymentMode.PAY_ON_SITE if row.payment_method == PaymentMethod.PAY_ON_SITE else PaymentMode.EXTERNAL_PAID
    tx.update(
        store.CHANGE_PARTY,
        organization_id=organization.id,
        id=row.id,
        guests=row.guests,
        add_ons=row.add_ons,
        seats=plan.seats,
        subtotal_minor=row.subtotal_minor,
        discount_minor=row.discount_minor,
        gift_card_minor=row.gift_card_minor,
        total_minor=row.total_minor,
        payment_method=row.payment_method,
        payment_source=row.payment_source,
        payment_status=row.payment_status,
        invoice_due=row.payment_method == PaymentMethod.INVOICE and row.payment_status != PaymentStatus.PAID,
        on_site_fee_minor=pricing.on_site_fee(organization, mode, row.total_minor),
        updated_at=row.updated_at,
        recorded_minor=-plan.release.amount_minor if is_by_hand else 0,
    )


def _give_back(
    tx: Tx, actor: Actor, state: _State, plan: _Plan, redemption: Redemption | None, number: int
) -> list[NewEvent]:
    """Return the part of the gift card, and release what was received for guests who leave. Return the events."""
    row, customer_id = plan.row, state.booking.details.customer_id
    restored = [gift_cards.restore(tx, actor, redemption, customer_id=customer_id)] if redemption else []
    if state.payment is not None and (plan.release.amount_minor or state.payment.status != row.payment_status):
        payments.release(
            tx,
            actor,
            state.payment,
            plan.release,
            booking_id=row.id,
            number=number,
            status=PaymentStatus(row.payment_status),
            customer_id=customer_id,
            by_hand=row.payment_source != PaymentSource.STRIPE,
        )
    return restored


def _enqueue_mail(tx: Tx, actor: Actor, plan: _Plan) -> None:
    """Enqueue the guest's mail with the amount that goes back. A party may change more than once, so each mail has an
    id of its own."""
    money, kind, row = plan.change.money, OutboxKind.BOOKING_CHANGE_MAIL, plan.row
    assert money is not None
    payload = {"refund_minor": money.refund + money.gift_card_refund, "currency": row.currency}
    at, occurrence = row.updated_at, tokens.new_id()
    outbox.enqueue(tx, actor.organization.id, kind, row.id, at=at, payload=payload, occurrence=occurrence)


def _add_timeline_entry(tx: Tx, actor: Actor, booking: LockedBooking, plan: _Plan) -> None:
    row, money = plan.row, plan.change.money
    assert money is not None
    timeline.note(
        tx,
        actor.organization.id,
        TimelineKind.BOOKING_PARTY_CHANGED,
        at=row.updated_at,
        customer_id=booking.details.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        seats=plan.seats,
        previous_seats=booking.details.seats,
        price_difference_minor=money.price_difference,
        refund_minor=money.refund,
        kept_minor=money.kept,
        currency=row.currency,
    )
