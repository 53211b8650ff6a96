"""From pending to confirmed: staff says so, or the card was charged (decision B8)."""

from booking_core import events, outbox, payments, timeline
from booking_core.bookings import service, store
from booking_core.bookings.service import Live
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.errors import Conflict
from booking_core.events import NewEvent
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentSource, PaymentStatus
from booking_core.models.events import EventType
from booking_core.outbox import OutboxKind
from booking_core.timeline import TimelineKind


def confirm(tx: Tx, actor: Actor, booking_id: str) -> bytes:
    """The booking as JSON, confirmed by staff; one that is confirmed already is given unchanged.

    Whether it was paid is another matter: a card that is charged later still settles it.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled`.
    """
    live = service.lock(tx, actor, booking_id)
    if live.row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled.")
    if live.row.status == BookingStatus.CONFIRMED:
        return service.show(actor, live.row)
    return _confirm(tx, actor, live, live.row.payment_status)


def pay(tx: Tx, actor: Actor, booking_id: str, *, payment_intent: str | None = None) -> bytes:
    """The booking as JSON, paid by card and so confirmed; one that is paid already is given unchanged.

    A booking that is still pending has its seats, also past its expiry. One that was cancelled before its payment came
    has given them back, and its guest was told so: it stays cancelled, and all of the payment is owed back.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `not_paid_by_card`; `paid_already`: by another payment, or the intent has paid for another booking.
    """
    live = service.lock(tx, actor, booking_id)
    if live.row.payment_source != PaymentSource.STRIPE:
        raise Conflict("not_paid_by_card", "The booking waits for no card payment.")
    if live.row.status == BookingStatus.CANCELLED:
        return _return_late(tx, actor, live, payment_intent)
    customer_id = live.locked.customer_id
    payments.receive(tx, actor, booking_id=booking_id, payment_intent=payment_intent, customer_id=customer_id)
    if live.row.payment_status != PaymentStatus.PENDING:
        return service.show(actor, live.row)
    if live.row.status == BookingStatus.PENDING:
        return _confirm(tx, actor, live, PaymentStatus.PAID)
    return _mark_paid(tx, actor, live)


def _return_late(tx: Tx, actor: Actor, live: Live, payment_intent: str | None) -> bytes:
    is_news = payments.return_late(
        tx,
        actor,
        booking_id=live.row.id,
        payment_intent=payment_intent,
        customer_id=live.locked.customer_id,
    )
    if not is_news:
        return service.show(actor, live.row)
    if live.locked.cancel_reason == CancelReason.ABANDONED:  # with any other the guest was written to
        kind, at = OutboxKind.BOOKING_CANCELLATION_MAIL, actor.at
        outbox.enqueue(tx, actor.organization.id, kind, live.row.id, at=at)
    return _mark_paid(tx, actor, live)


def _mark_paid(tx: Tx, actor: Actor, live: Live) -> bytes:
    row = live.row._replace(payment_status=PaymentStatus.PAID, updated_at=max(actor.at, live.row.updated_at))
    key = {"organization_id": actor.organization.id, "id": row.id}
    tx.update(store.PAY, **key, payment_status=row.payment_status, updated_at=row.updated_at)
    return service.show(actor, row)


def _confirm(tx: Tx, actor: Actor, live: Live, payment_status: str) -> bytes:
    organization = actor.organization
    at = max(actor.at, live.row.updated_at)  # a clock that steps back must not take updated_at with it
    row = live.row._replace(status=BookingStatus.CONFIRMED, payment_status=payment_status, updated_at=at)
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
    told = NewEvent(EventType.BOOKING_CONFIRMED, row.id, service.render(organization, row))
    events.publish(tx, organization, [told], at=at)
    if live.locked.send_confirmation_email:
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL, row.id, at=at)
    if live.locked.notify_staff and organization.notify_staff:
        outbox.enqueue(tx, organization.id, OutboxKind.STAFF_BOOKING_MAIL, row.id, at=at)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_CONFIRMED,
        at=at,
        customer_id=live.locked.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
    )
    return service.show(actor, row)
