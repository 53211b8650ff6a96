"""Confirm a pending booking: by staff, or because its card was charged (decision B8)."""

from booking_core import payments
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict
from booking_core.bookings import changes, queries, store
from booking_core.bookings.queries import LockedBooking
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentSource, PaymentStatus
from booking_core.models.events import EventType
from booking_core.records import events, outbox, timeline
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind


def confirm(tx: Tx, actor: Actor, booking_id: str) -> bytes:
    """Confirm a booking as staff, and return it as JSON. A confirmed booking stays unchanged.

    The payment stays as it is; a card that is charged later still settles it.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled`.
    """
    booking = queries.lock(tx, actor, booking_id)
    if booking.row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled.")
    if booking.row.status == BookingStatus.CONFIRMED:
        return queries.read(tx, actor, booking_id)
    return _confirm(tx, actor, booking, booking.row.payment_status)


def pay(tx: Tx, actor: Actor, booking_id: str, *, payment_intent: str | None = None) -> bytes:
    """Mark a booking as paid by card, which confirms it, and return it as JSON. A paid booking stays unchanged.

    A pending booking keeps its seats, even past its expiry. A booking that was cancelled before its payment arrived
    has given its seats back and its guest was notified: it stays cancelled, and the payment is refunded in full.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `not_paid_by_card`, or `paid_already` by another payment.
    """
    booking = queries.lock(tx, actor, booking_id)
    if booking.row.payment_source != PaymentSource.STRIPE:
        raise Conflict("not_paid_by_card", "The booking waits for no card payment.")
    if booking.row.status == BookingStatus.CANCELLED:
        return _return_late(tx, actor, booking, payment_intent)
    customer_id = booking.details.customer_id
    payments.receive(tx, actor, booking_id=booking_id, payment_intent=payment_intent, customer_id=customer_id)
    if booking.row.payment_status != PaymentStatus.PENDING:
        return queries.read(tx, actor, booking_id)
    if booking.row.status == BookingStatus.PENDING:
        return _confirm(tx, actor, booking, PaymentStatus.PAID)
    return _mark_paid(tx, actor, booking)


def _return_late(tx: Tx, actor: Actor, booking: LockedBooking, payment_intent: str | None) -> bytes:
    is_new = payments.return_late(
        tx,
        actor,
        booking_id=booking.row.id,
        payment_intent=payment_intent,
        customer_id=booking.details.customer_id,
    )
    if not is_new:
        return queries.read(tx, actor, booking.row.id)
    if booking.details.cancel_reason == CancelReason.ABANDONED:  # any other reason has sent this mail before
        kind, at = OutboxKind.BOOKING_CANCELLATION_MAIL, actor.at
        outbox.enqueue(tx, actor.organization.id, kind, booking.row.id, at=at)
    return _mark_paid(tx, actor, booking)


def _mark_paid(tx: Tx, actor: Actor, booking: LockedBooking) -> bytes:
    """Mark a booking whose status stays as paid; no other event than `booking.updated` reports it."""
    row = booking.row._replace(payment_status=PaymentStatus.PAID, updated_at=max(actor.at, booking.row.updated_at))
    key = {"organization_id": actor.organization.id, "id": row.id}
    tx.update(store.PAY, **key, payment_status=row.payment_status, updated_at=row.updated_at)
    changes.publish(tx, actor, booking.row, row)
    return queries.read(tx, actor, row.id)


def _confirm(tx: Tx, actor: Actor, booking: LockedBooking, payment_status: str) -> bytes:
    organization = actor.organization
    at = max(actor.at, booking.row.updated_at)  # never back, when the clock steps back
    row = booking.row._replace(status=BookingStatus.CONFIRMED, payment_status=payment_status, updated_at=at)
    tx.update(
        store.CONFIRM,
        organization_id=organization.id,
        id=row.id,
        status=row.status,
        payment_status=row.payment_status,
        confirmed_at=at,
        expires_at=None,
        updated_at=at,
    )
    confirmed = NewEvent(EventType.BOOKING_CONFIRMED, row.id, queries.render(organization, row))
    events.publish(tx, organization, [confirmed], at=at)
    if booking.details.send_confirmation_email:
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL, row.id, at=at)
    if booking.details.notify_staff and organization.notify_staff:
        outbox.enqueue(tx, organization.id, OutboxKind.STAFF_BOOKING_MAIL, row.id, at=at)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_CONFIRMED,
        at=at,
        customer_id=booking.details.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
    )
    return queries.read(tx, actor, row.id)
