"""Card payments of bookings: expect, receive and drop a payment, and request a refund.

Each function runs in the transaction of its booking, whose row the caller has locked. No function charges a card or
sends money: the storefront's gateway charges it, and the worker refunds it (see `refunds`).
"""

from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.bookings import REFUNDABLE, PaymentStatus
from booking_core.payments import refunds, rules, store
from booking_core.payments.refund_states import RefundReason, RefundStatus
from booking_core.payments.rules import RefundAmount, RefundRow, RefundTerms, Release
from booking_core.payments.store import PaymentRow
from booking_core.records import timeline
from booking_core.records.timeline import TimelineKind


def expect(tx: Tx, organization_id: str, *, booking_id: str, amount_minor: int, currency: str, at: int) -> None:
    """Insert the pending payment of a card booking, after the booking, in the same transaction."""
    store.insert(tx, organization_id, booking_id, amount_minor, currency, PaymentStatus.PENDING, at)


def receive(
    tx: Tx,
    actor: Actor,
    *,
    booking_id: str,
    payment_intent: str | None,
    customer_id: str | None = None,
) -> None:
    """Record the payment as received. A second call only stores a payment intent that was missing.

    Args:
        payment_intent: the gateway's id of the payment, for a refund; without it the refund is made by hand.
        customer_id: the customer of the timeline entry; None writes none.

    Raises:
        NotFound: the booking expects no payment.
        Conflict: `paid_already`: by another payment. The guest was charged twice, which must not pass in silence.
            Or the payment intent has paid for another booking.
    """
    payment = store.lock(tx, actor, booking_id)
    if payment is None:
        raise NotFound("The booking expects no payment.")
    if payment.is_awaited:
        _receive(tx, actor, payment, booking_id, payment_intent, customer_id)
    else:
        _receive_again(tx, actor, payment, booking_id, payment_intent)


def _receive_again(tx: Tx, actor: Actor, payment: PaymentRow, booking_id: str, payment_intent: str | None) -> None:
    if payment_intent in (None, payment.payment_intent):
        return
    if payment.payment_intent is not None:
        message = f"The booking was paid by {payment.payment_intent}: {payment_intent} has to be returned by hand."
        raise Conflict("paid_already", message)
    _name(tx, actor, payment, booking_id, payment_intent, payment.status)


def return_late(tx: Tx, actor: Actor, *, booking_id: str, payment_intent: str | None, customer_id: str | None) -> bool:
    """Record a payment of a cancelled booking as received, and request a full refund, regardless of the policy.

    Returns:
        Whether the payment was new; a second call changes nothing.

    Raises:
        Conflict: `paid_already`, as `receive`.
    """
    payment = store.lock(tx, actor, booking_id)
    if payment is None:
        return False
    if not payment.is_awaited:
        _receive_again(tx, actor, payment, booking_id, payment_intent)
        return False
    _receive(tx, actor, payment, booking_id, payment_intent, customer_id)
    amount = rules.returnable(payment.amount_minor, payment.currency, payment.amount_minor)
    if amount:
        refund = refunds.new(actor, payment, booking_id, amount, customer_id=customer_id)
        _request(tx, refund, payment.amount_minor - amount)
    return True


def _receive(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    booking_id: str,
    payment_intent: str | None,
    customer_id: str | None,
) -> None:
    _name(tx, actor, payment, booking_id, payment_intent, PaymentStatus.PAID.value)
    timeline.note(
        tx,
        actor.organization.id,
        TimelineKind.PAYMENT_RECEIVED,
        at=actor.at,
        customer_id=customer_id,
        booking_id=booking_id,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
    )


def _name(tx: Tx, actor: Actor, payment: PaymentRow, booking_id: str, payment_intent: str | None, status: str) -> None:
    _check_unused(tx, actor.organization.id, payment_intent, booking_id)
    tx.update(
        tables.payments,
        organization_id=actor.organization.id,
        id=payment.id,
        payment_intent=payment_intent,
        status=status,
        updated_at=max(actor.at, payment.updated_at),
    )


def _check_unused(tx: Tx, organization_id: str, payment_intent: str | None, booking_id: str) -> None:
    if payment_intent is None:
        return
    other = store.other_booking_paid_by(tx, organization_id, payment_intent, booking_id)
    if other is not None:
        message = f"The payment intent {payment_intent} has paid for the booking {other}."
        raise Conflict("paid_already", message, "payment_intent")


def drop(tx: Tx, organization_id: str, *, booking_id: str, at: int) -> None:
    """Mark a pending payment of the booking as failed. A received payment is left as it is."""
    row = {"organization_id": organization_id, "booking_id": booking_id, "at": at}
    tx.insert_from_select(store.DROP, [row])


def refundable(terms: RefundTerms, payment: PaymentRow) -> RefundAmount:
    """Return the refund that a cancellation requests: nothing of a payment that was not received, or that has a
    refund."""
    if payment.has_refund or not (terms.by_hand or payment.status in REFUNDABLE):
        return RefundAmount(0)
    return rules.refund_amount(terms, payment.amount_minor, payment.refunded_minor, payment.currency)


def request_refund(
    tx: Tx, actor: Actor, payment: PaymentRow, terms: RefundTerms, *, booking_id: str, customer_id: str | None
) -> int:
    """Request the refund of a payment, once for a booking.

    Returns:
        The amount in minor units; 0 when nothing was paid, the policy keeps it, or a refund exists.
    """
    amount, kept_minor = refundable(terms, payment)
    if amount:
        refund = refunds.new(actor, payment, booking_id, amount, status=terms.status, customer_id=customer_id)
        _request(tx, refund, kept_minor)
    return amount


def release(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    released: Release,
    *,
    booking_id: str,
    number: int,
    status: PaymentStatus,
    customer_id: str | None,
) -> None:
    """Take money out of a payment that was paid for guests who no longer come, and request its refund.

    Args:
        number: of the refund, from `next_refund_number`.
        status: of the payment from now on.
    """
    tx.update(
        store.RELEASE,
        organization_id=actor.organization.id,
        id=payment.id,
        status=status.value,
        updated_at=max(actor.at, payment.updated_at),
        amount_minor=-released.amount_minor,
        released_minor=released.amount_minor,
    )
    if released.refund_minor:
        amount, refund_status = released.refund_minor, released.refund_status
        refund = refunds.new(
            actor, payment, booking_id, amount, status=refund_status, customer_id=customer_id, number=number
        )
        _request(tx, refund)


def _request(tx: Tx, refund: RefundRow, kept_minor: int = 0) -> None:
    """Insert the refund that the worker sends, or that staff makes by hand, and its timeline entry.

    Args:
        kept_minor: the amount that rounding for the gateway leaves out, for the timeline; negative: the guest gets
            more.
    """
    if refund.status == RefundStatus.NEEDS_REVIEW:
        refunds.insert(tx, refund, reason=RefundReason.PAID_BY_HAND)
        refunds.notify_staff(tx, refund, RefundStatus.NEEDS_REVIEW, RefundReason.PAID_BY_HAND)
    else:
        refunds.insert(tx, refund)
        noted = {"rounded_off_minor": kept_minor} if kept_minor else {}
        refunds.note(tx, refund, TimelineKind.REFUND_REQUESTED, **noted)
