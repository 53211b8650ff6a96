"""Claims due refunds for a worker, and settles the results of the gateway.

`claim` leases refunds in a short transaction, the worker calls the gateway while no transaction is open, and `settle`
records the results. A worker that dies leaves a lease that expires. The refund is then sent again with the same
idempotency key, and the gateway makes it once.

requested -> sending -> succeeded | failed | needs_review. A cancellation has one refund
row, and so has each change of party that refunds. Staff reopens or settles a
refund that failed or needs a review (see `by_hand`).
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.due_work.rows import Processed
from booking_core.payments import rules, store
from booking_core.payments.refund_states import RefundReason, RefundState, RefundStatus
from booking_core.payments.rules import ClaimedRefund, RefundOutcome, RefundResult, RefundRow, Returned, Settled
from booking_core.payments.store import PaymentRow
from booking_core.records import outbox, timeline
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

log = logging.getLogger("booking.refunds")

DUE = store.DUE

# Claiming --------------------------------------------------------------------------------------------------------

_CLAIMED = tuple(field.name for field in fields(ClaimedRefund))


def claim(
    tx: Tx, organization_id: str, refund_ids: Sequence[str], *, lease_s: float, has_gateway: bool = True
) -> Processed[ClaimedRefund]:
    """Lease the due ones among the refunds. A refund that no gateway can make is referred to staff instead.

    Args:
        has_gateway: False refers the refunds of live organizations to staff. A sandbox has the test gateway.
    """
    token, rows = tokens.new_id(), store.due(tx, organization_id, refund_ids)
    claimed: list[ClaimedRefund] = []
    for due in rows:
        if due.clock_offset is None and not has_gateway:
            _refer(tx, due, RefundReason.NO_GATEWAY)
        elif due.payment_intent is None:
            _refer(tx, due, RefundReason.NO_PAYMENT_INTENT)
        elif due.attempt_count >= rules.ATTEMPTS_MAX:
            _refer(tx, due, RefundReason.NEVER_SETTLED)
        else:
            claimed.append(_lease(tx, due, token, due.at + round(lease_s * SECOND)))
    return Processed([due.id for due in rows], results=claimed)


def _lease(tx: Tx, due: RefundRow, token: str, until: int) -> ClaimedRefund:
    first_sent_at = due.at if due.first_sent_at is None else due.first_sent_at
    leased = {"attempt_count": due.attempt_count + 1, "first_sent_at": first_sent_at, "lease_token": token}
    tx.update(
        tables.refunds,
        organization_id=due.organization_id,
        id=due.id,
        status=RefundStatus.SENDING.value,
        next_attempt_at=until,  # it becomes due again when the lease expires
        lease_until=until,
        updated_at=due.at,
        **leased,
    )
    columns = due._asdict() | leased
    return ClaimedRefund(**{name: columns[name] for name in _CLAIMED})


def _refer(tx: Tx, refund: RefundRow, reason: str) -> None:
    close(tx, refund, RefundStatus.NEEDS_REVIEW, refund.provider_refund_id, reason)
    notify_staff(tx, refund, RefundStatus.NEEDS_REVIEW, reason)


# Settling --------------------------------------------------------------------------------------------------------


def settle(
    tx: Tx,
    results: Sequence[RefundResult],
    *,
    first_delay_s: float = rules.FIRST_RETRY_DELAY_S,
    jitter: Callable[[], float] = random.random,
) -> Settled:
    """Record the results of the gateway with one statement. `bookings.settle_refunds` publishes the returned money.

    A result changes its refund only while its lease is the refund's last.

    Args:
        first_delay_s: seconds until the second attempt; each later delay is twice as long.
        jitter: returns 0 to 1, the share of the longest jitter, which is a quarter of the delay.
    """
    leases = ((result.claimed.organization_id, result.claimed.id, result.claimed.lease_token) for result in results)
    locked = store.lock_leased(tx, leases)
    returned = []
    for result in results:
        refund = locked.get((result.claimed.organization_id, result.claimed.id))
        if refund is not None:
            refund = refund._replace(at=refund.at + result.claimed.ahead)
            delay_s = rules.retry_delay_s(refund.attempt_count, jitter(), first_delay_s)
            returned += _settle(tx, refund, result, delay_s)
    return Settled(len(locked), returned)


_STATUS_FOR_STAFF = {RefundOutcome.REFUSED: RefundStatus.FAILED, RefundOutcome.UNCLEAR: RefundStatus.NEEDS_REVIEW}


def _settle(tx: Tx, refund: RefundRow, result: RefundResult, delay_s: float) -> list[Returned]:
    """Record one result, and return the money that it returned, if any."""
    provider_refund_id = result.provider_refund_id or refund.provider_refund_id
    if result.outcome is RefundOutcome.REFUNDED:
        close(tx, refund, RefundStatus.SUCCEEDED, provider_refund_id, result.reason)
        return [record_returned(tx, refund, min(refund.amount_minor, refund.left_minor))]
    if result.outcome in _STATUS_FOR_STAFF:
        status, reason = _STATUS_FOR_STAFF[result.outcome], result.reason or result.outcome
        close(tx, refund, status, provider_refund_id, reason)
        notify_staff(tx, refund, status, reason)
    else:
        _retry_later(tx, refund, result, provider_refund_id, delay_s)
    return []


def close(tx: Tx, refund: RefundRow, status: RefundStatus, provider_refund_id: str | None, reason: str | None) -> None:
    """End the attempts of a refund with that status."""
    state = {"status": status.value, "next_attempt_at": None, "last_error": reason}
    _change(tx, refund, provider_refund_id, **state)


def _retry_later(
    tx: Tx, refund: RefundRow, result: RefundResult, provider_refund_id: str | None, delay_s: float
) -> None:
    if result.outcome is RefundOutcome.ACCEPTED:
        delay_s = rules.ACCEPTED_RECHECK_S
    else:
        log.warning("refund %s is not settled yet (%s), attempt %d", refund.id, result.reason, refund.attempt_count)
    due_at = refund.at + round(delay_s * SECOND)
    state = {"status": RefundStatus.SENDING.value, "next_attempt_at": due_at, "last_error": result.reason}
    _change(tx, refund, provider_refund_id, **state)


def _change(tx: Tx, refund: RefundRow, provider_refund_id: str | None, **columns: Any) -> None:
    tx.update(
        tables.refunds,
        organization_id=refund.organization_id,
        id=refund.id,
        provider_refund_id=provider_refund_id,
        **columns,
        lease_token=None,
        lease_until=None,
        updated_at=refund.at,
    )


# Requesting ------------------------------------------------------------------------------------------------------


def new(
    actor: Actor,
    payment: PaymentRow,
    booking_id: str,
    amount_minor: int,
    *,
    status: RefundStatus = RefundStatus.REQUESTED,
    customer_id: str | None,
    number: int = rules.CANCELLATION,
) -> RefundRow:
    """Return a refund of a locked payment that is not stored yet. The payment's booking is not read for it."""
    return RefundRow(
        organization_id=actor.organization.id,
        id=tokens.new_id(),
        booking_id=booking_id,
        payment_id=payment.id,
        amount_minor=amount_minor,
        currency=payment.currency,
        status=status.value,
        paid_minor=payment.amount_minor,
        refunded_minor=payment.refunded_minor,
        payment_intent=payment.payment_intent,
        payment_status=payment.status,
        customer_id=customer_id,
        at=actor.at,
        number=number,
    )


