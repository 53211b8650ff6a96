"""Publish changes of a booking that no event of their own reports."""

from collections.abc import Iterator, Sequence

from booking_core.base.context import Actor
from booking_core.bookings import queries
from booking_core.bookings.rules import BookingRow
from booking_core.db.engine import Tx
from booking_core.models.events import EventType
from booking_core.records import events
from booking_core.records.events import NewEvent


def publish(tx: Tx, actor: Actor, before: BookingRow, row: BookingRow, also: Sequence[NewEvent] = ()) -> None:
    """Publish `booking.updated` with the former values, if a field that the API shows is different.

    It takes the last lock of the transaction, as `events.publish` does.

    Args:
        also: events of the same transaction, which come after it.
    """
    new_events = [*_updated(actor, before, row), *also]
    if new_events:
        events.publish(tx, actor.organization, new_events, at=row.updated_at)


def _updated(actor: Actor, before: BookingRow, row: BookingRow) -> Iterator[NewEvent]:
    if row._replace(updated_at=before.updated_at) != before:
        former, shown = (queries.render(actor.organization, each) for each in (before, row))
        yield events.updated(EventType.BOOKING_UPDATED, row.id, before=former, after=shown)
