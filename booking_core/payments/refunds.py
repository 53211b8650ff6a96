"""The worker's side of refunds: take what is due, say what the gateway answered.

Three acts, as for deliveries: `claim` leases refunds in a short transaction, the gateway is called while none is
open, `settle` writes down what it said. A worker that dies leaves a lease that runs out; the refund is then sent again
with the same idempotency key, so that whatever the dead one had done is done once.

requested -> sending -> succeeded | failed | needs_review. The row is never made again. What staff does with one that
failed or needs a review, to reopen or to settle it, is in `by_hand`.
"""

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from booking_core import outbox, timeline, tokens
from booking_core.clock import SECOND
from booking_core.db.engine import Tx
from booking_core.outbox import OutboxKind
from booking_core.payments import rules, store
from booking_core.payments.rules import Answered, Claimed, LeasedRefund, Outcome
from booking_core.payments.store import DueRefund
from booking_core.refund_states import RefundReason, RefundState, RefundStatus
from booking_core.timeline import TimelineKind

log = logging.getLogger("booking.refunds")

# Claiming --------------------------------------------------------------------------------------------------------


def claim(tx: Tx, *, limit: int, lease_s: float) -> list[Claimed]:
    """Leases what is due, at most `limit` refunds. What no gateway can settle is left to staff instead."""
    token = tokens.new_id()
    claimed = []
    for due in store.due(tx, limit=limit):
        if due.payment_intent is None:
            _refer(tx, due, RefundReason.NO_PAYMENT_INTENT)
        elif due.attempt_count >= rules.ATTEMPTS_MAX:
            _refer(tx, due, RefundReason.NEVER_SETTLED)
        else:
            claimed.append(_lease(tx, due, due.payment_intent, token, due.at + round(lease_s * SECOND)))
    return claimed


def refer(tx: Tx, *, limit: int) -> int:
    """Leaves what is due to staff, since there is no gateway: how many, at most `limit`."""
    found = store.due(tx, limit=limit)
    for due in found:
        _refer(tx, due, RefundReason.NO_GATEWAY)
    return len(found)


def _lease(tx: Tx, due: DueRefund, payment_intent: str, token: str, until: int) -> Claimed:
    first_sent_at = due.at if due.first_sent_at is None else due.first_sent_at
    tx.update(
        store.LEASE,
        organization_id=due.organization_id,
        id=due.id,
        status=RefundStatus.SENDING.value,
        first_sent_at=first_sent_at,
        attempt_count=due.attempt_count + 1,
        next_attempt_at=until,
        lease_token=token,
        lease_until=until,
        updated_at=due.at,
    )
    return Claimed(
        organization_id=due.organization_id,
        id=due.id,
        booking_id=due.booking_id,
        payment_intent=payment_intent,
        amount_minor=due.amount_minor,
        currency=due.currency,
        provider_refund_id=due.provider_refund_id,
        attempt_count=due.attempt_count + 1,
        first_sent_at=first_sent_at,
        at=due.at,
        lease_token=token,
        reopened_count=due.reopened_count,
    )


def _refer(tx: Tx, refund: DueRefund | LeasedRefund, reason: str) -> None:
    _close(tx, refund, RefundStatus.NEEDS_REVIEW, refund.provider_refund_id, reason)
    _tell_staff(tx, refund, RefundStatus.NEEDS_REVIEW, reason)


# Settling --------------------------------------------------------------------------------------------------------


def settle(
    tx: Tx,
    answers: Sequence[Answered],
    *,
    first_wait_s: float = rules.FIRST_WAIT_S,
    luck: Callable[[], float] = random.random,
) -> int:
    """Writes down what the gateway answered, all of it with one statement: how many answers counted.

    An answer counts only while its lease is the refund's last.

    Args:
        first_wait_s: seconds until the second attempt; until each later one twice as long.
        luck: gives from 0 to 1 how much longer than its wait a refund waits, of a quarter of it.
    """
    leases = ((each.claimed.organization_id, each.claimed.id, each.claimed.lease_token) for each in answers)
    found = store.lock_leased(tx, leases)
    for answered in answers:
        refund = found.get((answered.claimed.organization_id, answered.claimed.id))
        if refund is not None:
            _settle(tx, refund, answered, rules.wait_s(refund.attempt_count, luck(), first_wait_s))
    return len(found)


