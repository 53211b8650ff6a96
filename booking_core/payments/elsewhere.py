"""Refunds that somebody made at the gateway, outside of this service."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from booking_core.base.context import Actor
from booking_core.db.engine import Tx
from booking_core.models.bookings import PaymentSource, PaymentStatus
from booking_core.payments import refunds, store
from booking_core.payments.refund_states import WAITING, RefundReason, RefundStatus
from booking_core.payments.rules import CANCELLATION, LeasedRefund, Returned
from booking_core.records.timeline import TimelineKind

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


class Recorded(NamedTuple):
    """The refunds at the gateway that were recorded."""

    result: Elsewhere
    amount_minor: int = 0
    """The amount that was recorded with the payment alone."""
    returned: tuple[Returned, ...] = ()


def record_elsewhere(
    tx: Tx, actor: Actor, booking_id: str, gateway_minor: int, provider_refund_id: str | None
) -> Recorded:
    """Record what the gateway has refunded of a payment beyond what is known here; the caller has locked the booking.

    A refund that staff settled by hand counts as known, since it may have been made at the gateway's dashboard. So no
    money is counted twice, whatever is reported how often. `bookings.record_elsewhere` publishes it.

    Args:
        gateway_minor: all that the gateway has refunded of the payment.
        provider_refund_id: the gateway's id of the last refund, where it is known.
    """
    payment = store.lock_payment(tx, actor.organization.id, booking_id)
    booking = store.lock_booking(tx, actor.organization.id, booking_id)
    if payment is None or booking is None or booking.payment_source != PaymentSource.STRIPE:
        return Recorded(Elsewhere.KNOWN)
    has_refunds = payment.has_refund or payment.released_minor
    found = store.lock_refunds_of_booking(tx, actor.organization.id, booking_id) if has_refunds else []
    if payment.status in _AWAITED or any(each.status in _OPEN for each in found):
        return Recorded(Elsewhere.TOO_EARLY)
    parts = found[0].parts_returned_minor if found else 0
    unknown = gateway_minor - parts - payment.refunded_minor
    state = refunds.unrequested(
        actor,
        booking,
        payment,
        booking_id,
        payment.amount_minor,
        refund_id=booking_id,
        status=RefundStatus.SUCCEEDED,
        parts_returned_minor=parts,
    )
    settled, state = _settle(tx, found, state, unknown, provider_refund_id)
    rest = min(unknown - sum(each.amount_minor for each in settled), state.paid_minor - state.refunded_minor)
    if rest <= 0:
        return Recorded(Elsewhere.SETTLED if settled else Elsewhere.KNOWN, returned=settled)
    noted = {"provider_refund_id": provider_refund_id} if provider_refund_id and not settled else {}
    recorded = refunds.record_returned(tx, state, rest, kind=TimelineKind.PAYMENT_RETURNED, **noted)
    return Recorded(Elsewhere.SETTLED if settled else Elsewhere.RECORDED, rest, (*settled, recorded))


def _settle(
    tx: Tx, found: Iterable[LeasedRefund], state: LeasedRefund, amount_minor: int, provider_refund_id: str | None
) -> tuple[tuple[Returned, ...], LeasedRefund]:
    """Close the refunds that waited for a person and that the amount suffices for; return the state after them."""
    settled: list[Returned] = []
    for refund in found:
        if refund.status not in WAITING or refund.amount_minor > amount_minor:
            continue
        amount, amount_minor = refund.amount_minor, amount_minor - refund.amount_minor
        refunded, parts = state.refunded_minor, state.parts_returned_minor
        refunds.close_elsewhere(tx, refund, provider_refund_id or refund.provider_refund_id or UNKNOWN_ID)
        refund = refund._replace(refunded_minor=refunded, parts_returned_minor=parts)
        settled.append(refunds.record_returned(tx, refund, amount, reason=RefundReason.REFUNDED_ELSEWHERE))
        if refund.number == CANCELLATION:
            state = state._replace(refunded_minor=refunded + amount, payment_status=settled[-1].payment_status)
        else:
            state = state._replace(parts_returned_minor=parts + amount)
    return tuple(settled), state
