"""Record what Stripe says of a payment: by a webhook, or when the worker asks (claimed, looked up, settled).

Every function reaches the same state from any order and number of events. A payment that succeeded stays so, refunds
are compared with the known sum, and a closed dispute is not opened again. So no event has to be remembered by its id.
Locks are taken as everywhere: booking, payment, then the intent.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import orjson

from booking_core import bookings, organizations, payments
from booking_core.base.clock import HOUR
from booking_core.base.context import Actor, Installation
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import changes
from booking_core.bookings.changes import LockedBooking
from booking_core.bookings.checkouts import rules, store
from booking_core.bookings.checkouts.rules import (
    STAFF_NOTICES_MAX,
    DisputeUpdate,
    IntentRow,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
    ReviewReason,
    StripeUpdate,
)
from booking_core.bookings.checkouts.store import DueCheck
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.due_work.rows import Processed
from booking_core.models.base import is_id
from booking_core.models.bookings import BookingStatus
from booking_core.payments import PaymentRow, stripe_accounts
from booking_core.records import outbox
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

log = logging.getLogger("booking.stripe")

_FINAL = frozenset({IntentStatus.SUCCEEDED, IntentStatus.RESOLVED})


class Applied(StrEnum):
    """The result of applying an update."""

    RECORDED = "done"
    """It is recorded, now or before."""
    UNKNOWN = "unknown"
    """The payment is of no booking of this organization."""
    NEEDS_REVIEW = "needs_review"


def apply(tx: Tx, actor: Actor, update: StripeUpdate) -> Applied:
    """Record an update of a payment."""
    booking_id = _booking_of(tx, actor, update)
    if booking_id is None:
        return _unknown(actor, update)
    try:
        target = _Target(tx, actor, booking_id)
    except NotFound:
        return _unknown(actor, update)
    if isinstance(update, IntentUpdate):
        return _apply_intent(target, update)
    if isinstance(update, RefundUpdate):
        return _apply_refund(target, update)
    return _apply_dispute(target, update)


def _unknown(actor: Actor, update: StripeUpdate) -> Applied:
    """Warn of money whose metadata name this organization and none of its bookings."""
    if not isinstance(update, IntentUpdate):
        return Applied.UNKNOWN
    if update.organization_id == actor.organization.id and update.state is IntentState.SUCCEEDED:
        log.warning("the payment %s for %s names no booking of it", update.intent_id, actor.organization.slug)
    return Applied.UNKNOWN


def _booking_of(tx: Tx, actor: Actor, update: StripeUpdate) -> str | None:
    booking_id = store.booking_of_intent(tx, actor.organization.id, update.intent_id)
    if booking_id is not None or not isinstance(update, IntentUpdate):
        return booking_id
    is_own = update.organization_id == actor.organization.id
    return update.booking_id.lower() if is_own and update.booking_id and is_id(update.booking_id) else None


class _Target:
    """The locked booking, payment and intent of an update.

    Raises:
        NotFound: there is no such booking.
    """

    def __init__(self, tx: Tx, actor: Actor, booking_id: str) -> None:
        self.tx, self.actor, self.booking_id = tx, actor, booking_id
        self.booking: LockedBooking = changes.lock(tx, actor, booking_id)
        self.payment: PaymentRow | None = payments.lock(tx, actor, booking_id)
        row = store.lock(tx, actor.organization.id, booking_id)
        self.is_new = row is None
        self.row = row or self._new()

    def _new(self) -> IntentRow:
        """Return the intent of a booking that was paid without a checkout of this API."""
        booking, at = self.booking.row, self.actor.at
        new = rules.new_row(self.booking_id, booking.total_minor, booking.currency, at)
        if self.payment is None or self.payment.is_awaited:
            return new._replace(status=IntentStatus.OPEN)
        return new._replace(status=IntentStatus.SUCCEEDED, intent_id=self.payment.payment_intent)

    def save(self, row: IntentRow) -> None:
        if row == self.row:
            return
        row = row._replace(updated_at=max(self.actor.at, row.updated_at))
        (store.insert if self.is_new else store.change)(self.tx, self.actor.organization.id, row)

    def notify_staff(self, row: IntentRow, kind: OutboxKind, occurrence: str, **payload: object) -> IntentRow:
        """Enqueue a mail to staff about a payment that needs a person, and return the row that remembers it.

        Stripe says the same more than once, in any order, and the outbox forgets: so the row of the intent remembers
        which mails were enqueued.

        Args:
            occurrence: distinguishes the mails about one payment: the reason of a review, or the dispute.
        """
        enqueued, at = orjson.loads(row.staff_notices or "[]"), self.actor.at
        if occurrence in enqueued or len(enqueued) >= STAFF_NOTICES_MAX:
            return row
        organization_id = self.actor.organization.id
        outbox.enqueue(self.tx, organization_id, kind, row.booking_id, at=at, payload=payload, occurrence=occurrence)
        return row._replace(staff_notices=orjson.dumps([*enqueued, occurrence]).decode())

    def note(self, kind: TimelineKind, **data: object) -> None:
        changes.note(self.tx, self.actor, self.booking, kind, at=self.actor.at, **data)


# The intent ------------------------------------------------------------------------------------------------------


def _apply_intent(target: _Target, update: IntentUpdate) -> Applied:
    if update.state is IntentState.SUCCEEDED:
        return _succeed(target, update)
    row = target.row
    if row.status in _FINAL or row.intent_id not in (None, update.intent_id):
        return Applied.RECORDED
    row = row._replace(intent_id=update.intent_id)
    if update.state is IntentState.CANCELED:
        row = row._replace(status=IntentStatus.CANCELED, check_at=None)
    elif update.state is IntentState.DECLINED and row.last_error != update.error:
        row = row._replace(last_error=update.error)
        target.note(TimelineKind.PAYMENT_FAILED, reason=update.error)
    target.save(row)
    return Applied.RECORDED


def _succeed(target: _Target, update: IntentUpdate) -> Applied:
    """Pay for the booking, unless the money does not fit it, and then record refunds that were made already."""
    row = target.row
    reason = None
    if row.intent_id not in (None, update.intent_id):
        reason = ReviewReason.SECOND_INTENT.value
    elif row.status not in _FINAL:
        reason = _mismatch(target, update) or _pay(target, update)
    if reason is not None:
        return _refer(target, update.intent_id, reason, update.received_minor, update.currency)
    if row.status not in _FINAL and not _is_kept_in_review(row):
        row = row._replace(intent_id=update.intent_id, status=IntentStatus.SUCCEEDED, last_error=None, check_at=None)
    refunds = update.refunds or RefundUpdate(intent_id=update.intent_id, refunded_minor=0, is_whole=False)
    if refunds.refunded_minor is None or max(row.refunded_minor, refunds.refunded_minor):
        return _compare_refunds(target, row, refunds)
    target.save(row if update.refunds is None else row._replace(check_at=None))
    return Applied.RECORDED


def _is_kept_in_review(row: IntentRow) -> bool:
    """Return whether staff has to look at something else than whether the booking's own payment fits it."""
    return row.status == IntentStatus.NEEDS_REVIEW and row.last_error in rules.BESIDES_PAYMENT


