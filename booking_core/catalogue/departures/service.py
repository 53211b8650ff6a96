"""Public functions of departures. Ids are canonical UUIDs in lower case; the interfaces normalize them."""

from collections import defaultdict
from datetime import date
from typing import Any

import orjson

from booking_core import organizations
from booking_core.base.clock import Zone
from booking_core.base.context import Actor, Organization
from booking_core.base.errors import Conflict, Malformed, NotFound
from booking_core.catalogue.departures import rules, store
from booking_core.catalogue.departures.rules import DepartureRow
from booking_core.db import tables
from booking_core.db.engine import Row, Tx
from booking_core.db.paging import JsonPage, envelope
from booking_core.models.departures import DepartureStatus
from booking_core.models.limits import COUNT_MAX
from booking_core.records import departure_touches


def find_available(
    tx: Tx, actor: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> JsonPage:
    """Return the departures that start on the local days from `date_from` to `date_to`, both included, on one page.

    They are sorted by start, then id, and show their current seats (decision L4). `date_to` defaults to 30 days after
    `date_from`. Departures of unpublished experiences are included; an unknown experience has no departures.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    rows = _available(tx, actor, date_from, date_to, experience_id)
    return envelope(list(map(rules.presenter(*_rules_of(actor)), rows)), None)


def render_available(
    tx: Tx, actor: Actor, *, date_from: date, date_to: date | None = None, experience_id: str | None = None
) -> bytes:
    """Return the page of `find_available` as JSON; unchanged departures are not rendered again.

    Raises:
        Unprocessable: the window is reversed, or wider than 92 days.
    """
    rows = _available(tx, actor, date_from, date_to, experience_id)
    return orjson.dumps(envelope(list(map(rules.renderer(*_rules_of(actor)), rows)), None))


def _available(tx: Tx, actor: Actor, date_from: date, date_to: date | None, experience_id: str | None) -> list[Row]:
    last = rules.default_last_day(date_from) if date_to is None else date_to
    start, end = rules.window(actor.organization.zone, date_from, last, field="to")
    return store.available(tx, actor.organization.id, start=start, end=end, experience_id=experience_id, at=actor.at)


def _rules_of(actor: Actor) -> tuple[Zone, int, int]:
    """Return what the presentation of a departure depends on besides its row."""
    return actor.organization.zone, actor.organization.hours_before_booking_closes, actor.at


def find_between(tx: Tx, actor: Actor, first: int, last: int, *, experience_id: str) -> list[dict[str, Any]]:
    """Return the departures of an experience that start from one instant to another, both included."""
    id_ = actor.organization.id
    rows = store.available(tx, id_, start=first, end=last + 1, experience_id=experience_id, at=actor.at)
    return list(map(rules.presenter(*_rules_of(actor)), rows))


def find_start_times(
    tx: Tx, actor: Actor, date_from: date, *, experience_id: str | None = None
) -> dict[str, list[str]]:
    """Return the local times at which the departures of the 31 days from `date_from` start, by experience.

    The clocks change once in that time at most, so the first and the last start at a time in UTC have all its local
    times.
    """
    zone = actor.organization.zone
    start, end = rules.window(zone, date_from, rules.default_last_day(date_from), field="to")
    local: dict[str, set[str]] = defaultdict(set)
    for name, *starts in store.times(tx, actor.organization.id, start=start, end=end, experience_id=experience_id):
        local[name].update(f"{zone.wall(at):%H:%M}" for at in starts)
    return {name: sorted(times) for name, times in local.items()}


def get(tx: Tx, actor: Actor, departure_id: str) -> dict[str, Any]:
    """Return the departure in the shape of availability.

    Raises:
        NotFound: the organization has no such departure.
    """
    row = store.get(tx, actor.organization.id, departure_id, actor.at)
    if row is None:
        raise NotFound.of("departure")
    return _present(actor, row)


def organizations_of(tx: Tx, departure_id: str) -> list[Organization]:
    """Return the organizations that have a departure with that id.

    A catalogue that was imported into two organizations gives both the same ids.
    """
    return organizations.owners(tx, tables.departures, departure_id)


def lock(tx: Tx, actor: Actor, departure_id: str) -> DepartureRow:
    """Lock the departure until the transaction ends, and return it.

    Raises:
        NotFound: the organization has no such departure.
    """
    row = store.lock(tx, actor.organization.id, departure_id, actor.at)
    if row is None:
        raise NotFound.of("departure")
    return row


def _present(actor: Actor, row: DepartureRow) -> dict[str, Any]:
    return rules.presenter(*_rules_of(actor))(row)


def close(tx: Tx, actor: Actor, departure_id: str) -> bytes:
    """Close the departure for booking, and return it as JSON. Its bookings stay.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`.
    """
    return _set_status(tx, actor, departure_id, DepartureStatus.CLOSED)


def reopen(tx: Tx, actor: Actor, departure_id: str) -> bytes:
    """Reopen the departure for booking, and return it as JSON. It stays closed once its closing time has passed.

    Raises:
        NotFound: the organization has no such departure.
        Conflict: `departure_cancelled`, because its guests have been notified.
    """
    return _set_status(tx, actor, departure_id, DepartureStatus.OPEN)


def _set_status(tx: Tx, actor: Actor, departure_id: str, status: DepartureStatus) -> bytes:
    row = _lock_uncancelled(tx, actor, departure_id)
    if row.status != status:
        key = {"organization_id": actor.organization.id, "id": departure_id}
        tx.update(store.SET_STATUS, **key, status=str(status), updated_at=actor.at, announce_at=actor.at)
    return orjson.dumps(_present(actor, row._replace(status=str(status))))


def set_seats(tx: Tx, actor: Actor, departure_id: str, seats_total: int, *, allow_oversold: bool = True) -> bytes:
    """Set the total number of seats, and return the departure as JSON.

    A total below the number of sold seats cancels no booking; no seat is available then.

    Args:
        allow_oversold: accept a total below the number of sold seats.

    Raises:
        NotFound: the organization has no such departure.
        Malformed: `seats_total` is out of range.
        Conflict: `departure_cancelled`, or `seats_sold`.
    """
    if not 0 <= seats_total <= COUNT_MAX:
        raise Malformed.at("seats_total", f"must be a whole number from 0 to {COUNT_MAX}", "out_of_range")
    row = _lock_uncancelled(tx, actor, departure_id)
    if seats_total < row.seats_taken and not allow_oversold:
        raise Conflict("seats_sold", f"{row.seats_taken} seats are sold, more than {seats_total}.", "seats_total")
    if row.seats_total != seats_total:
        departure_touches.resize(tx, actor.organization.id, {departure_id: seats_total}, at=actor.at)
        departure_touches.touch(tx, actor.organization.id, [departure_id], at=actor.at)
    return orjson.dumps(_present(actor, row._replace(seats_total=seats_total)))


def _lock_uncancelled(tx: Tx, actor: Actor, departure_id: str) -> DepartureRow:
    row = lock(tx, actor, departure_id)
    if row.status == DepartureStatus.CANCELLED:
        raise Conflict("departure_cancelled", "The departure is cancelled.")
    return row
