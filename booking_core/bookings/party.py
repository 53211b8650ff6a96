"""Change the party of a booking: fewer guests, more guests, or other tiers and add-ons, in one transaction.

Guests who leave are a cancellation of a part: their seats are free again, and their payment is refunded by the terms of
a cancellation. Guests who join need seats, as for a new booking (decisions/0011).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from booking_core import payments
from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, Conflict
from booking_core.bookings import capacity, changes, pricing, rules, store
from booking_core.bookings.changes import Change, ChangedMoney, LockedBooking
from booking_core.bookings.pricing import PartyQuote
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.bookings.store import BookingWithPayment
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
from booking_core.payments import PaymentRow, RefundTerms, Release, gift_cards
from booking_core.records import outbox
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
    def is_by_hand(self) -> bool:
        """Return whether its money goes back by hand, and not through the gateway."""
        return self.booking.row.payment_source != PaymentSource.STRIPE

    @property
    def received_minor(self) -> int:
        """Return the amount received for the booking that is neither released nor refunded."""
        if self.payment is None or self.payment.status not in _RECEIVED:
            return 0
        return self.payment.amount_minor - self.payment.refunded_minor


@dataclass(frozen=True, slots=True)
class _Plan:
    """A decided change of party."""

    row: BookingRow
    quote: PartyQuote
    release: Release
    money: ChangedMoney


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
    rules.require(_refusals(actor, state))
    plan = _plan(actor, state, party)
    rules.require(_refusals_of_plan(actor, state, plan))
    if not plan.quote.is_same:
        _write(tx, actor, state, plan)
    return changes.render(actor, _change(state, plan))


def preview_party(tx: Tx, actor: Actor, booking_id: str, party: Party) -> bytes:
    """Return the change that `change_party` would make now, with each reason to refuse it. Nothing is locked.

    Raises:
        NotFound: the organization has no such booking.
    """
    booking = changes.read(tx, actor, booking_id)
    departure_and_seats = store.read_departure(tx, actor.organization.id, booking.row.departure_id, at=actor.at)
    assert departure_and_seats is not None
    state = _State(booking, *departure_and_seats, actor.at, payments.get(tx, actor, booking_id))
    refused: list[BookingError] = list(_refusals(actor, state))
    try:
        plan = _plan(actor, state, party)
        refused.extend(_refusals_of_plan(actor, state, plan))
    except BookingError as error:
        refused.append(error)
    if refused:
        return changes.render(actor, Change(booking.as_read, booking.details.seats, None, refused))
    return changes.render(actor, _change(state, plan))


def _lock(tx: Tx, actor: Actor, booking_id: str) -> _State:
    """Lock the booking, its departure and its payment, in the order of all transactions."""
    organization_id, booking = actor.organization.id, changes.lock(tx, actor, booking_id)
    key = (organization_id, booking.row.departure_id)
    departure = store.lock_departures(tx, [key])[key]
    context = store.get_context(tx, organization_id, departure.id)
    return _State(booking, departure, context.seats_held, context.at, payments.lock(tx, actor, booking_id))


# Deciding --------------------------------------------------------------------------------------------------------


def _refusals(actor: Actor, state: _State) -> Iterator[BookingError]:
    """Yield each reason to refuse any change of party, in the order of the refusals."""
    row = state.booking.row
    yield from rules.refusals_of_unconfirmed(row)
    if row.checked_in_at is not None:
        yield Conflict("booking_checked_in", "The guests are checked in: take the check-in back first.")
    elif row.no_show_at is not None:
        yield Conflict("booking_no_show", "The booking is recorded as a no-show: take that back first.")
    yield from capacity.refusals(state.departure, actor.organization, state.at, for_sale=False)[:1]
    if row.payment_status == PaymentStatus.PENDING:
        yield Conflict("payment_pending", "The card is not charged yet, and would be charged for the former party.")


def _refusals_of_plan(actor: Actor, state: _State, plan: _Plan) -> Iterator[BookingError]:
    if plan.quote.has_more_guests:
        yield from capacity.refusals(state.departure, actor.organization, state.at)[:1]
    if not state.is_by_hand and plan.row.total_minor > state.booking.row.total_minor:
        message = "The card was charged for the former party: book the others in another booking."
        yield Conflict("paid_by_card", message)
    joining = plan.quote.seats - state.booking.details.seats
    if joining > 0:
        yield from capacity.refusals_of_seats(state.departure, joining, seats_held=state.seats_held)


def _plan(actor: Actor, state: _State, party: Party) -> _Plan:
    row, seats = state.booking.row, state.booking.details.seats
    quoted = pricing.quote_party(actor.organization, state.departure, row, seats, party.guests, party.add_ons)
    changed = row if quoted.is_same else _changed_row(actor, state, quoted)
    terms = RefundTerms(actor.organization, row.starts_at, actor.at, party.in_full, state.is_by_hand)
    over_minor = max(0, state.received_minor - quoted.total_minor)
    released = payments.release_of(terms, over_minor, row.currency, is_kept=party.refund is RefundMode.NONE)
    return _Plan(changed, quoted, released, _money(state, changed, released))


def _changed_row(actor: Actor, state: _State, quoted: PartyQuote) -> BookingRow:
    row = state.booking.row
    method, source, status = _payment(state, quoted)
    return row._replace(
        updated_at=changes.instant(actor, state.booking),
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

    A booking that was received money for keeps its method, and its status if a part was refunded at the gateway. A
    booking that had nothing to pay, and has now, is paid on site.
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


def _money(state: _State, row: BookingRow, released: Release) -> ChangedMoney:
    before = state.booking.row
    gift_card_refund = before.gift_card_minor - row.gift_card_minor
    price_before, price = (version.subtotal_minor - version.discount_minor for version in (before, row))
    return ChangedMoney(
        settlement=_settlement(before, row, released, gift_card_refund),
        price_difference=price - price_before,
        list_price=pricing.list_price(row, state.departure),
        refund=released.refund_minor,
        gift_card_refund=gift_card_refund,
        kept=released.kept_minor,
        balance_due=rules.unpaid_minor(row, state.received_minor),
    )


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


def _change(state: _State, plan: _Plan) -> Change:
    """Return the booking as it is read after the change, without the money that is released from its payment."""
    booking, released_minor = state.booking.with_row(plan.row), plan.release.amount_minor
    if state.payment is not None:
        amount_minor = state.payment.amount_minor - released_minor
        payment = state.payment._replace(amount_minor=amount_minor, status=plan.row.payment_status)
        recorded_minor = state.booking.details.recorded_minor - (released_minor if state.is_by_hand else 0)
        booking = BookingWithPayment(plan.row, recorded_minor, payment)
    return Change(booking, plan.quote.seats, plan.money)


# Writing ---------------------------------------------------------------------------------------------------------


def _write(tx: Tx, actor: Actor, state: _State, plan: _Plan) -> None:
    """Write the change. All locks and reads come before the first write, but for the counters of the event."""
    organization, booking, row, money = actor.organization, state.booking, plan.row, plan.money
    part, customer_id, at = money.gift_card_refund, booking.details.customer_id, row.updated_at
    redemption = gift_cards.lock_redemption(tx, actor, row.id, part_minor=part) if part > 0 else None
    number = payments.next_refund_number(tx, actor, row.id) if plan.release.refund_minor else 0
    if joining := plan.quote.seats - booking.details.seats:
        capacity.take_seats(tx, organization.id, row.departure_id, joining, at=at)
    _update(tx, actor, state, plan)
    restored = [gift_cards.restore(tx, actor, redemption, customer_id=customer_id)] if redemption else []
    _release(tx, actor, state, plan, number)
    changes.publish(tx, actor, booking.as_read, _change(state, plan).booking, also=restored)
    payload = {"refund_minor": money.refund + part, "currency": row.currency}
    occurrence = tokens.new_id()  # a party may change more than once
    kind = OutboxKind.BOOKING_CHANGE_MAIL
    outbox.enqueue(tx, organization.id, kind, row.id, at=at, payload=payload, occurrence=occurrence)
    changes.note(
        tx,
        actor,
        booking,
        TimelineKind.BOOKING_PARTY_CHANGED,
        at=at,
        seats=plan.quote.seats,
        previous_seats=booking.details.seats,
        price_difference_minor=money.price_difference,
        refund_minor=money.refund,
        kept_minor=money.kept,
        currency=row.currency,
    )


def _update(tx: Tx, actor: Actor, state: _State, plan: _Plan) -> None:
    row = plan.row
    mode = PaymentMode.PAY_ON_SITE if row.payment_method == PaymentMethod.PAY_ON_SITE else PaymentMode.EXTERNAL_PAID
    changes.write(
        tx,
        actor,
        state.booking,
        row,
        seats=plan.quote.seats,
        invoice_due=row.payment_method == PaymentMethod.INVOICE and row.payment_status != PaymentStatus.PAID,
        on_site_fee_minor=pricing.on_site_fee(actor.organization, mode, row.total_minor),
        recorded_minor=_change(state, plan).booking.recorded_minor,
    )


def _release(tx: Tx, actor: Actor, state: _State, plan: _Plan, number: int) -> None:
    """Release the payment of guests who leave."""
    row = plan.row
    if state.payment is not None and (plan.release.amount_minor or state.payment.status != row.payment_status):
        payments.release(
            tx,
            actor,
            state.payment,
            plan.release,
            booking_id=row.id,
            number=number,
            status=PaymentStatus(row.payment_status),
            customer_id=state.booking.details.customer_id,
        )
