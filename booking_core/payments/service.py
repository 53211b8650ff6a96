"""The verbs of card money on the booking's side: a payment is expected, received or dropped, a refund is owed.

Each belongs to the transaction of the booking that it is about, whose row the caller holds. No card is charged and no
money is sent here: the storefront's gateway takes it, the worker gives it back (see `refunds`).
"""

import logging

from booking_core import outbox, timeline, tokens
from booking_core.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.errors import Conflict, NotFound
from booking_core.models.bookings import PaymentStatus
from booking_core.outbox import OutboxKind
from booking_core.payments import rules, store
from booking_core.payments.store import PaymentRow
from booking_core.refund_states import RefundReason, RefundStatus
from booking_core.timeline import TimelineKind

log = logging.getLogger("booking.refunds")

_AWAITED = frozenset({PaymentStatus.PENDING, PaymentStatus.FAILED})
"""Money may also come for a payment that was dropped."""
_REFUNDABLE = frozenset({PaymentStatus.PAID, PaymentStatus.PARTIALLY_REFUNDED})


def expect(tx: Tx, organization_id: str, *, booking_id: str, amount_minor: int, currency: str, at: int) -> None:
    """The payment that a card booking waits for. The booking is written before it, in the same transaction."""
    tx.insert(
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
    *,
    booking_id: str,
    payment_intent: str | None,
    customer_id: str | None = None,
) -> None:
    """The money has come. Said again, it changes nothing, but that its name is known from then on.

    Args:
        payment_intent: the gateway's name for it, by which it is refunded; none: it can only be refunded by hand.
        customer_id: whose timeline notes it; none: nobody's.

    Raises:
        NotFound: the booking expects no payment.
        Conflict: `paid_already`: by another payment. The guest was charged twice, which must not pass in silence.
            Or the payment intent has paid for another booking.
    """
    payment = store.lock_payment(tx, actor.organization.id, booking_id)
    if payment is None:
        raise NotFound("The booking expects no payment.")
    if payment.status in _AWAITED:
        _receive(tx, actor, payment, booking_id, payment_intent, customer_id)
    else:
        _hear_again(tx, actor, payment, booking_id, payment_intent)


def _hear_again(tx: Tx, actor: Actor, payment: PaymentRow, booking_id: str, payment_intent: str | None) -> None:
    if payment_intent in (None, payment.payment_intent):
        return
    if payment.payment_intent is not None:
        message = f"The booking was paid by {payment.payment_intent}: {payment_intent} has to be given back by hand."
        raise Conflict("paid_already", message)
    _name(tx, actor, payment, booking_id, payment_intent, payment.status)


def return_late(tx: Tx, actor: Actor, *, booking_id: str, payment_intent: str | None, customer_id: str | None) -> bool:
    """The money has come for a booking that is cancelled: it is received, and all of it is owed back, whatever the
    organization's policy, since nothing was sold for it. Said again, it changes nothing.

    Returns:
        Whether it was news.

    Raises:
        Conflict: `paid_already`, as `receive`.
    """
    payment = store.lock_payment(tx, actor.organization.id, booking_id)
    if payment is None:
        return False
    if payment.status not in _AWAITED:
        _hear_again(tx, actor, payment, booking_id, payment_intent)
        return False
    _receive(tx, actor, payment, booking_id, payment_intent, customer_id)
    amount = rules.returnable(payment.amount_minor, payment.currency, payment.amount_minor)
    if amount:
        _owe(tx, actor, payment, booking_id, amount, customer_id, kept_minor=payment.amount_minor - amount)
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
    _note(tx, actor, TimelineKind.PAYMENT_RECEIVED, booking_id, customer_id, payment.amount_minor, payment)