def payment_before(refund: RefundRow) -> PaymentRow:
    """Return the payment as it was before the money of a refund that no cancellation requested was returned."""
    return PaymentRow(
        id=refund.payment_id,
        amount_minor=refund.paid_minor,
        refunded_minor=refund.refunded_minor,
        currency=refund.currency,
        status=refund.payment_status,
        updated_at=refund.at,
        payment_intent=refund.payment_intent,
        released_minor=0,
        has_refund=False,
    )


def insert(tx: Tx, refund: RefundRow, *, reason: str | None = None, **settled: object) -> None:
    """Insert the row of a new refund.

    Args:
        reason: why it needs a person.
        settled: the columns of a refund that staff has settled already.
    """
    tx.insert(
        tables.refunds,
        organization_id=refund.organization_id,
        id=refund.id,
        booking_id=refund.booking_id,
        payment_id=refund.payment_id,
        amount_minor=refund.amount_minor,
        currency=refund.currency,
        status=refund.status,
        next_attempt_at=refund.at if refund.status == RefundStatus.REQUESTED else None,
        last_error=reason,
        created_at=refund.at,
        updated_at=refund.at,
        number=refund.number,
        **settled,
    )


# Recording -------------------------------------------------------------------------------------------------------


def record_returned(
    tx: Tx,
    refund: RefundRow,
    amount_minor: int,
    *,
    kind: TimelineKind = TimelineKind.REFUND_SETTLED,
    **data: object,
) -> Returned:
    """Record returned money in the payment, the booking and the guest's timeline.

    Args:
        amount_minor: the returned amount; with 0 the statuses of payment and booking stay.
        kind: of the timeline entry.
        data: more data of the timeline entry.
    """
    status = refund.payment_status
    if refund.number == rules.CANCELLATION:  # else the money has left the payment before
        status = _mark_returned(tx, refund, amount_minor)
    returned = Returned(refund, amount_minor, status)
    # The total also says that the release that wrote the entry published it (see doctor/events.sql).
    total = {"total_refunded_minor": returned.total_minor} if amount_minor else {}
    note(tx, refund, kind, **({"amount_minor": amount_minor} | total | data))
    return returned