_LEFT_TO_STAFF = {Outcome.REFUSED: RefundStatus.FAILED, Outcome.UNCLEAR: RefundStatus.NEEDS_REVIEW}


def _settle(tx: Tx, refund: LeasedRefund, answered: Answered, wait_s: float) -> None:
    provider_refund_id = answered.provider_refund_id or refund.provider_refund_id
    if answered.outcome is Outcome.REFUNDED:
        _close(tx, refund, RefundStatus.SUCCEEDED, provider_refund_id, answered.reason)
        book(tx, refund, min(refund.amount_minor, refund.paid_minor - refund.refunded_minor))
    elif answered.outcome in _LEFT_TO_STAFF:
        status, reason = _LEFT_TO_STAFF[answered.outcome], answered.reason or answered.outcome
        _close(tx, refund, status, provider_refund_id, reason)
        _tell_staff(tx, refund, status, reason)
    else:
        _wait(tx, refund, answered, provider_refund_id, wait_s)


def _close(
    tx: Tx,
    refund: DueRefund | LeasedRefund,
    status: RefundStatus,
    provider_refund_id: str | None,
    reason: str | None,
) -> None:
    _change(
        tx,
        refund,
        status=status.value,
        provider_refund_id=provider_refund_id,
        next_attempt_at=None,
        last_error=reason,
    )


def _wait(tx: Tx, refund: LeasedRefund, answered: Answered, provider_refund_id: str | None, wait_s: float) -> None:
    if answered.outcome is Outcome.ACCEPTED:
        wait_s = rules.ACCEPTED_WAIT_S
    else:
        log.warning("refund %s is not settled yet (%s), attempt %d", refund.id, answered.reason, refund.attempt_count)
    _change(
        tx,
        refund,
        status=RefundStatus.SENDING.value,
        provider_refund_id=provider_refund_id,
        next_attempt_at=refund.at + round(wait_s * SECOND),
        last_error=answered.reason,
    )


def _change(tx: Tx, refund: DueRefund | LeasedRefund, **columns: Any) -> None:
    tx.update(
        store.SETTLE,
        organization_id=refund.organization_id,
        id=refund.id,
        **columns,
        lease_token=None,
        lease_until=None,
        updated_at=refund.at,
    )


def book(tx: Tx, refund: LeasedRefund, amount_minor: int, **data: object) -> None:
    """Add to the writes that the money has gone back: to the payment, to the booking and to the guest's timeline.

    Args:
        amount_minor: how much; with 0 the two statuses stay.
        data: what else the timeline notes.
    """
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
    tx.update(store.MARK, organization_id=owner, id=refund.booking_id, payment_status=status, updated_at=updated_at)
    note(tx, refund, TimelineKind.REFUND_SETTLED, **({"amount_minor": amount_minor} | data))


_KINDS = {
    RefundStatus.FAILED: (OutboxKind.STAFF_REFUND_REFUSED_MAIL, TimelineKind.REFUND_REFUSED),
    RefundStatus.NEEDS_REVIEW: (OutboxKind.STAFF_REFUND_REVIEW_MAIL, TimelineKind.REFUND_NEEDS_REVIEW),
}


def _tell_staff(tx: Tx, refund: DueRefund | LeasedRefund, status: RefundStatus, reason: str) -> None:
    """Add the mail, the timeline entry and the log line about a refund that waits for a person. It is not a matter of
    the organization's notification settings, since it is about a guest's money. The log tells the operator, because an
    organization may have no address to write to."""
    was_sent = refund.first_sent_at is not None
    state = RefundState(status, refund.amount_minor, refund.currency, reason, was_sent=was_sent)
    log.warning(
        "refund %s of booking %s waits for a person (%s): %s", refund.id, refund.booking_id, reason, state.for_staff()
    )
    mail, kind = _KINDS[status]
    outbox.enqueue(
        tx,
        refund.organization_id,
        mail,
        refund.booking_id,
        at=refund.at,
        payload={"amount_minor": refund.amount_minor, "currency": refund.currency, "reason": reason},
        occurrence=str(refund.reopened_count or ""),
    )
    note(tx, refund, kind, reason=reason, was_sent=was_sent)


def note(tx: Tx, refund: DueRefund | LeasedRefund, kind: TimelineKind, **data: object) -> None:
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
