"""Reschedule a booking to another departure, in one transaction. Its price stays as sold."""

from collections.abc import Iterator
from functools import partial

from booking_core.base.context import Actor
from booking_core.base.errors import NotFound, Unprocessable
from booking_core.bookings import capacity, previews, pricing, queries, rules, store
from booking_core.bookings.previews import Change, ChangedMoney, Check
from booking_core.bookings.queries import LockedBooking
from booking_core.bookings.rules import BookingRow, LockedDeparture
from booking_core.catalogue import departures
from booking_core.db.engine import Tx
from booking_core.models.bookings import ChangeSettlement
from booking_core.models.events import EventType
from booking_core.records import events, outbox, timeline
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
    return queries.show(actor, _reschedule(tx, actor, booking_id, departure_id).booking)


def apply_reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Reschedule a booking as `reschedule` does, and return the change as JSON."""
    return previews.render(actor, _reschedule(tx, actor, booking_id, departure_id))


def preview_reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> bytes:
    """Return the change that `apply_reschedule` would make now, with each reason to refuse it. Nothing is locked.

    Raises:
        NotFound: the organization has no such booking, or no such departure.
    """
    booking = queries.read_unlocked(tx, actor, booking_id)
    found = store.find_target(tx, actor.organization.id, departure_id, at=actor.at)
    if found is None:
        raise NotFound("There is no such departure.")
    target, seats_held = found
    is_moved = booking.row.departure_id != departure_id
    checks = _checks(actor, booking, target, actor.at, seats_held) if is_moved else _own_checks(booking)
    if refused := previews.refusals(checks):
        return previews.render(actor, Change(booking.shown(booking.row), booking.details.seats, None, refused))
    row = _rescheduled_row(booking.row, target, _write_instant(actor, booking)) if is_moved else booking.row
    return previews.render(actor, _change(booking, row, target))


def _reschedule(tx: Tx, actor: Actor, booking_id: str, departure_id: str) -> Change:
    booking = queries.lock(tx, actor, booking_id)
    previews.require(_own_checks(booking))
    target = _lock_target(tx, actor, booking, departure_id)
    if booking.row.departure_id == departure_id:
        return _change(booking, booking.row, target)
    row = _rescheduled_row(booking.row, target, _write_instant(actor, booking))
    _write(tx, actor, booking, row)
    return _change(booking, row, target)


def _change(booking: LockedBooking, row: BookingRow, target: LockedDeparture) -> Change:
    """Return the change with its money: the price stays as sold, so that nothing is settled."""
    money = ChangedMoney(
        settlement=ChangeSettlement.PRICE_KEPT,
        list_price=pricing.list_price(row, target),
        balance_due=rules.unpaid_minor(row, booking.details.recorded_minor),
    )
    return Change(booking.shown(row), booking.details.seats, money)


def _own_checks(booking: LockedBooking) -> Iterator[Check]:
    yield partial(rules.require_live, booking.row)


def _checks(actor: Actor, booking: LockedBooking, target: LockedDeparture, at: int, seats_held: int) -> Iterator[Check]:
    """Yield the checks of a move to another departure, in the order of their refusals."""
    yield from _own_checks(booking)
    yield partial(capacity.require_bookable, target, actor.organization, at)
    yield partial(_require_currency, booking.row, target)
    yield partial(capacity.require_seats, target, booking.details.seats, seats_held=seats_held)


def _require_currency(row: BookingRow, target: LockedDeparture) -> None:
    if target.currency != row.currency:
        raise Unprocessable.at("departure_id", f"The departure is sold in {target.currency}.", "currency_mismatch")


def _lock_target(tx: Tx, actor: Actor, booking: LockedBooking, departure_id: str) -> LockedDeparture:
    """Lock both departures, and return the new one after checking that it can take the booking.

    They are locked in sorted order, so that two bookings that swap departures cannot deadlock.
    """
    organization = actor.organization
    wanted = [(organization.id, departure_id), (organization.id, booking.row.departure_id)]
    target = store.lock_departures(tx, wanted).get(wanted[0])
    if target is None:
        raise NotFound("There is no such departure.")
    if booking.row.departure_id != departure_id:
        context = store.get_context(tx, organization.id, departure_id)
        previews.require(_checks(actor, booking, target, context.at, context.seats_held))
    return target


def _write_instant(actor: Actor, booking: LockedBooking) -> int:
    return max(actor.at, booking.row.updated_at)  # never back, when the clock steps back


def _rescheduled_row(row: BookingRow, target: LockedDeparture, at: int) -> BookingRow:
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
        checked_in_at=None,  # of the departure before
        no_show_at=None,
    )


def _write(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow) -> None:
    organization, before = actor.organization, booking.row
    if booking.details.seats:
        seats, at = booking.details.seats, row.updated_at
        capacity.take_seats(tx, organization.id, before.departure_id, -seats, at=at)
        capacity.take_seats(tx, organization.id, row.departure_id, seats, at=at)
    tx.update(
        store.MOVE,
        organization_id=organization.id,
        id=row.id,
        updated_at=row.updated_at,
        departure_id=row.departure_id,
        experience_id=row.experience_id,
        manage_expires_at=row.manage_expires_at,
        checked_in_at=row.checked_in_at,
        no_show_at=row.no_show_at,
    )
    previous = {"id": before.departure_id, "starts_at": organization.zone.iso(before.starts_at)}
    rescheduled = events.updated(
        EventType.BOOKING_RESCHEDULED,
        row.id,
        before=queries.render(organization, before),
        after=queries.render(organization, row),
        extra={"previous_departure": previous},
    )
    (event_id,) = events.publish(tx, organization, [rescheduled], at=row.updated_at)
    _enqueue_mails(tx, actor, booking, row, event_id)
    _add_timeline_entry(tx, actor, booking, row)


def _enqueue_mails(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow, event_id: str) -> None:
    """Enqueue the mails. A booking may be rescheduled more than once, so the event identifies each mail."""
    organization, before, at = actor.organization, booking.row, row.updated_at
    kinds = [OutboxKind.BOOKING_RESCHEDULING_MAIL]
    if organization.notify_staff:  # the booking's own setting is about its creation alone (decision B17)
        kinds.append(OutboxKind.STAFF_RESCHEDULING_MAIL)
    for kind in kinds:
        payload = {"previous_starts_at": before.starts_at}
        outbox.enqueue(tx, organization.id, kind, row.id, at=at, payload=payload, occurrence=event_id)


def _add_timeline_entry(tx: Tx, actor: Actor, booking: LockedBooking, row: BookingRow) -> None:
    organization, before, at = actor.organization, booking.row, row.updated_at
    timeline.note(
        tx,
        organization.id,
        TimelineKind.BOOKING_RESCHEDULED,
        at=at,
        customer_id=booking.details.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        departure_id=row.departure_id,
        previous_departure_id=before.departure_id,
        previous_starts_at=before.starts_at,
    )