def _name(tx: Tx, actor: Actor, payment: PaymentRow, booking_id: str, payment_intent: str | None, status: str) -> None:
    _check_unused(tx, actor.organization.id, payment_intent, booking_id)
    tx.update(
        store.RECEIVE,
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
    """Nobody waits for the payment any longer. One that has come is left as it is; so is a booking without one."""
    tx.insert_from_select(store.DROP, organization_id=organization_id, booking_id=booking_id, at=at)


def lock(tx: Tx, actor: Actor, booking_id: str) -> PaymentRow | None:
    """Lock the payment of a booking whose row the caller has locked; none when it has none."""
    return store.lock_payment(tx, actor.organization.id, booking_id)


def owe_refund(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    *,
    booking_id: str,
    starts_at: int,
    customer_id: str | None,
    in_full: bool = False,
) -> int:
    """Owes the guest what the organization's policy gives back now, frozen here, once for a booking.

    Args:
        in_full: all of it whatever the policy says, which is for guests who do not come.

    Returns:
        How much, in minor units; 0 when nothing was paid by card, the policy keeps it, or it is owed already.
    """
    organization = actor.organization
    if payment.status not in _REFUNDABLE or payment.has_refund:
        return 0
    wanted, left = payment.amount_minor, payment.amount_minor - payment.refunded_minor
    if not in_full:
        wanted = rules.by_policy(organization, paid_minor=wanted, starts_at=starts_at, at=actor.at)
    amount = rules.returnable(wanted, payment.currency, left)
    if amount <= 0:
        return 0
    _owe(tx, actor, payment, booking_id, amount, customer_id, kept_minor=min(wanted, left) - amount)
    return amount


def owe_by_hand(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    *,
    booking_id: str,
    starts_at: int,
    customer_id: str | None,
    in_full: bool = False,
) -> int:
    """Owe the guest what the policy gives back of the payments that staff recorded, once for a booking.

    No gateway took that money, so none can return it: the refund waits for a person from the beginning.

    Returns:
        How much, in minor units; as `owe_refund`.
    """
    organization = actor.organization
    if payment.has_refund:
        return 0
    amount = payment.amount_minor
    if not in_full:
        amount = rules.by_policy(organization, paid_minor=amount, starts_at=starts_at, at=actor.at)
    if amount <= 0:
        return 0
    reason = RefundReason.PAID_BY_HAND
    refund_id = _insert(tx, actor, payment, booking_id, amount, RefundStatus.NEEDS_REVIEW, reason)
    log.warning("refund %s of booking %s waits for a person (%s)", refund_id, booking_id, reason)
    payload = {"amount_minor": amount, "currency": payment.currency, "reason": reason}
    kind, at = OutboxKind.STAFF_REFUND_REVIEW_MAIL, actor.at
    outbox.enqueue(tx, organization.id, kind, booking_id, at=at, payload=payload)
    noted = {"reason": reason, "was_sent": False}
    _note(tx, actor, TimelineKind.REFUND_NEEDS_REVIEW, booking_id, customer_id, amount, payment, **noted)
    return amount


def _owe(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    booking_id: str,
    amount_minor: int,
    customer_id: str | None,
    *,
    kept_minor: int,
) -> None:
    """Add the refund that the worker sends, and the timeline entry about it.

    Args:
        kept_minor: what is not owed although it was wanted, since the gateway cannot return so small an amount. The
            timeline says so; negative: the guest gets more.
    """
    _insert(tx, actor, payment, booking_id, amount_minor, RefundStatus.REQUESTED, None)
    noted = {"rounded_off_minor": kept_minor} if kept_minor else {}
    _note(tx, actor, TimelineKind.REFUND_REQUESTED, booking_id, customer_id, amount_minor, payment, **noted)


def _insert(
    tx: Tx,
    actor: Actor,
    payment: PaymentRow,
    booking_id: str,
    amount_minor: int,
    status: RefundStatus,
    reason: str | None,
) -> str:
    """Add the row of a refund, and return its id."""
    refund_id = tokens.new_id()
    tx.insert(
        tables.refunds,
        organization_id=actor.organization.id,
        id=refund_id,
        booking_id=booking_id,
        payment_id=payment.id,
        amount_minor=amount_minor,
        currency=payment.currency,
        status=status.value,
        next_attempt_at=actor.at if status is RefundStatus.REQUESTED else None,
        last_error=reason,
        created_at=actor.at,
        updated_at=actor.at,
    )
    return refund_id


def _note(
    tx: Tx,
    actor: Actor,
    kind: TimelineKind,
    booking_id: str,
    customer_id: str | None,
    amount_minor: int,
    payment: PaymentRow,
    **data: object,
) -> None:
    timeline.note(
        tx,
        actor.organization.id,
        kind,
        at=actor.at,
        customer_id=customer_id,
        booking_id=booking_id,
        amount_minor=amount_minor,
        currency=payment.currency,
        **data,
    )
