"""Check the guests of a booking in, or record that they did not come.

Staff may correct itself at any time: the last word counts, and each one stands in the timeline and is published as
`booking.updated`.
"""

from booking_core import timeline
from booking_core.bookings import changes, queries, store
from booking_core.bookings.queries import LockedBooking
from booking_core.bookings.rules import BookingRow
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.errors import Conflict
from booking_core.models.bookings import BookingStatus
from booking_core.timeline import TimelineKind


def check_in(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Check the guests in, and return the booking as JSON. A booking that is checked in stays unchanged.

    Args:
        undo: take the check-in back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    booking = queries.lock(tx, actor, booking_id)
    row, at = booking.row, _write_instant(actor, booking)
    if undo:
        row = row._replace(checked_in_at=None)
    else:
        _require_confirmed(row)
        row = row._replace(checked_in_at=row.checked_in_at or at, no_show_at=None)
    kind = TimelineKind.BOOKING_CHECK_IN_UNDONE if undo else TimelineKind.BOOKING_CHECKED_IN
    return _write(tx, actor, booking, row, kind, at)


def record_no_show(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Record that the guests did not come, and return the booking as JSON. One that is recorded stays unchanged.

    A no-show keeps its seats and its money: cancelling is another decision.

    Args:
        undo: take the record back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    booking = queries.lock(tx, actor, booking_id)
    row, at = booking.row, _write_instant(actor, booking)
    if undo:
        row = row._replace(no_show_at=None)
    else:
        _require_confirmed(row)
        row = row._replace(no_show_at=row.no_show_at or at, checked_in_at=None)
    kind = TimelineKind.BOOKING_NO_SHOW_UNDONE if undo else TimelineKind.BOOKING_NO_SHOW
    return _write(tx, actor, booking, row, kind, at)


def _write_instant(actor: Actor, booking: LockedBooking) -> int:
    return max(actor.at, booking.row.updated_at)  # never back, when the clock steps back


def _require_confirmed(row: BookingRow) -> None:
    if row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled.")
    if row.status == BookingStatus.PENDING:
        raise Conflict("booking_pending", "The booking is not confirmed yet.")


def _write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow, kind: TimelineKind, at: int) -> bytes:
    if row == booking.row:
        return queries.show(actor, row)
    row = row._replace(updated_at=at)
    organization_id = actor.organization.id
    tx.update(
        store.ATTEND,
        organization_id=organization_id,
        id=row.id,
        checked_in_at=row.checked_in_at,
        no_show_at=row.no_show_at,
        updated_at=at,
    )
    timeline.note(
        tx,
        organization_id,
        kind,
        at=at,
        customer_id=booking.details.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        departure_id=row.departure_id,
    )
    changes.publish(tx, actor, booking.row, row)
    return queries.show(actor, row)
