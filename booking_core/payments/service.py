"""The verbs of card money on the booking's side: a payment is expected, received or dropped, a refund is owed.

Each belongs to the transaction of the booking that it is about, whose row the caller holds. No card is charged and no
money is sent here: the storefront's gateway takes it, the worker gives it back (see `refunds`).
"""

from booking_core import timeline, tokens
from booking_core.caller import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.db.writes import Writes
from booking_core.errors import NotFound
from booking_core.payments import rules, store
from booking_core.payments.rules import RefundStatus
from booking_core.timeline import TimelineKind
from booking_core.wire.bookings import PaymentStatus

_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})


def expect(
    pending: Writes, organization_id: str, *, booking_id: str, amount_minor: int, currency: str, at: int
) -> None:
    """The payment that a card booking waits for. The booking is written before it, in the same transaction."""
    pending.insert(
        tables.payments,
        organization_id=organization_id,
        id=tokens.new_id(),
        booking_id=booking_id,
        amount_minor=amount_minor,
        currency=currency,
        status=PaymentStatus.PENDING.value,
        created_at=at,
        updated_at=at,
    )


def receive(
    tx: Tx,
    actor: Actor,
    pending: Writes,
    *,
    booking_id: str,
    payment_intent: str | None,
    customer_id: str | None = None,
) -> None:
    """The money has come. Said again, it changes nothing.

    Money that comes for a payment which was dropped is received too: so it can be given back.

    Args:
        payment_intent: the gateway's name for it, by which it is refunded; none: it can only be refunded by hand.
        customer_id: whose timeline notes it; none: nobody's.

    Raises:
        NotFound: the booking expects no payment.
    """
    organization_id = actor.organization.id
    payment = store.lock_payment(tx, organization_id, booking_id)
    if payment is None:
        raise NotFound("The booking expects no payment.")
    if payment.status not in (PaymentStatus.PENDING, PaymentStatus.FAILED):
        return
    pending.change(
        store.RECEIVE,
        organization_id=organization_id,
        id=payment.id,
        payment_intent=payment_intent,
        status=PaymentStatus.PAID.value,
        updated_at=max(actor.at, payment.updated_at),
    )
    timeline.note(
        pending,
        organization_id,
        TimelineKind.PAYMENT_RECEIVED,
        at=actor.at,
        customer_id=customer_id,
        booking_id=booking_id,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
    )


def drop(pending: Writes, organization_id: str, *, booking_id: str, at: int) -> None:
    """Nobody waits for the payment any longer. One that has come is left as it is; so is a booking without one."""
    pending.derive(store.DROP, organization_id=organization_id, booking_id=booking_id, at=at)


def owe_refund(
    tx: Tx, actor: Actor, pending: Writes, *, booking_id: str, starts_at: int, customer_id: str | None
) -> int:
    """Owes the guest what the organization's policy gives back now, frozen here, once for a booking.

    Returns:
        How much, in minor units; 0 when nothing was paid by card, the policy keeps it, or it is owed already.
    """
    organization = actor.organization
    payment = store.lock_payment(tx, organization.id, booking_id)
    if payment is None or payment.status not in _REFUNDABLE or payment.has_refund:
        return 0
    amount = rules.owed(organization, paid_minor=payment.amount_minor, starts_at=starts_at, at=actor.at)
    amount = min(amount, payment.amount_minor - payment.refunded_minor)
    if amount <= 0:
        return 0
    pending.insert(
        tables.refunds,
        organization_id=organization.id,
        id=tokens.new_id(),
        booking_id=booking_id,
        payment_id=payment.id,
        amount_minor=amount,
        currency=payment.currency,
        status=RefundStatus.REQUESTED.value,
        next_attempt_at=actor.at,
        created_at=actor.at,
        updated_at=actor.at,
    )
    timeline.note(
        pending,
        organization.id,
        TimelineKind.REFUND_REQUESTED,
        at=actor.at,
        customer_id=customer_id,
        booking_id=booking_id,
        amount_minor=amount,
        currency=payment.currency,
    )
    return amount
