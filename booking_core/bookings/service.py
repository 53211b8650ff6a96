"""Reading and cancelling bookings."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import orjson

from booking_core import departures, effects, outbox, timeline
from booking_core.bookings import rules, store
from booking_core.bookings.rules import BookingRow
from booking_core.caller import Caller
from booking_core.clock import Zone
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import Page, PageRequest
from booking_core.db.writes import Writes
from booking_core.effects import EffectKind
from booking_core.errors import NotFound
from booking_core.outbox import Told
from booking_core.timeline import TimelineKind
from booking_core.wire.bookings import BookingCancel, BookingStatus, CancelReason
from booking_core.wire.events import EventType
from booking_core.wire.limits import WINDOW_DAYS_MAX
from booking_core.wire.scopes import Scope


def _links(caller: Caller) -> Callable[[BookingRow], str | None]:
    """The guest's link of a booking, for keys that may write bookings; null for all others."""
    if not caller.has(Scope.BOOKINGS_WRITE):
        return lambda row: None
    links, at = rules.ManageLinks(caller.installation, caller.organization.id), caller.at
    return lambda row: links.of(row, at)


def find(
    tx: Tx,
    caller: Caller,
    page: PageRequest,
    *,
    status: BookingStatus | None = None,
    experience_id: str | None = None,
    departure_from: date | None = None,
    departure_to: date | None = None,
    updated_since: int | None = None,
) -> Page:
    """A page of bookings.

    Raises:
        Unprocessable: the window of departures is reversed, or wider than 92 days.
    """
    window = _window(caller.organization.zone, departure_from, departure_to)

    zone, link = caller.organization.zone, _links(caller)

    def present(row: Row) -> dict[str, Any]:
        booking = BookingRow._make(row)
        return rules.present(booking, zone, link(booking))

    return store.WALK.find(
        tx,
        caller,
        page,
        present,
        status=status,
        experience_id=experience_id,
        window=window,
        updated_since=updated_since,
    )


def _window(zone: Zone, first: date | None, last: date | None) -> dict[str, int] | None:
    """The instants that bound a window of local days; a missing end lies 92 days from the other."""
    if first is None and last is None:
        return None
    span = timedelta(days=WINDOW_DAYS_MAX)
    if first is None:
        assert last is not None
        first = last - span if last - date.min >= span else date.min
    if last is None:
        last = first + span if date.max - first >= span else date.max
    departs_from, departs_before = departures.window(zone, first, last, field="departure_to")
    return {"departs_from": departs_from, "departs_before": departs_before}


def get(tx: Tx, caller: Caller, booking_id: str) -> dict[str, Any]:
    """One booking.

    Raises:
        NotFound: the organization has no such booking.
    """
    row = store.get(tx, caller.organization.id, booking_id)
    if row is None:
        raise NotFound
    return rules.present(row, caller.organization.zone, _links(caller)(row))


def cancel(tx: Tx, caller: Caller, pending: Writes, booking_id: str, request: BookingCancel) -> bytes:
    """The cancelled booking as JSON; one that is cancelled already is given unchanged, and nothing is written.

    Seats go back to the departure, and `booking.cancelled` is told, in the transaction that `pending` is written in.

    Raises:
        NotFound: the organization has no such booking.
    """
    organization = caller.organization
    locked = store.lock(tx, organization.id, booking_id)
    row = store.get(tx, organization.id, booking_id) if locked else None
    if locked is None or row is None:
        raise NotFound
    if row.status == BookingStatus.CANCELLED:
        return rules.with_link(orjson.dumps(rules.present(row, organization.zone)), _links(caller)(row))
    at = max(caller.at, row.updated_at)  # a clock that steps back must not take updated_at with it
    row = row._replace(status=BookingStatus.CANCELLED, updated_at=at)
    _give_seats_back(tx, pending, organization.id, row.departure_id, locked.seats, at)
    pending.change(
        store.CANCEL,
        organization_id=organization.id,
        id=booking_id,
        status=BookingStatus.CANCELLED,
        cancelled_at=at,
        cancel_reason=CancelReason.API,
        cancel_note=request.reason or None,
        updated_at=at,
    )
    shown = orjson.dumps(rules.present(row, organization.zone))
    told = Told(EventType.BOOKING_CANCELLED, booking_id, shown, {"reason": CancelReason.API})
    outbox.publish(tx, pending, organization, [told], at=at)
    _owe_for_cancellation(pending, caller, row, locked, at)
    return rules.with_link(shown, _links(caller)(row))


def _give_seats_back(tx: Tx, pending: Writes, organization_id: str, departure_id: str, seats: int, at: int) -> None:
    store.lock_departures(tx, [(organization_id, departure_id)])  # before the counters, as everywhere
    change = {"organization_id": organization_id, "id": departure_id, "updated_at": at, "seats_taken": -seats}
    pending.change(store.TAKE_SEATS, **change)


def _owe_for_cancellation(pending: Writes, caller: Caller, row: BookingRow, locked: store.Locked, at: int) -> None:
    organization = caller.organization
    effects.owe(pending, organization.id, EffectKind.BOOKING_CANCELLATION_MAIL, row.id, at=at)
    if organization.notify_staff:
        effects.owe(pending, organization.id, EffectKind.STAFF_CANCELLATION_MAIL, row.id, at=at)
    timeline.note(
        pending,
        organization.id,
        TimelineKind.BOOKING_CANCELLED,
        at=at,
        customer_id=locked.customer_id,
        booking_id=row.id,
        booking_number=row.booking_number,
        reason=CancelReason.API,
    )