def _mismatch(target: _Target, update: IntentUpdate) -> str | None:
    payment = target.payment
    if payment is None:
        return None  # `bookings.pay` refuses it
    if update.currency != payment.currency:
        return ReviewReason.CURRENCY_DIFFERS
    return None if update.received_minor == payment.amount_minor else ReviewReason.AMOUNT_DIFFERS


def _pay(target: _Target, update: IntentUpdate) -> str | None:
    """Pay for the booking; return the reason if it takes no payment by this intent."""
    try:
        bookings.pay(target.tx, target.actor, target.booking_id, payment_intent=update.intent_id)
    except Conflict as conflict:
        return conflict.reason
    return None


def _refer(target: _Target, intent_id: str, reason: str, amount_minor: int | None, currency: str) -> Applied:
    """Leave a payment to staff: the booking is not confirmed by it, and nothing is refunded by the service."""
    row = target.row
    if (row.status, row.last_error) == (IntentStatus.NEEDS_REVIEW, reason) or row.status == IntentStatus.RESOLVED:
        return Applied.NEEDS_REVIEW
    if _is_kept_in_review(row):
        return Applied.NEEDS_REVIEW
    received = {"amount_minor": amount_minor, "currency": currency}
    recorded_id = row.intent_id or intent_id
    row = row._replace(intent_id=recorded_id, status=IntentStatus.NEEDS_REVIEW, last_error=reason, check_at=None)
    about = received | {"reason": reason, "payment_intent": intent_id}
    target.save(target.notify_staff(row, OutboxKind.STAFF_PAYMENT_REVIEW_MAIL, reason, **about))
    target.note(TimelineKind.PAYMENT_NEEDS_REVIEW, reason=reason, payment_intent=intent_id, **received)
    fields = {"organization_id": target.actor.organization.id, "booking_id": target.booking_id, "reason": reason}
    text = "the payment %s of booking %s waits for a person (%s)"
    log.warning(text, intent_id, target.booking_id, reason, extra=fields)
    return Applied.NEEDS_REVIEW


