"""Reschedule a booking to another departure, in one transaction. Its price stays as sold."""

from collections.abc import Iterator

from booking_core.base.context import Actor
from booking_core.base.errors import BookingError, NotFound, Unprocessable
from booking_core.bookings import capacity, changes, presenting, pricing, rules, store
from booking_core.bookings.changes import Change, ChangedMoney, LockedBooking
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.db.engine import Tx
from booking_core.models.bookings import ChangeSettlement
from booking_core.models.events import EventType
from booking_core.records import events, outbox
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind


def reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Reschedule a booking to another departure, and return it as JSON. The same departure leaves it unchanged.

    Lines, totals and number of seats stay as sold, even when the departure belongs to another experience. The expiry
    of the guest's link follows the end of the new departure.

    Raises:
        NotFound: the organization has no such booking, or no such departure.
        Conflict: `booking_cancelled`, `departure_cancelled`, `departure_closed` or `departure_started`.
        Unprocessable: `currency_mismatch`.
        InsufficientCapacity: the other departure has fewer available seats.
    """
    booking = changes.lock(tx, actor, booking_id)
    return presenting.render_for(actor, reschedule_locked(tx, actor, booking, departure_id).booking)


def apply_reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Reschedule a booking as `reschedule` does, and return the change as JSON."""
    booking = changes.lock(tx, actor, booking_id)
    return changes.render(actor, reschedule_locked(tx, actor, booking, departure_id))


def preview_reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Return the change that `apply_reschedule` would make now, with each reason to refuse it. Nothing is locked.

    Raises:
        NotFound: the organization has no such booking, or no such departure.
    """
    booking = changes.read(tx, actor, booking_id)
    departure_and_seats = store.read_departure(tx, actor.organization.id, departure_id, at=actor.at)
    if departure_and_seats is None:
        raise NotFound.of("departure")
    target, seats_held = departure_and_seats
    if refused := list(_refusals(actor, booking, target, actor.at, seats_held)):
        return changes.render(actor, Change(booking.as_read, booking.details.seats, None, refused))
    return changes.render(actor, _change(booking, _rescheduled_row(actor, booking, target), target))


def reschedule_locked(tx: Tx, actor: Actor, booking: LockedBooking, departure_id: str) -> Change:
    rules.require(rules.refusals_of_cancelled(booking.row))
    target = lock_target(tx, actor, booking, departure_id)
    if target is None:
        raise NotFound.of("departure")
    if booking.row.departure_id == departure_id:
        return _change(booking, booking.row, target)
    context = store.get_context(tx, actor.organization.id, departure_id)
    rules.require(_refusals(actor, booking, target, context.at, context.seats_held))
    row = _rescheduled_row(actor, booking, target)
    _write(tx, actor, booking, row)
    return _change(booking, row, target)


def lock_target(tx: Tx, actor: Actor, booking: LockedBooking, departure_id: str) -> LockedDeparture | None:
    """Lock both departures, and return the new one.

    They are locked in sorted order: two bookings that swap departures cannot deadlock.
    """
    keys = [(actor.organization.id, row_id) for row_id in (departure_id, booking.row.departure_id)]
    return store.lock_departures(tx, keys).get(keys[0])


def _refusals(
    actor: Actor, booking: LockedBooking, target: LockedDeparture, at: int, seats_held: int
) -> Iterator[BookingError]:
    """Yield each reason to refuse a move, in the order of the refusals. The same departure takes no new seats."""
    row = booking.row
    yield from rules.refusals_of_cancelled(row)
    if row.departure_id == target.id:
        return
    yield from capacity.refusals(target, actor.organization, at)[:1]
    if target.currency != row.currency:
        yield Unprocessable.at("departure_id", f"The departure is sold in {target.currency}.", "currency_mismatch")
    yield from capacity.refusals_of_seats(target, booking.details.seats, seats_held=seats_held)


def _change(booking: LockedBooking, row: BookingRow, target: LockedDeparture) -> Change:
    """Return the change with its money: the price stays as sold, and nothing is settled."""
    money = ChangedMoney(
        settlement=ChangeSettlement.PRICE_KEPT,
        list_price=pricing.list_price(row, target),
        balance_due=rules.unpaid_minor(row, booking.details.recorded_minor),
    )
    return Change(booking.with_row(row), booking.details.seats, money)


def _rescheduled_row(actor: Actor, booking: LockedBooking, target: LockedDeparture) -> BookingRow:
    if booking.row.departure_id == target.id:
        return booking.row
    return booking.row._replace(
        updated_at=changes.instant(actor, booking),
        experience_id=target.experience_id,
        experience_title=target.title,
        experience_slug=target.slug,
        departure_id=target.id,
        starts_at=target.starts_at,
        ends_at=target.ends_at,
        duration_minutes=target.duration_minutes,
        manage_expires_at=rules.ends_at(target),
        checked_in_at=None,  # of the departure before
        no_show_at=None,
    )


def _write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow) -> None:
    organization, before, seats, at = actor.organization, booking.row, booking.details.seats, row.updated_at
    if seats:
        capacity.take_seats(tx, organization.id, before.departure_id, -seats, at=at)
        capacity.take_seats(tx, organization.id, row.departure_id, seats, at=at)
    changes.write(tx, actor, booking, row)
    previous = {"id": before.departure_id, "starts_at": organization.zone.iso(before.starts_at)}
    rescheduled = events.updated(
        EventType.BOOKING_RESCHEDULED,
        row.id,
        before=presenting.render(organization, booking.with_row(before), at),
        after=presenting.render(organization, booking.with_row(row), at),
        extra={"previous_departure": previous},
    )
    (event_id,) = events.publish(tx, organization, [rescheduled], at=at)
    kinds = [OutboxKind.BOOKING_RESCHEDULING_MAIL]
    if organization.notify_staff:  # the booking's own setting is about its creation alone (decision B17)
        kinds.append(OutboxKind.STAFF_RESCHEDULING_MAIL)
    payload = {"previous_starts_at": before.starts_at}
    for kind in kinds:  # a booking may be rescheduled more than once, so the event identifies each mail
        outbox.enqueue(tx, organization.id, kind, row.id, at=at, payload=payload, occurrence=event_id)
    changes.note(
        tx,
        actor,
        booking,
        TimelineKind.BOOKING_RESCHEDULED,
        at=at,
        departure_id=row.departure_id,
        previous_departure_id=before.departure_id,
        previous_starts_at=before.starts_at,
    )
