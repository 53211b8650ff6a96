"""Change the status of a booking, its payment or its attendance: confirmed, paid, checked in, or not shown up."""

from typing import Any

from booking_core import payments
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import changes, presenting, rules
from booking_core.bookings.changes import LockedBooking
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus, CancelReason, PaymentMethod, PaymentSource, PaymentStatus
from booking_core.models.events import EventType
from booking_core.records import events, outbox
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

# Confirmed and paid by card (decision B8) ----------------------------------------------------------------------------


def confirm(tx: Tx, actor: Actor, booking_id: str) -> bytes:
    """Confirm a booking as staff, and return it as JSON. A confirmed booking stays unchanged.

    The payment stays as it is; a card that is charged later still settles it.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled`.
    """
    booking = changes.lock(tx, actor, booking_id)
    rules.require(rules.refusals_of_cancelled(booking.row))
    if booking.row.status == BookingStatus.CONFIRMED:
        return presenting.render_for(actor, booking.as_read)
    return _confirm(tx, actor, booking, booking.row.payment_status)


def pay(tx: Tx, actor: Actor, booking_id: str, *, payment_intent: str | None = None) -> bytes:
    """Mark a booking as paid by card, which confirms it, and return it as JSON. A paid booking stays unchanged.

    A pending booking keeps its seats, even past its expiry. A booking that was cancelled before its payment arrived
    has given its seats back and its guest was notified: it stays cancelled, and the payment is refunded in full.

    Args:
        payment_intent: the gateway's name for the payment, for its refund.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `not_paid_by_card`; `paid_already`: by another payment, or the intent has paid for another booking.
    """
    booking = changes.lock(tx, actor, booking_id)
    if booking.row.payment_source != PaymentSource.STRIPE:
        raise Conflict("not_paid_by_card", "The booking waits for no card payment.")
    payment = {"payment_intent": payment_intent, "customer_id": booking.details.customer_id}
    if booking.row.status == BookingStatus.CANCELLED:
        if not payments.return_late(tx, actor, booking_id=booking_id, **payment):
            return presenting.render_for(actor, booking.as_read)
        if booking.details.cancel_reason == CancelReason.ABANDONED:  # any other reason has sent this mail before
            kind, at = OutboxKind.BOOKING_CANCELLATION_MAIL, actor.at
            outbox.enqueue(tx, actor.organization.id, kind, booking_id, at=at)
        return _set_payment_status(tx, actor, booking, PaymentStatus.PAID)
    payments.receive(tx, actor, booking_id=booking_id, **payment)
    if booking.row.payment_status != PaymentStatus.PENDING:
        return presenting.render_for(actor, booking.as_read)
    if booking.row.status == BookingStatus.PENDING:
        return _confirm(tx, actor, booking, PaymentStatus.PAID)
    return _set_payment_status(tx, actor, booking, PaymentStatus.PAID)


def _confirm(tx: Tx, actor: Actor, booking: LockedBooking, payment_status: str) -> bytes:
    organization, at = actor.organization, changes.instant(actor, booking)
    row = booking.row._replace(status=BookingStatus.CONFIRMED, payment_status=payment_status, updated_at=at)
    changes.write(tx, actor, booking, row, confirmed_at=at, expires_at=None)
    after = changes.reread(tx, actor, row.id)
    confirmed = NewEvent(EventType.BOOKING_CONFIRMED, row.id, presenting.render(organization, after, at))
    events.publish(tx, organization, [confirmed], at=at)
    if booking.details.send_confirmation_email:
        outbox.enqueue(tx, organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL, row.id, at=at)
    if booking.details.notify_staff and organization.notify_staff:
        outbox.enqueue(tx, organization.id, OutboxKind.STAFF_BOOKING_MAIL, row.id, at=at)
    changes.note(tx, actor, booking, TimelineKind.BOOKING_CONFIRMED, at=at)
    return presenting.render_for(actor, after)


def _set_payment_status(
    tx: Tx, actor: Actor, booking: LockedBooking, status: PaymentStatus, recorded_minor: int = 0
) -> bytes:
    """Write the new payment status of a booking whose status stays, and return the booking as JSON."""
    row = booking.row._replace(payment_status=status, updated_at=changes.instant(actor, booking))
    is_due = row.payment_method == PaymentMethod.INVOICE and status is not PaymentStatus.PAID
    recorded_minor += booking.details.recorded_minor
    changes.write(tx, actor, booking, row, invoice_due=is_due, recorded_minor=recorded_minor)
    after = changes.reread(tx, actor, row.id)
    changes.publish(tx, actor, booking.as_read, after)
    return presenting.render_for(actor, after)


