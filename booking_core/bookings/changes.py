"""Publish changes of a booking that no event of their own reports."""

from booking_core import events
from booking_core.bookings import queries
from booking_core.bookings.rules import BookingRow
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.models.events import EventType


def publish(tx: Tx, actor: Actor, before: BookingRow, row: BookingRow) -> None:
    """Publish `booking.updated` with the former values, if a field that the API shows is different.

    It takes the last lock of the transaction, as `events.publish` does.
    """
    if row._replace(updated_at=before.updated_at) == before:
        return
    former, shown = (queries.render(actor.organization, each) for each in (before, row))
    updated = events.updated(EventType.BOOKING_UPDATED, row.id, before=former, after=shown)
    events.publish(tx, actor.organization, [updated], at=row.updated_at)