# Refunds ---------------------------------------------------------------------------------------------------------


def _apply_refund(target: _Target, update: RefundUpdate) -> Applied:
    if target.row.status == IntentStatus.NEEDS_REVIEW and _is_unreceived(target):
        return _resolve_by_refund(target, update)
    return _compare_refunds(target, target.row, update)


def _is_unreceived(target: _Target) -> bool:
    return target.payment is None or target.payment.is_awaited


def _resolve_by_refund(target: _Target, update: RefundUpdate) -> Applied:
    """Close the review of a payment that was never taken for the booking, once all of it was refunded."""
    if not update.is_whole:
        return Applied.NEEDS_REVIEW
    target.save(target.row._replace(status=IntentStatus.RESOLVED))
    target.note(TimelineKind.PAYMENT_REVIEWED, reason="refunded_elsewhere")
    return Applied.RECORDED


def _compare_refunds(target: _Target, row: IntentRow, update: RefundUpdate) -> Applied:
    """Record refunds that were made elsewhere: now, when the payment is received, or after the end of a refund of this
    service that is being sent; then the worker calls Stripe again."""
    if update.refunded_minor is None:
        return _refer(target, update.intent_id, ReviewReason.REFUND_DIFFERS, None, row.currency)
    refunded_minor = max(row.refunded_minor, update.refunded_minor)
    recorded = bookings.record_elsewhere(target.tx, target.actor, target.booking_id, refunded_minor, update.refund_id)
    check_at, check_count = row.check_at, row.check_count
    if row.status in _FINAL:
        check_at, check_count = target.actor.at + rules.UNSETTLED if recorded.is_early else None, 0
    target.save(
        row._replace(
            refunded_minor=refunded_minor,
            returned_minor=row.returned_minor + recorded.amount_minor,
            check_at=check_at,
            check_count=check_count,
        )
    )
    return Applied.RECORDED


# Disputes --------------------------------------------------------------------------------------------------------


def _apply_dispute(target: _Target, update: DisputeUpdate) -> Applied:
    row = target.row
    is_known = row.dispute_id == update.dispute_id
    if is_known and row.dispute_closed_at is not None:
        return Applied.RECORDED
    if not is_known:
        noted = {"amount_minor": update.amount_minor, "currency": row.currency, "reason": update.reason}
        target.note(TimelineKind.PAYMENT_DISPUTED, **noted)
        text = "the payment %s of booking %s is disputed (%s)"
        log.warning(text, update.intent_id, target.booking_id, update.reason)
    if update.is_closed:
        target.note(TimelineKind.DISPUTE_CLOSED, result=update.status)
    row = row._replace(
        intent_id=row.intent_id or update.intent_id,
        dispute_id=update.dispute_id,
        dispute_status=update.status,
        dispute_reason=update.reason,
        disputed_minor=update.amount_minor,
        disputed_at=row.disputed_at if is_known else target.actor.at,
        dispute_closed_at=target.actor.at if update.is_closed else None,
    )
    target.save(_notify_of_dispute(target, row, update))
    return Applied.RECORDED


