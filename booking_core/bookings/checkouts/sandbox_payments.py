"""Payments of sandboxes: checkouts are paid by a test card, as a guest does at Stripe, and nothing is charged."""

from typing import Any

from booking_core import bookings, organizations, payments
from booking_core.base.context import Actor, Caller
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings.checkouts import service, store
from booking_core.bookings.checkouts.applying import apply
from booking_core.bookings.checkouts.rules import (
    UNPAID,
    IntentRow,
    IntentState,
    IntentStatus,
    IntentUpdate,
    RefundUpdate,
)
from booking_core.db.engine import Tx
from booking_core.models.sandbox import SandboxPaymentStatus
from booking_core.payments import SandboxCard

_DECLINED = "card_declined"


def pay(tx: Tx, caller: Caller, booking_id: str, card: SandboxCard) -> dict[str, Any]:
    """Pay for a checkout of the caller's sandbox, and return the payment as JSON-ready values.

    It has the effects of Stripe's webhook, at once: the booking is confirmed, or the decline is recorded. A payment
    behind the end of the checkout is returned (decision 0012), until the worker has canceled the intent.

    Raises:
        Conflict: `not_a_sandbox`; `paid_already`; `checkout_expired`: the intent was canceled.
        NotFound: the organization has no such checkout.
    """
    organizations.require_sandbox(caller.organization)
    row = _lock_payable(tx, caller, booking_id)
    store.change(tx, caller.organization.id, row._replace(test_card=card.value, updated_at=caller.at))
    is_declined = card is SandboxCard.DECLINED
    apply(tx, caller, _update(caller, row, card))
    status = SandboxPaymentStatus.DECLINED if is_declined else SandboxPaymentStatus.SUCCEEDED
    shown = service.get(tx, caller, booking_id)
    return {"status": status.value, "error": _DECLINED if is_declined else None, "checkout": shown}


def _lock_payable(tx: Tx, actor: Actor, booking_id: str) -> IntentRow:
    bookings.lock(tx, actor, booking_id)
    payments.lock(tx, actor, booking_id)
    row = store.lock(tx, actor.organization.id, booking_id)
    if row is None or row.intent_id is None:
        raise NotFound("There is no such checkout.")
    if row.status == IntentStatus.SUCCEEDED:
        raise Conflict("paid_already", "The checkout is paid.")
    if row.status not in UNPAID:
        raise service.expired()
    return row


def _update(actor: Actor, row: IntentRow, card: SandboxCard) -> IntentUpdate:
    assert row.intent_id is not None
    is_declined = card is SandboxCard.DECLINED
    return IntentUpdate(
        intent_id=row.intent_id,
        state=IntentState.DECLINED if is_declined else IntentState.SUCCEEDED,
        organization_id=actor.organization.id,
        booking_id=row.booking_id,
        received_minor=0 if is_declined else row.amount_minor,
        currency=row.currency,
        error=_DECLINED if is_declined else None,
        refunds=_whole_refund(row.intent_id, row) if card is SandboxCard.DASHBOARD_REFUND else None,
    )


def _whole_refund(intent_id: str, row: IntentRow) -> RefundUpdate:
    refund_id = f"re_test_{row.booking_id.replace('-', '')}"
    return RefundUpdate(intent_id=intent_id, refunded_minor=row.amount_minor, is_whole=True, refund_id=refund_id)


def card_of(tx: Tx, organization_id: str, booking_id: str, payment_intent: str) -> SandboxCard:
    """Return the test card of a payment; the card whose refunds succeed where none is known."""
    named = payments.sandbox_card_of(payment_intent)
    if named is not None:
        return named
    row = store.get(tx, organization_id, booking_id)
    known = row.test_card if row else None
    return SandboxCard(known) if known in set(SandboxCard) else SandboxCard.VISA
