"""Payments and refunds that people make: by hand, or at the gateway outside of this service.

A refund is locked together with its booking and its payment, in the same order as by the worker. So staff and worker
never both act on one refund.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, Malformed, NotFound, Unprocessable
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.base import multi_line, single_line
from booking_core.models.bookings import BookingStatus, PaymentSource, PaymentStatus
from booking_core.models.limits import AMOUNT_MINOR_MAX
from booking_core.models.money import formatted
from booking_core.models.reasons import Fault
from booking_core.payments import recorded_payments, refund_list, refunds, rules, store
from booking_core.payments.recorded_payments import Record
from booking_core.payments.refund_list import Refund
from booking_core.payments.refund_states import WAITING, RefundReason, RefundStatus
from booking_core.payments.rules import RefundRow, Returned
from booking_core.payments.store import BookingForRefund, PaymentRow
from booking_core.records import timeline
from booking_core.records.timeline import TimelineKind

METHOD_LENGTH_MAX = 50
NOTE_LENGTH_MAX = 500

# Payments --------------------------------------------------------------------------------------------------------


def record(
    tx: Tx,
    actor: Actor,
    *,
    booking_id: str,
    currency: str,
    total_minor: int,
    amount_minor: int,
    customer_id: str | None,
    method: str | None = None,
    note: str | None = None,
    received_at: int | None = None,
) -> PaymentStatus:
    """Record a payment that was made by hand for a booking whose row the caller has locked.

    Returns:
        The payment's status from now on: paid once the records come to the total, unpaid before.

    Raises:
        Malformed: the amount is not above zero, or a text is too long or not printable.
        Unprocessable: `overpaid`: the amount exceeds the rest of the price; `in_the_future`.
    """
    method, note = _text("method", method, METHOD_LENGTH_MAX), _text("note", note, NOTE_LENGTH_MAX)
    received_at = _received_at(actor, received_at)
    payment = store.lock(tx, actor, booking_id)
    paid = payment.amount_minor if payment else 0
    _check_amount(amount_minor, total_minor - paid, currency)
    status = PaymentStatus.PAID if paid + amount_minor == total_minor else PaymentStatus.UNPAID
    if payment is None:  # it is made with its first record
        payment_id = store.insert(tx, actor.organization.id, booking_id, amount_minor, currency, status, actor.at)
    else:
        payment_id = payment.id
        _adjust(tx, actor, payment, amount_minor, status)
    record_id = tokens.new_id()
    details = {"amount_minor": amount_minor, "currency": currency, "method": method, "note": note}
    owner = {"organization_id": actor.organization.id, "booking_id": booking_id, "payment_id": payment_id}
    times = {"received_at": received_at, "created_at": actor.at}
    tx.insert(tables.payment_records, id=record_id, **owner, **details, **times)
    _note(tx, actor, TimelineKind.PAYMENT_RECORDED, booking_id, customer_id, **details, record_id=record_id)
    return status


def _received_at(actor: Actor, received_at: int | None) -> int:
    if received_at is not None and received_at > actor.at:
        raise Unprocessable.at("received_at", "A payment cannot be received in the future.", "in_the_future")
    return actor.at if received_at is None else received_at


def _check_amount(amount_minor: int, left_minor: int, currency: str) -> None:
    if not 0 < amount_minor <= AMOUNT_MINOR_MAX:
        raise Malformed.at("amount", "must be more than zero", "out_of_range")
    if amount_minor > left_minor:
        message = f"{formatted(amount_minor, currency)} is more than the {formatted(left_minor, currency)} left to pay."
        raise Unprocessable.at("amount", message, "overpaid")


def _adjust(tx: Tx, actor: Actor, payment: PaymentRow, amount_minor: int, status: PaymentStatus) -> None:
    tx.update(
        store.ADJUST,
        organization_id=actor.organization.id,
        id=payment.id,
        status=status.value,
        updated_at=max(actor.at, payment.updated_at),
        amount_minor=amount_minor,
    )


def void(tx: Tx, actor: Actor, recorded: Record, *, customer_id: str | None, note: str | None = None) -> PaymentStatus:
    """Void a record that was a mistake, of a booking whose row the caller has locked.

    Returns:
        The payment's status from now on: unpaid, since a rest of the price is unpaid.

    Raises:
        Conflict: `payment_voided` before; `refund_exists`: the money of the booking was returned, or is to be returned.
        Malformed: the note is too long or not printable.
    """
    note = _text("note", note, NOTE_LENGTH_MAX)
    payment = store.lock(tx, actor, recorded.booking_id)
    current = recorded_payments.get_record(
        tx, actor.organization.id, recorded.id
    )  # read again under the lock of the payment
    if payment is None or current is None or current.voided_at is not None:
        raise Conflict("payment_voided", "The payment was voided before.")
    if payment.has_refund or payment.released_minor:
        raise Conflict("refund_exists", "The booking has a refund, so its payments cannot be voided any more.")
    _adjust(tx, actor, payment, -recorded.amount_minor, PaymentStatus.UNPAID)
    key = {"organization_id": actor.organization.id, "id": recorded.id}
    tx.update(tables.payment_records, **key, voided_at=actor.at, voided_note=note)
    noted = {
        "amount_minor": recorded.amount_minor,
        "currency": recorded.currency,
        "record_id": recorded.id,
        "note": note,
    }
    _note(tx, actor, TimelineKind.PAYMENT_VOIDED, recorded.booking_id, customer_id, **noted)
    return PaymentStatus.UNPAID


# Refunds ---------------------------------------------------------------------------------------------------------


def settle_refund(tx: Tx, actor: Actor, refund_id: str, *, note: str, amount_minor: int | None = None) -> Returned:
    """Close a refund by hand: staff has returned the money in another way, and says how. `bookings.settle_refund`
    publishes it.

    Args:
        amount_minor: the returned amount; by default the whole refund. It may be any amount up to the rest of the
            payment. With 0 the refund is closed and nothing was returned.

    Raises:
        NotFound: the organization has no such refund.
        Conflict: `refund_under_way`: the gateway may be returning the money; `refund_settled` before.
        Malformed: there is no note, or the amount is below zero.
        Unprocessable: `more_than_paid`.
    """
    note = _required("note", note, NOTE_LENGTH_MAX)
    refund = _lock(tx, actor, refund_id)
    never_sent = refund.status == RefundStatus.REQUESTED and not refund.attempt_count
    if refund.status not in WAITING and not never_sent:
        raise _not_waiting(refund)
    amount = refund.amount_minor if amount_minor is None else amount_minor
    _check_refundable(amount, refund.left_minor, refund.currency)
    tx.update(
        tables.refunds,
        organization_id=actor.organization.id,
        id=refund.id,
        status=RefundStatus.SETTLED.value,
        next_attempt_at=None,
        settled_minor=amount,
        settled_note=note,
        settled_at=refund.at,
        updated_at=refund.at,
    )
    return refunds.record_returned(tx, refund, amount, by_hand=True, note=note)


def reopen_refund(tx: Tx, actor: Actor, refund_id: str) -> Refund:
    """Have the worker send a refund once more that failed or needs a review.

    The money cannot go back twice: a refund that the gateway has accepted is only read again; for any other that was
    sent the worker looks at every refund of the payment before it asks for one, under a new idempotency key.

    Raises:
        NotFound: the organization has no such refund.
        Conflict: `refund_under_way`; `refund_settled`; `paid_by_hand` or `no_payment_intent`: the gateway has no such
            payment.
    """
    refund = _lock(tx, actor, refund_id)
    if refund.status not in WAITING:
        raise _not_waiting(refund)
    if refund.payment_source != PaymentSource.STRIPE:
        message = "The payment was taken by hand: return it by hand, and settle the refund."
        raise Conflict("paid_by_hand", message)
    if refund.payment_intent is None:
        message = "The payment has no payment intent, so the gateway cannot return it. `storefront pay` can name it."
        raise Conflict("no_payment_intent", message)
    tx.update(tables.refunds, organization_id=actor.organization.id, id=refund.id, **_reopened(refund))
    refunds.note(tx, refund, TimelineKind.REFUND_REOPENED)
    return refund_list.get_refund(tx, actor.organization, refund.id)


def _reopened(refund: RefundRow) -> dict[str, Any]:
    is_failed = refund.status == RefundStatus.FAILED
    sendable = rules.returnable(refund.amount_minor, refund.currency, refund.left_minor) or refund.amount_minor
    return {
        "status": RefundStatus.REQUESTED.value,
        # An older release may have left an amount that the gateway refuses.
        "amount_minor": sendable,
        # A refund that the gateway has refused is not read again. A refund that it has accepted is read again.
        "provider_refund_id": None if is_failed else refund.provider_refund_id,
        "attempt_count": 0,
        "next_attempt_at": refund.at,
        "last_error": None,
        "reopened_count": refund.reopened_count + 1,
        "updated_at": refund.at,
    }


def record_refund(tx: Tx, actor: Actor, booking_id: str, *, amount_minor: int, note: str) -> Returned:
    """Record money that was returned by hand without a refund: the policy kept it, or staff did.
    `bookings.record_refund` publishes it.

    Only of a cancelled booking whose payment is known here, and once for a booking.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_not_cancelled`; `refund_exists`: settle that one; `nothing_received`: no payment of the
            booking is known here.
        Malformed: there is no note, or the amount is not above zero.
        Unprocessable: `more_than_paid`.
    """
    note = _required("note", note, NOTE_LENGTH_MAX)
    booking, payment = _lock_without_refund(tx, actor, booking_id)
    if amount_minor <= 0:
        raise Malformed.at("amount", "must be more than zero", "out_of_range")
    _check_refundable(amount_minor, payment.amount_minor - payment.refunded_minor, payment.currency)
    parts = store.lock_refunds_of_booking(tx, actor, booking_id) if payment.released_minor else []
    returned_minor = parts[0].parts_returned_minor if parts else 0
    refund = _unrequested(actor, booking, payment, booking_id, amount_minor, RefundStatus.SETTLED, returned_minor)
    refunds.insert(tx, refund, settled_minor=amount_minor, settled_note=note, settled_at=actor.at)
    return refunds.record_returned(tx, refund, amount_minor, by_hand=True, note=note)


def _lock_without_refund(tx: Tx, actor: Actor, booking_id: str) -> tuple[BookingForRefund, PaymentRow]:
    """Lock a cancelled booking without a refund, and its received payment."""
    booking = store.lock_booking(tx, actor, booking_id)
    if booking is None:
        raise NotFound.of("booking")
    if booking.booking_status != BookingStatus.CANCELLED:
        raise Conflict("booking_not_cancelled", "The booking is not cancelled, so nothing of it is refunded.")
    payment = store.lock(tx, actor, booking_id)
    if payment is None or not payment.amount_minor or payment.is_awaited:
        raise Conflict("nothing_received", "No payment of the booking is known here, so none of it was returned.")
    if payment.has_refund:
        raise Conflict("refund_exists", "The booking has a refund: settle that one.")
    return booking, payment


def _unrequested(
    actor: Actor,
    booking: BookingForRefund,
    payment: PaymentRow,
    booking_id: str,
    amount_minor: int,
    status: RefundStatus,
    parts_returned_minor: int,
) -> RefundRow:
    """Return a refund that nothing had requested, with the columns of its locked payment and booking."""
    refund = refunds.new(actor, payment, booking_id, amount_minor, status=status, customer_id=booking.customer_id)
    return refund._replace(
        payment_source=booking.payment_source,
        booking_updated_at=booking.updated_at,
        parts_returned_minor=parts_returned_minor,
    )


def _lock(tx: Tx, actor: Actor, refund_id: str) -> RefundRow:
    refund = store.lock_refund(tx, actor, refund_id)
    if refund is None:
        raise NotFound.of("refund")
    return refund


def _not_waiting(refund: RefundRow) -> Conflict:
    if refund.status in (RefundStatus.SUCCEEDED, RefundStatus.SETTLED):
        how = "by hand" if refund.status == RefundStatus.SETTLED else "by the gateway"
        return Conflict("refund_settled", f"The refund was settled {how} already.")
    message = "The worker is sending the refund, so the gateway may be returning the money. Wait for its answer."
    return Conflict("refund_under_way", message)


def _check_refundable(amount_minor: int, left_minor: int, currency: str) -> None:
    if amount_minor < 0:
        raise Malformed.at("amount", "must not be below zero", "out_of_range")
    if amount_minor > left_minor:
        amount = formatted(left_minor, currency)
        raise Unprocessable.at("amount", f"Only {amount} of the payment can be returned.", "more_than_paid")


# Refunds at the gateway ------------------------------------------------------------------------------------------

UNKNOWN_ID = "unknown"
"""The gateway's id of a refund that was reported without it."""
_OPEN = frozenset({RefundStatus.REQUESTED, RefundStatus.SENDING})


class Recorded(NamedTuple):
    """The refunds at the gateway that were recorded."""

    amount_minor: int = 0
    """The amount that was recorded with the payment alone."""
    returned: tuple[Returned, ...] = ()
    """The refunds that waited for a person and are closed by it, then the amount alone."""
    is_early: bool = False
    """The payment is not received here, or a refund of this service is being sent: compare again later."""


def record_elsewhere(
    tx: Tx, actor: Actor, booking_id: str, gateway_minor: int, provider_refund_id: str | None
) -> Recorded:
    """Record refunds of a payment at the gateway that are not known here. The caller has locked the booking.

    A refund that staff settled by hand counts as known, since it may have been made at the gateway's dashboard. So no
    money is counted twice, however often it is reported. `bookings.record_elsewhere` publishes it.

    Args:
        gateway_minor: all that the gateway has refunded of the payment.
        provider_refund_id: the gateway's id of the last refund, where it is known.
    """
    payment = store.lock(tx, actor, booking_id)
    booking = store.lock_booking(tx, actor, booking_id)
    if payment is None or booking is None or booking.payment_source != PaymentSource.STRIPE:
        return Recorded()
    has_refunds = payment.has_refund or payment.released_minor
    refund_rows = store.lock_refunds_of_booking(tx, actor, booking_id) if has_refunds else []
    if payment.is_awaited or any(refund.status in _OPEN for refund in refund_rows):
        return Recorded(is_early=True)
    parts = refund_rows[0].parts_returned_minor if refund_rows else 0
    unknown = gateway_minor - parts - payment.refunded_minor
    state = _unrequested(actor, booking, payment, booking_id, payment.amount_minor, RefundStatus.SUCCEEDED, parts)
    settled, state = _close_waiting(tx, refund_rows, state, unknown, provider_refund_id)
    unrecorded = min(unknown - sum(item.amount_minor for item in settled), state.paid_minor - state.refunded_minor)
    if unrecorded <= 0:
        return Recorded(returned=settled)
    noted = {"provider_refund_id": provider_refund_id} if provider_refund_id and not settled else {}
    recorded = refunds.record_returned(tx, state, unrecorded, kind=TimelineKind.PAYMENT_RETURNED, **noted)
    return Recorded(unrecorded, (*settled, recorded))


def _close_waiting(
    tx: Tx, refund_rows: Iterable[RefundRow], state: RefundRow, amount_minor: int, provider_refund_id: str | None
) -> tuple[tuple[Returned, ...], RefundRow]:
    """Close the refunds that waited for a person and that the amount suffices for; return the state after them."""
    settled: list[Returned] = []
    for refund in refund_rows:
        if refund.status not in WAITING or refund.amount_minor > amount_minor:
            continue
        amount, amount_minor = refund.amount_minor, amount_minor - refund.amount_minor
        refunded, parts = state.refunded_minor, state.parts_returned_minor
        gateway_id = provider_refund_id or refund.provider_refund_id or UNKNOWN_ID
        refunds.close(tx, refund, RefundStatus.SUCCEEDED, gateway_id, RefundReason.REFUNDED_ELSEWHERE)
        refund = refund._replace(refunded_minor=refunded, parts_returned_minor=parts)
        settled.append(refunds.record_returned(tx, refund, amount, reason=RefundReason.REFUNDED_ELSEWHERE))
        if refund.number == rules.CANCELLATION:
            state = state._replace(refunded_minor=refunded + amount, payment_status=settled[-1].payment_status)
        else:
            state = state._replace(parts_returned_minor=parts + amount)
    return tuple(settled), state


# Texts -----------------------------------------------------------------------------------------------------------


def _text(name: str, text: str | None, length_max: int) -> str | None:
    """Return the text without the blanks around it; none when nothing is left."""
    text = (text or "").strip()
    try:
        (multi_line if name == "note" else single_line)(text)
    except Fault as error:
        raise Malformed.at(name, str(error), error.reason) from None
    if len(text) > length_max:
        raise Malformed.at(name, f"must have at most {length_max} characters", "too_long")
    return text or None


def _required(name: str, text: str, length_max: int) -> str:
    checked = _text(name, text, length_max)
    if checked is None:
        raise Malformed.at(name, "says how and when the money was returned, and is needed", "required")
    return checked


def _note(tx: Tx, actor: Actor, kind: TimelineKind, booking_id: str, customer_id: str | None, **data: object) -> None:
    timeline.note(tx, actor.organization.id, kind, at=actor.at, customer_id=customer_id, booking_id=booking_id, **data)
