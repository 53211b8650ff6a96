"""Check the guests of a booking in, or record that they did not come.

Staff may correct itself at any time: the last word counts, and each one stands in the timeline and is published as
`booking.updated`.
"""

from dataclasses import dataclass
from typing import Any

from booking_core.base.context import Actor
from booking_core.bookings import changes, queries, rules, store
from booking_core.bookings.queries import LockedBooking
from booking_core.bookings.rules import BookingRow
from booking_core.db.engine import Tx
from booking_core.records import timeline
from booking_core.records.timeline import TimelineKind


@dataclass(frozen=True, slots=True)
class _Attendance:
    """The column that a record of staff sets, the one that it clears, and its entries of the timeline."""

    column: str
    other: str
    kind: TimelineKind
    undone: TimelineKind


_CHECK_IN = _Attendance(
    "checked_in_at", "no_show_at", TimelineKind.BOOKING_CHECKED_IN, TimelineKind.BOOKING_CHECK_IN_UNDONE
)
_NO_SHOW = _Attendance("no_show_at", "checked_in_at", TimelineKind.BOOKING_NO_SHOW, TimelineKind.BOOKING_NO_SHOW_UNDONE)


def check_in(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Check the guests in, and return the booking as JSON. A booking that is checked in stays unchanged.

    Args:
        undo: take the check-in back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    return _attend(tx, actor, booking_id, _CHECK_IN, undo=undo)


def record_no_show(tx: Tx, actor: Actor, booking_id: str, *, undo: bool = False) -> bytes:
    """Record that the guests did not come, and return the booking as JSON. One that is recorded stays unchanged.

    A no-show keeps its seats and its money: cancelling is another decision.

    Args:
        undo: take the record back; without one nothing changes.

    Raises:
        NotFound: the organization has no such booking.
        Conflict: `booking_cancelled` or `booking_pending`.
    """
    return _attend(tx, actor, booking_id, _NO_SHOW, undo=undo)


def _attend(tx: Tx, actor: Actor, booking_id: str, attendance: _Attendance, *, undo: bool) -> bytes:
    booking = queries.lock(tx, actor, booking_id)
    row, at = booking.row, max(actor.at, booking.row.updated_at)  # never back, when the clock steps back
    if undo:
        changes: dict[str, Any] = {attendance.column: None}
    else:
        rules.require_confirmed(row)
        changes = {attendance.column: getattr(row, attendance.column) or at, attendance.other: None}
    kind = attendance.undone if undo else attendance.kind
    return _write(tx, actor, booking, row._replace(**changes), kind, at)


def _write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow, kind: TimelineKind, at: int) -> bytes:
    if row == booking.row:
        return queries.show(actor, booking.shown(row))
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
    return queries.show(actor, booking.shown(row))
