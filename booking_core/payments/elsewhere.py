"""Refunds that somebody made at the gateway, outside of this service."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.models.bookings import PaymentSource, PaymentStatus
from booking_core.payments import refunds, rules, store
from booking_core.payments.rules import LeasedRefund, Returned
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


@dataclass(frozen=True, slots=True)
class Compared:
    """The result, and the money that was recorded by it."""

    result: Elsewhere
    recorded_minor: int = 0
    """The amount that was recorded with the payment alone."""
    returned: Sequence[Returned] = ()


def record_elsewhere(
    tx: Tx, actor: Actor, booking_id: str, gateway_minor: int, provider_refund_id: str | None
) -> Compared:
    """Record what the gateway has refunded of a payment beyond what is known here; the caller has locked the booking.

    A refund that staff settled by hand counts as known, since it may have been made at the gateway's dashboard, and so
    does what a change of party has released. So no money is counted twice, whatever is reported how often.

    Args:
        gateway_minor: all that the gateway has refunded of the payment.
        provider_refund_id: the gateway's id of the last refund, where it is known.
    """
    payment = store.lock_payment(tx, actor.organization.id, booking_id)
    booking = store.lock_booking(tx, actor.organization.id, booking_id)
    if payment is None or booking is None or booking.payment_source != PaymentSource.STRIPE:
        return Compared(Elsewhere.KNOWN)
    made = store.lock_refunds_of_booking(tx, actor.organization.id, booking_id)
    if payment.status in _AWAITED or any(refund.status in _OPEN for refund in made):
        return Compared(Elsewhere.TOO_EARLY)
    amount = min(gateway_minor - payment.released_minor, payment.amount_minor) - payment.refunded_minor
    if amount <= 0:
        return Compared(Elsewhere.KNOWN)
    refund = next((each for each in made if each.number == rules.CANCELLATION), None)
    if refund is not None and refund.status in WAITING and amount >= refund.amount_minor:
        return _settle(tx, refund, amount, provider_refund_id)
    returned = _record(tx, refund or _unrefunded(actor, booking, payment, booking_id), amount, provider_refund_id)
    return Compared(Elsewhere.RECORDED, amount, [returned])


def _settle(tx: Tx, refund: LeasedRefund, amount_minor: int, provider_refund_id: str | None) -> Compared:
    """Close a refund that waited for a person by as much of the amount, and record the rest."""
    refunds.close_elsewhere(tx, refund, provider_refund_id or refund.provider_refund_id or UNKNOWN_ID)
    returned = refunds.record_returned(tx, refund, refund.amount_minor, reason=RefundReason.REFUNDED_ELSEWHERE)
    rest = amount_minor - refund.amount_minor
    if not rest:
        return Compared(Elsewhere.SETTLED, 0, [returned])
    following = refund._replace(
        refunded_minor=refund.refunded_minor + refund.amount_minor, payment_status=returned.payment_status
    )
    return Compared(Elsewhere.SETTLED, rest, [returned, _record(tx, following, rest, None)])


def _record(tx: Tx, refund: LeasedRefund, amount_minor: int, provider_refund_id: str | None) -> Returned:
    noted = {"provider_refund_id": provider_refund_id} if provider_refund_id else {}
    return refunds.record_returned(tx, refund, amount_minor, kind=TimelineKind.PAYMENT_RETURNED, **noted)


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
        parts_returned_minor=payment.released_minor,
    )
