"""Moving a booking to another departure: its seats are swapped in one breath, its price stays as sold."""

from booking_core import departures, events, outbox, timeline
from booking_core.bookings import sale, service, store
from booking_core.bookings.rules import BookingRow
from booking_core.bookings.service import Live
from booking_core.bookings.store import DepartureRow
from booking_core.context import Actor
from booking_core.db.engine import Tx
from booking_core.errors import Conflict, InsufficientCapacity, NotFound, Unprocessable
from booking_core.events import NewEvent
from booking_core.models.bookings import BookingStatus
from booking_core.models.events import EventType
from booking_core.outbox import OutboxKind
from booking_core.timeline import TimelineKind


def reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """The booking as JSON, on the other departure; one that is there already is given unchanged.

    Lines, totals and number of seats stay as they were sold, also when the other departure is another experience's.
    The guest's link moves with the departure's end.

    Raises:
        NotFound: the organization has no such booking, or no such departure.
        Conflict: `booking_cancelled`, `departure_cancelled`, `departure_closed` or `departure_started`.
        Unprocessable: `currency_mismatch`.
        InsufficientCapacity: the other departure has fewer seats left.
    """
    live = service.lock(tx, actor, booking_id)
    if live.row.status == BookingStatus.CANCELLED:
        raise Conflict("booking_cancelled", "The booking is cancelled.")
    if live.row.departure_id == departure_id:
        return service.show(actor, live.row)
    target = _lock_target(tx, actor, live, departure_id)
    row = _moved(live.row, target, max(actor.at, live.row.updated_at))
    _write(tx, actor, live, row)
    return service.show(actor, row)


def _lock_target(tx: Tx, actor: Actor, live: Live, departure_id: str) -> DepartureRow:
    """The other departure, if it takes the booking. Both are locked, in sorted order, so that two bookings that change
    places wait for each other and never deadlock."""
    organization = actor.organization
    wanted = [(organization.id, departure_id), (organization.id, live.row.departure_id)]
    target = store.lock_departures(tx, wanted).get(wanted[0])
    if target is None:
        raise NotFound("There is no such departure.")
    around = store.around(tx, organization.id, departure_id)
    sale.refuse_unbookable(target, organization, around.at)
    if target.currency != live.row.currency:
        raise Unprocessable.at("departure_id", f"The departure is sold in {target.currency}.", "currency_mismatch")
    left = departures.seats_available(target.seats_total, target.seats_taken, around.seats_held)
    if live.locked.seats > left:
        raise InsufficientCapacity(left)
    return target


def _moved(row: BookingRow, target: DepartureRow, at: int) -> BookingRow:
    return row._replace(
        updated_at=at,
        experience_id=target.experience_id,
        experience_title=target.title,
        experience_slug=target.slug,
        departure_id=target.id,
        starts_at=target.starts_at,
        ends_at=target.ends_at,
        duration_minutes=target.duration_minutes,
        manage_expires_at=departures.ends_at(target.starts_at, target.ends_at, target.duration_minutes),
    )


def _write(tx: Tx, actor: Actor, live: Live, row: BookingRow) -> None:
    organization, before = actor.organization, live.row
    key = {"organization_id": organization.id, "updated_at": row.updated_at}
    if live.locked.seats:
        tx.update(store.TAKE_SEATS, **key, id=before.departure_id, seats_taken=-live.locked.seats)
        tx.update(store.TAKE_SEATS, **key, id=row.departure_id, seats_taken=live.locked.seats)
    tx.update(
        store.MOVE,
        **key,
        id=row.id,
        departure_id=row.departure_id,
        experience_id=row.experience_id,
        manage_expires_at=row.manage_expires_at,
    )
    previous = {"id": before.departure_id, "starts_at": organization.zone.iso(before.starts_at)}
    shown = service.render(organization, row)
    told = NewEvent(EventType.BOOKING_RESCHEDULED, row.id, shown, {"previous_departure": previous})
    (event_id,) = events.publish(tx, organization, [told], at=row.updated_at)
    _enqueue_mails(tx, actor, live, row, event_id)


def _enqueue_mails(tx: Tx, actor: Actor, live: Live, row: BookingRow, event_id: str) -> None:
    """A booking may move more than once, so its mails are told apart by the event."""
    organization, before, at = actor.organization, live.row, row.updated_at
    kinds = [OutboxKind.BOOKING_RESCHEDULING_MAIL]
    if organization.notify_staff:  # whatever the booking says: that is about its creation alone (decision B17)
        kinds.append(OutboxKind.STAFF_RESCHEDULING_MAIL)
    for kind in kinds:
        payload = {"previous_starts_at": before.starts_at}
        outbox.enqueue(tx, organization.id, kind, row.id, at=at, payload=payload, occurrence=event_id)
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_RESCHEDULED,
        at=at,
        customer_id=live.locked.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        departure_id=row.departure_id,
        previous_departure_id=before.departure_id,
        previous_starts_at=before.starts_at,
    )