# Paid to staff, on site or for an invoice (decision B20) -------------------------------------------------------------


def record_payment(
    tx: Tx,
    actor: Actor,
    booking_id: str,
    *,
    amount_minor: int,
    method: str | None = None,
    note: str | None = None,
    received_at: int | None = None,
) -> bytes:
    """Record a payment that staff received, and return the booking as JSON.

    The booking becomes paid when its recorded payments reach its total.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled`, `paid_already`, or `paid_by_card`: only the storefront reports card payments.
        Malformed, Unprocessable: as `payments.record`.
    """
    booking = changes.lock(tx, actor, booking_id)
    row = booking.row
    if row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled: return the money to the payer.")
    if row.payment_source == PaymentSource.STRIPE:
        message = "The booking is paid by card; `storefront pay` says that the card was charged."
        raise Conflict("paid_by_card", message)
    is_recordable = row.payment_method in (PaymentMethod.PAY_ON_SITE, PaymentMethod.INVOICE)
    if not is_recordable or row.payment_status != PaymentStatus.UNPAID:
        raise Conflict("paid_already", "The booking is fully paid.")
    status = payments.record(
        tx,
        actor,
        booking_id=row.id,
        currency=row.currency,
        total_minor=row.total_minor,
        amount_minor=amount_minor,
        customer_id=booking.details.customer_id,
        method=method,
        note=note,
        received_at=received_at,
    )
    return _set_payment_status(tx, actor, booking, status, amount_minor)


def void_payment(tx: Tx, actor: Actor, record_id: str, *, note: str | None = None) -> bytes:
    """Void a recorded payment that was a mistake, and return the booking as JSON.

    Raises:
        NotFound: the organization has no such record.
        Conflict: `booking_cancelled`, `payment_voided` or `refund_exists`.
        Malformed: as `payments.void`.
    """
    record = payments.get_record(tx, actor.organization.id, record_id)
    if record is None:
        raise NotFound.of("recorded payment")
    booking = changes.lock(tx, actor, record.booking_id)
    if booking.row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled, and its money was settled then.")
    status = payments.void(tx, actor, record, customer_id=booking.details.customer_id, note=note)
    return _set_payment_status(tx, actor, booking, status, -record.amount_minor)


# Attended. Staff may correct itself at any time: the last word counts, and each one is in the timeline ---------------


def check_in(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Check the guests in, and return the booking as JSON. A booking that is checked in stays unchanged.

    Args:
        undo: take the check-in back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    kind = TimelineKind.BOOKING_CHECK_IN_UNDONE if undo else TimelineKind.BOOKING_CHECKED_IN
    return _attend(tx, actor, booking_id, "checked_in_at", "no_show_at", kind, undo=undo)


def record_no_show(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Record that the guests did not come, and return the booking as JSON. A recorded no-show stays unchanged.

    A no-show keeps its seats and its money: cancelling is another decision.

    Args:
        undo: take the record back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    kind = TimelineKind.BOOKING_NO_SHOW_UNDONE if undo else TimelineKind.BOOKING_NO_SHOW
    return _attend(tx, actor, booking_id, "no_show_at", "checked_in_at", kind, undo=undo)


def _attend(tx: Tx, actor: Actor, booking_id: str, column: str, other: str, kind: TimelineKind, *, undo: bool) -> bytes:
    """Set the column of a record of staff and clear the other, or clear the column alone."""
    booking = changes.lock(tx, actor, booking_id)
    at = changes.instant(actor, booking)
    if undo:
        values: dict[str, Any] = {column: None}
    else:
        rules.require(rules.refusals_of_unconfirmed(booking.row))
        values = {column: getattr(booking.row, column) or at, other: None}
    row = booking.row._replace(**values)
    if row != booking.row:
        row = row._replace(updated_at=at)
        changes.write(tx, actor, booking, row)
        changes.note(tx, actor, booking, kind, at=at, departure_id=row.departure_id)
        changes.publish(tx, actor, booking.as_read, booking.with_row(row))
    return presenting.render_for(actor, booking.with_row(row))
