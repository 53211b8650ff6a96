"""Change the guest of a booking: name, address, phone number and the note for staff.

The customer's record is another matter, as for a new booking (decision B5): it keeps its data, and the booking keeps
its customer.
"""

from collections.abc import Iterator
from typing import Any

from booking_core import customers, notifications
from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict
from booking_core.bookings import changes, presenting, rules
from booking_core.bookings.changes import LockedBooking
from booking_core.bookings.rules import BookingRow
from booking_core.db.engine import Tx
from booking_core.models.base import email_key
from booking_core.models.bookings import BookingGuestChange, BookingStatus
from booking_core.records import outbox
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind

_COLUMNS = {"name": "guest_name", "email": "guest_email", "phone": "guest_phone", "note": "note"}


def change_guest(tx: Tx, actor: Actor, booking_id: str, change: BookingGuestChange) -> bytes:
    """Change the guest of a booking, and return the booking as JSON. The same data leaves the booking unchanged.

    A new address, other than in its capital letters, ends the guest's link of before. It gets the confirmation again,
    with its own link, and the mails that were written and not sent yet.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `customer_anonymized`.
    """
    booking = changes.lock(tx, actor, booking_id)
    rules.require(_refusals(booking.row))
    row = _changed_row(actor, booking, change)
    if row != booking.row:
        _write(tx, actor, booking, row)
    return presenting.render_for(actor, booking.with_row(row))


def _refusals(row: BookingRow) -> Iterator[Conflict]:
    yield from rules.refusals_of_cancelled(row)
    if (row.guest_name, row.guest_email) == (customers.ANONYMOUS, None):
        yield Conflict("customer_anonymized", "The guest's data was erased, and stays so.")


def _changed_row(actor: Actor, booking: LockedBooking, change: BookingGuestChange) -> BookingRow:
    sent: dict[str, Any] = {_COLUMNS[name]: value or None for name, value in change if value is not None}
    former = booking.row
    row = former._replace(**sent)
    if row == former:
        return former
    is_new_address = email_key(row.guest_email or "") != email_key(former.guest_email or "")
    return row._replace(email_changes=former.email_changes + is_new_address, updated_at=changes.instant(actor, booking))


def _write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow) -> None:
    """Write the row, its event and its entry in the timeline, which names the fields without their values."""
    former, at = booking.row, row.updated_at
    if row.email_changes != former.email_changes:
        _send_to_new_address(tx, actor, booking, at)
    changes.write(tx, actor, booking, row)
    changes.publish(tx, actor, booking.with_row(former), booking.with_row(row))
    fields = [name for name, column in _COLUMNS.items() if getattr(row, column) != getattr(former, column)]
    changes.note(tx, actor, booking, TimelineKind.BOOKING_GUEST_CHANGED, at=at, changed=fields)


def _send_to_new_address(tx: Tx, actor: Actor, booking: LockedBooking, at: int) -> None:
    """Send the mails that wait for the former address to the new one, and the confirmation in any case."""
    owner, kind = actor.organization.id, OutboxKind.BOOKING_CONFIRMATION_MAIL
    redirected = notifications.redirect(tx, owner, booking.row.id, at=at)
    if kind not in redirected and _is_announced(actor, booking):
        outbox.enqueue(tx, owner, kind, booking.row.id, at=at, occurrence=tokens.new_id())


def _is_announced(actor: Actor, booking: LockedBooking) -> bool:
    """Return whether the guest has the confirmation at the former address, and the departure is to come."""
    row = booking.row
    is_to_come = row.status == BookingStatus.CONFIRMED and row.starts_at > actor.at
    return is_to_come and booking.details.send_confirmation_email