def _mark_returned(tx: Tx, refund: RefundRow, amount_minor: int) -> str:
    """Change the payment and its booking, and return their status."""
    owner, returned = refund.organization_id, refund.refunded_minor + amount_minor
    status = rules.status_after(refund.paid_minor, returned).value if amount_minor else refund.payment_status
    tx.update(
        store.REFUND,
        organization_id=owner,
        id=refund.payment_id,
        status=status,
        updated_at=refund.at,
        refunded_minor=amount_minor,
    )
    updated_at = max(refund.at, refund.booking_updated_at)
    tx.update(
        tables.bookings, organization_id=owner, id=refund.booking_id, payment_status=status, updated_at=updated_at
    )
    return status


_KINDS = {
    RefundStatus.FAILED: (OutboxKind.STAFF_REFUND_REFUSED_MAIL, TimelineKind.REFUND_REFUSED),
    RefundStatus.NEEDS_REVIEW: (OutboxKind.STAFF_REFUND_REVIEW_MAIL, TimelineKind.REFUND_NEEDS_REVIEW),
}


def notify_staff(tx: Tx, refund: RefundRow, status: RefundStatus, reason: str) -> None:
    """Enqueue the mail, and write the timeline entry and the log line about a refund that needs a person.

    It ignores the organization's notification settings, since it is about a guest's money. The log line is for the
    operator, because an organization may have no mail address.
    """
    was_sent = refund.first_sent_at is not None
    state = RefundState(status, refund.amount_minor, refund.currency, reason, was_sent=was_sent)
    fields = {"organization_id": refund.organization_id, "refund_id": refund.id, "booking_id": refund.booking_id}
    text = "refund %s of booking %s waits for a person (%s): %s"
    log.warning(text, refund.id, refund.booking_id, reason, state.for_staff(), extra=fields | {"reason": str(reason)})
    mail, kind = _KINDS[status]
    outbox.enqueue(
        tx,
        refund.organization_id,
        mail,
        refund.booking_id,
        at=refund.at,
        payload={"amount_minor": refund.amount_minor, "currency": refund.currency, "reason": reason},
        occurrence=rules.mail_occurrence(refund.number, refund.reopened_count),
    )
    note(tx, refund, kind, reason=reason, was_sent=was_sent)


def note(tx: Tx, refund: RefundRow, kind: TimelineKind, **data: object) -> None:
    """Add an entry about the refund to the guest's timeline."""
    timeline.note(
        tx,
        refund.organization_id,
        kind,
        at=refund.at,
        customer_id=refund.customer_id,
        booking_id=refund.booking_id,
        **({"amount_minor": refund.amount_minor, "currency": refund.currency} | data),
    )
