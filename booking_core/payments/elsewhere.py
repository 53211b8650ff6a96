"""Refunds that somebody made at the gateway, outside of this service."""

from enum import StrEnum

from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.models.bookings import PaymentSource, PaymentStatus
from booking_core.payments import refunds, store
from booking_core.payments.rules import LeasedRefund
from booking_core.refund_states import WAITING, RefundReason, RefundStatus
from booking_core.timeline import TimelineKind

UNKNOWN_ID = "unknown"
"""The gateway's id of a refund that was reported without it."""
_OPEN = frozenset({RefundStatus.REQUESTED, RefundStatus.SENDING})
_AWAITED = frozenset({PaymentStatus.PENDING, PaymentStatus.FAILED})


class Elsewhere(StrEnum):
    """The result of comparing the refunds of a payment at the gateway with those that are known here."""

    KNOWN = "known"
    """Nothing was refunded that is not known."""
    RECORDED = "recorded"
    """It was recorded with the payment alone."""
    SETTLED = "settled"
    """It was the refund that waited for a person, which is closed by it."""
    TOO_EARLY = "too_early"
    """The payment is not received here, or a refund of this service is being sent: compare again later."""


def record_elsewhere(
    tx: Tx, actor: Actor, booking_id: str, gateway_minor: int, provider_refund_id: str | None
) -> tuple[Elsewhere, int]:
    """Record what the gateway has refunded of a payment beyond what is known here; the caller has locked the booking.

    A refund that staff settled by hand counts as known, since it may have been made at the gateway's dashboard. So no
    money is counted twice, whatever is reported how often.

    Args:
        gateway_minor: all that the gateway has refunded of the payment.
        provider_refund_id: the gateway's id of the last refund, where it is known.

    Returns:
        The result, and the amount that was recorded with the payment alone.
    """
    payment = store.lock_payment(tx, actor.organization.id, booking_id)
    booking = store.lock_booking(tx, actor.organization.id, booking_id)
    if payment is None or booking is None or booking.payment_source != PaymentSource.STRIPE:
        return Elsewhere.KNOWN, 0
    refund = store.lock_refund_of_booking(tx, actor.organization.id, booking_id) if payment.has_refund else None
    if payment.status in _AWAITED or (refund is not None and refund.status in _OPEN):
        return Elsewhere.TOO_EARLY, 0
    amount = min(gateway_minor, payment.amount_minor) - payment.refunded_minor
    if amount <= 0:
        return Elsewhere.KNOWN, 0
    if refund is not None and refund.status in WAITING and amount >= refund.amount_minor:
        return _settle(tx, refund, amount, provider_refund_id)
    _record(tx, refund or _unrefunded(actor, booking, payment, booking_id), amount, provider_refund_id)
    return Elsewhere.RECORDED, amount


def _settle(tx: Tx, refund: LeasedRefund, amount_minor: int, provider_refund_id: str | None) -> tuple[Elsewhere, int]:
    """Close a refund that waited for a person by as much of the amount, and record the rest."""
    refunds.close_elsewhere(tx, refund, provider_refund_id or refund.provider_refund_id or UNKNOWN_ID)
    refunds.record_returned(tx, refund, refund.amount_minor, reason=RefundReason.REFUNDED_ELSEWHERE)
    rest = amount_minor - refund.amount_minor
    if rest:
        _record(tx, refund._replace(refunded_minor=refund.refunded_minor + refund.amount_minor), rest, None)
    return Elsewhere.SETTLED, rest


def _record(tx: Tx, refund: LeasedRefund, amount_minor: int, provider_refund_id: str | None) -> None:
    noted = {"provider_refund_id": provider_refund_id} if provider_refund_id else {}
    refunds.record_returned(tx, refund, amount_minor, kind=TimelineKind.PAYMENT_RETURNED, **noted)


def _unrefunded(
    actor: Actor, booking: store.BookingForRefund, payment: store.PaymentRow, booking_id: str
) -> LeasedRefund:
    """Return the payment and the booking in the form of a refund, of which there is none."""
    return LeasedRefund(
        organization_id=actor.organization.id,
        id=booking_id,
        booking_id=booking_id,
        payment_id=payment.id,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        attempt_count=0,
        provider_refund_id=None,
        paid_minor=payment.amount_minor,
        refunded_minor=payment.refunded_minor,
        customer_id=booking.customer_id,
        booking_updated_at=booking.updated_at,
        at=actor.at,
        first_sent_at=None,
        reopened_count=0,
        status=RefundStatus.SUCCEEDED,
        last_error=None,
        lease_token=None,
        payment_intent=payment.payment_intent,
        payment_source=booking.payment_source,
        payment_status=payment.status,
    )
