"""Cancel a booking: its seats, gift card, payment, event, mails and timeline entry.

A booking gives its seats back once, its gift card is restored once, its refund is enqueued once, and
`booking.cancelled` is published once, for every reason of a cancellation (decision B11), before `gift_card.restored`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from booking_core import payments
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict
from booking_core.bookings import capacity, changes, presenting, rules, store
from booking_core.bookings.changes import LockedBooking
from booking_core.bookings.rules import BookingRow
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentSource, PaymentStatus, RefundMode
from booking_core.models.events import EventType
from booking_core.payments import PaymentRow, RefundTerms, gift_cards
from booking_core.payments.gift_cards import Redemption
from booking_core.records import events, outbox
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The reason of a cancellation, and how the payments are refunded."""

    reason: CancelReason
    note: str | None = None
    """The caller's text, shown to staff."""
    refund: RefundMode = RefundMode.AUTO
    in_full: bool = False
    """Refund all that was paid, regardless of the policy: by a decision of staff, or because the departure itself is
    cancelled (decisions/0012)."""


def cancel(
    tx: Tx,
    actor: Actor,
    booking_id: str,
    *,
    reason: CancelReason,
    note: str | None = None,
    refund: RefundMode = RefundMode.AUTO,
    in_full: bool = False,
) -> bytes:
    """Cancel a booking and enqueue its refund, and return it as JSON. A cancelled booking stays unchanged.

    Args:
        refund: `auto` refunds card payments by the organization's policy; `none` keeps the money.
        in_full: refund card payments in full instead of by the policy.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_confirmed`, for the reason `abandoned` and a confirmed booking.
    """
    booking = changes.lock(tx, actor, booking_id)
    if booking.row.status == BookingStatus.CANCELLED:
        return presenting.render_for(actor, booking.as_read)
    if reason is CancelReason.ABANDONED and booking.row.status == BookingStatus.CONFIRMED:
        raise Conflict("booking_confirmed", "The booking was confirmed, so it is not abandoned.")
    return cancel_one(tx, actor, booking, Cancellation(reason, note, refund, in_full))


def cancel_one(tx: Tx, actor: Actor, booking: LockedBooking, cancellation: Cancellation) -> bytes:
    """Cancel a locked booking that is not cancelled, and return it as JSON."""
    (row,) = cancel_locked(tx, actor, [booking], cancellation)
    return presenting.render_for(actor, booking.with_row(row))


def cancel_locked(
    tx: Tx, actor: Actor, locked: Sequence[LockedBooking], cancellation: Cancellation
) -> list[BookingRow]:
    """Lock the departures of locked bookings, cancel the bookings and give back their seats."""
    store.lock_departures(tx, [(actor.organization.id, booking.row.departure_id) for booking in locked])
    rows = cancel_rows(tx, actor, locked, cancellation)
    _release_seats(tx, actor, locked)
    return rows


def _release_seats(tx: Tx, actor: Actor, locked: Sequence[LockedBooking]) -> None:
    seats: Counter[str] = Counter()
    for booking in locked:
        seats[booking.row.departure_id] += booking.details.seats
    for departure_id, count in seats.items():
        capacity.take_seats(tx, actor.organization.id, departure_id, -count, at=changes.instant(actor, *locked))


def cancel_rows(tx: Tx, actor: Actor, locked: Sequence[LockedBooking], cancellation: Cancellation) -> list[BookingRow]:
    """Cancel locked bookings of locked departures, and return their rows. The caller releases their seats.

    All locks and reads come before the first write: one statement then writes everything.
    """
    at = changes.instant(actor, *locked)
    balances = [_lock_balances(tx, actor, booking, cancellation) for booking in locked]
    rows, new_events = list[BookingRow](), list[NewEvent]()
    for booking, (redemption, payment) in zip(locked, balances, strict=True):
        restored = list[NewEvent]()
        if redemption:
            customer_id = booking.details.customer_id
            restored.append(gift_cards.restore(tx, actor, redemption, customer_id=customer_id))
        row = _cancel_row(tx, actor, booking, payment, cancellation, at)
        rendered, extra = (
            presenting.render(actor.organization, booking.with_row(row), at),
            {"reason": cancellation.reason},
        )
        new_events += [NewEvent(EventType.BOOKING_CANCELLED, row.id, rendered, extra), *restored]
        rows.append(row)
    if rows:
        events.publish(tx, actor.organization, new_events, at=at)
        tx.tally("cancellations", actor.organization.slug, len(rows))
    return rows


def _lock_balances(
    tx: Tx, actor: Actor, booking: LockedBooking, cancellation: Cancellation
) -> tuple[Redemption | None, PaymentRow | None]:
    """Lock the gift card redemption and the payment of a booking; None where there is nothing to return."""
    row, recorded_minor = booking.row, booking.details.recorded_minor
    redemption = gift_cards.lock_redemption(tx, actor, row.id) if row.gift_card_minor else None
    has_refund = cancellation.refund is RefundMode.AUTO and rules.has_refundable_payment(row, recorded_minor)
    return redemption, payments.lock(tx, actor, row.id) if has_refund else None


def _cancel_row(
    tx: Tx, actor: Actor, booking: LockedBooking, payment: PaymentRow | None, cancellation: Cancellation, at: int
) -> BookingRow:
    """Cancel one booking, settle its payment, enqueue its mails, and return its row."""
    organization = actor.organization
    status = _settle(tx, actor, booking, payment, cancellation, at)
    row = booking.row._replace(status=BookingStatus.CANCELLED, payment_status=status, updated_at=at)
    changes.write(
        tx,
        actor,
        booking,
        row,
        cancelled_at=at,
        cancel_reason=cancellation.reason,
        cancel_note=cancellation.note or None,
        expires_at=None,
    )
    if cancellation.reason is not CancelReason.ABANDONED:  # an abandoned checkout is mailed to nobody
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CANCELLATION_MAIL, row.id, at=at)
        if organization.notify_staff:  # the booking's own setting is about its creation alone (decision B17)
            outbox.enqueue(tx, organization.id, OutboxKind.STAFF_CANCELLATION_MAIL, row.id, at=at)
    # Stored here because the booking does not show whether staff kept the money or refunded it in full.
    refund = "full" if cancellation.in_full and cancellation.refund is RefundMode.AUTO else cancellation.refund
    kind = TimelineKind.BOOKING_CANCELLED
    changes.note(tx, actor, booking, kind, at=at, reason=cancellation.reason, refund=refund)
    return row


def _settle(
    tx: Tx, actor: Actor, booking: LockedBooking, payment: PaymentRow | None, cancellation: Cancellation, at: int
) -> str:
    """Settle the payment, and return its new status.

    A pending card payment fails. A paid one stays paid until the gateway has answered the refund. Payments that staff
    recorded are refunded by hand. External payments stay as they are.
    """
    row = booking.row
    if row.payment_source == PaymentSource.STRIPE and row.payment_status == PaymentStatus.PENDING:
        payments.drop(tx, actor.organization.id, booking_id=row.id, at=at)
        return PaymentStatus.FAILED
    if payment is not None:
        by_hand = not rules.is_paid_by_card(row)
        terms = RefundTerms(actor.organization, row.starts_at, actor.at, cancellation.in_full, by_hand)
        customer_id = booking.details.customer_id
        payments.request_refund(tx, actor, payment, terms, booking_id=row.id, customer_id=customer_id)
    return row.payment_status
