"""Record and void payments that staff received: on site, or for an invoice (decision B20)."""

from booking_core import payments
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import changes, queries, store
from booking_core.bookings.queries import LockedBooking
from booking_core.db.engine import Tx
from booking_core.models.bookings import BookingStatus, PaymentMethod, PaymentSource, PaymentStatus

_RECORDABLE_METHODS = frozenset({PaymentMethod.PAY_ON_SITE, PaymentMethod.INVOICE})


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
    booking = queries.lock(tx, actor, booking_id)
    _require_recordable(booking)
    status = payments.record(
        tx,
        actor,
        booking_id=booking.row.id,
        currency=booking.row.currency,
        total_minor=booking.row.total_minor,
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
    found = payments.get_record(tx, actor.organization.id, record_id)
    if found is None:
        raise NotFound("There is no such recorded payment.")
    booking = queries.lock(tx, actor, found.booking_id)
    if booking.row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled, and its money was settled then.")
    status = payments.void(tx, actor, found, customer_id=booking.details.customer_id, note=note)
    return _set_payment_status(tx, actor, booking, status, -found.amount_minor)


def _require_recordable(booking: LockedBooking) -> None:
    row = booking.row
    if row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled: return the money to whoever paid it.")
    if row.payment_source == PaymentSource.STRIPE:
        message = "The booking is paid by card; `storefront pay` says that the card was charged."
        raise Conflict("paid_by_card", message)
    if row.payment_method not in _RECORDABLE_METHODS or row.payment_status != PaymentStatus.UNPAID:
        raise Conflict("paid_already", "Nothing of the booking is left to pay.")


def _set_payment_status(
    tx: Tx, actor: Actor, booking: LockedBooking, status: PaymentStatus, recorded_minor: int
) -> bytes:
    """Write the booking's new payment status, and return the booking as JSON."""
    row = booking.row._replace(payment_status=status, updated_at=max(actor.at, booking.row.updated_at))
    is_due = row.payment_method == PaymentMethod.INVOICE and status is not PaymentStatus.PAID
    tx.update(
        store.RECORD,
        organization_id=actor.organization.id,
        id=row.id,
        payment_status=status.value,
        invoice_due=is_due,
        updated_at=row.updated_at,
        recorded_minor=recorded_minor,
    )
    changes.publish(tx, actor, booking.row, row)
    return queries.read(tx, actor, row.id)