def _notify_of_dispute(target: _Target, row: IntentRow, update: DisputeUpdate) -> IntentRow:
    """Tell staff of a dispute that is open or lost."""
    about = {"amount_minor": update.amount_minor, "currency": row.currency, "reason": update.reason}
    about["payment_intent"] = update.intent_id
    if not update.is_closed:
        return target.notify_staff(row, OutboxKind.STAFF_DISPUTE_OPENED_MAIL, update.dispute_id, **about)
    if update.status == rules.LOST:
        return target.notify_staff(row, OutboxKind.STAFF_DISPUTE_LOST_MAIL, f"{update.dispute_id}:lost", **about)
    return row


# Checks by the worker ----------------------------------------------------------------------------------------------
#
# A webhook may have been lost. An intent is checked shortly before its checkout ends: a payment then still books. It is
# checked again after the end: an unpaid intent is then canceled at Stripe, since its seats are for sale again. A claim
# moves the instant of the next check. If a worker dies, the next one checks; if two settle one check, both record the
# same.

DUE = store.DUE


@dataclass(frozen=True, slots=True)
class PaymentCheck:
    """An intent that is leased for one look-up at Stripe."""

    organization_id: str
    booking_id: str
    intent_id: str
    must_cancel: bool
    """Nothing is sold for it any more: it is canceled at Stripe, unless it was paid."""
    api_key: str = field(repr=False)
    """Empty in a sandbox."""

    @property
    def is_of_sandbox(self) -> bool:
        return payments.is_sandbox_intent(self.intent_id)


def claim(
    tx: Tx, installation: Installation, organization_id: str, booking_ids: Sequence[str]
) -> Processed[PaymentCheck]:
    """Lease the checks that are due. Without an account, or after many attempts, none is made any more."""
    due_checks = store.due(tx, organization_id, booking_ids)
    account = stripe_accounts.find(tx, installation.secret_keys, organization_id) if due_checks else None
    checks = []
    for due in due_checks:
        has_gateway = account is not None or payments.is_sandbox_intent(due.intent_id)
        if not has_gateway or due.intent_id is None or due.check_count >= rules.CHECKS_MAX:
            _next(tx, organization_id, due, None)
            continue
        _next(tx, organization_id, due, rules.lease_until(due.at, due.check_count))
        must_cancel = due.booking_status == BookingStatus.CANCELLED
        api_key = account.api_key if account else ""
        checks.append(PaymentCheck(organization_id, due.booking_id, due.intent_id, must_cancel, api_key))
    return Processed([due.booking_id for due in due_checks], results=checks)


def _next(tx: Tx, organization_id: str, due: DueCheck, check_at: int | None) -> None:
    key = {"organization_id": organization_id, "booking_id": due.booking_id}
    tx.update(tables.payment_intents, **key, check_at=check_at, check_count=due.check_count + 1)


def settle(tx: Tx, installation: Installation, check: PaymentCheck, update: IntentUpdate) -> Applied:
    """Record the state of a payment that Stripe has answered."""
    actor = organizations.actor_of(tx, installation, check.organization_id)
    result = apply(tx, actor, update)
    if update.state in (IntentState.WAITING, IntentState.DECLINED):
        _wait(tx, actor, check.booking_id)
    return result


def _wait(tx: Tx, actor: Actor, booking_id: str) -> None:
    """Check again after the end of the checkout."""
    row = store.lock(tx, actor.organization.id, booking_id)
    booking = store.pending(tx, actor.organization.id, booking_id)
    if row is None or booking is None or row.status not in rules.UNPAID:
        return
    if booking.status == BookingStatus.CONFIRMED:  # by staff; the guest may pay later
        check_at, count = actor.at + HOUR, row.check_count
    else:
        check_at, count = max(actor.at, booking.expires_at or 0) + rules.AFTER_END, 0
    store.change(tx, actor.organization.id, row._replace(check_at=check_at, check_count=count))
