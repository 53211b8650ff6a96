"""Announces departures as `departure.updated`: the worker publishes those that have changed since their last event.

A departure is looked at when `announce_at` has come. It has at most one event in a window, with its state at that time,
and none when it looks as it did in its last event.
"""

from collections.abc import Sequence
from typing import NamedTuple

import orjson
from sqlalchemy import BigInteger, and_, bindparam, func, select

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.catalogue.departures import rules, store
from booking_core.catalogue.departures.rules import DepartureRow
from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, OWNER, Statement, as_ids, in_rows, is_of
from booking_core.db.tables import departures, holds
from booking_core.db.tables import events as events_table
from booking_core.due_work.rows import DueRows, Processed
from booking_core.models.events import EventType
from booking_core.records import events
from booking_core.records.departure_touches import IS_WANTED, WINDOW
from booking_core.records.events import NewEvent

TOUCHED = DueRows(departures, departures.c.announce_at, departures.c.id, (departures.c.announce_at.is_not(None),))


_LOCK_DUE = Statement(
    select(departures.c.id, IS_WANTED)
    .where(
        departures.c.organization_id == OWNER,
        in_rows(departures.c.id, "wanted", "id"),
        departures.c.announce_at <= select(NOW).scalar_subquery(),
    )
    .order_by(departures.c.id)
    .with_for_update(key_share=True, of=departures)
)


class _State(NamedTuple):
    """A departure as it is now, and as its last event shows it."""

    row: DepartureRow
    hold_ends_at: int | None
    """The next end of a hold."""
    announced_at: int | None
    announced: str | None
    """The body of its last event."""


_AT = bindparam("at", type_=BigInteger)
_events, _last = events_table.c, events_table.alias("last")
_LAST_SEQUENCE = (
    select(func.max(_events.occurrence))
    .where(is_of(_events, departures.c, resource_id="id"), _events.type == EventType.DEPARTURE_UPDATED.value)
    .correlate(departures)
    .scalar_subquery()
)
_HOLD_ENDS_AT = (
    select(func.min(holds.c.expires_at))
    .where(is_of(holds.c, departures.c, departure_id="id"), store.hold_is_live(_AT))
    .correlate(departures)
    .scalar_subquery()
)
_is_last = and_(_last.c.organization_id == departures.c.organization_id, _last.c.sequence == _LAST_SEQUENCE)
_STATES = Statement(
    store.select_rows()
    .add_columns(_HOLD_ENDS_AT, _last.c.created_at, _last.c.body)
    .join(_last, _is_last, isouter=True)
    .where(departures.c.organization_id == OWNER, in_rows(departures.c.id, "wanted", "id"))
    .order_by(departures.c.id)
)
_WIDTH = len(DepartureRow._fields)


def announce(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> Processed[bool]:
    """Publish the departures that are due and differ from their last event.

    A departure that was announced less than the window ago is deferred. One with seats on hold is looked at again when
    the next hold ends, since that is no event.

    Returns:
        As a result for each departure that was due: True if it was published.
    """
    locked = tx.all(_LOCK_DUE, organization_id=organization_id, wanted=as_ids(departure_ids))
    if not locked:
        return Processed()
    due = [str(departure_id) for departure_id, _ in locked]
    organization, at = organizations.by_id(tx, organization_id), tx.now()
    ids = as_ids(departure_id for departure_id, is_wanted in locked if is_wanted)
    rows = tx.all(_STATES, organization_id=organization_id, wanted=ids, at=at)
    states = [_State(DepartureRow._make(row[:_WIDTH]), *row[_WIDTH:]) for row in rows]
    again_at = {state.row.id: _window_ends_at(state, at) or state.hold_ends_at for state in states}
    for departure_id in due:
        tx.update(departures, organization_id=organization_id, id=departure_id, announce_at=again_at.get(departure_id))
    changed = [event for state in states if (event := _event(organization, state, at)) is not None]
    if changed:
        events.publish(tx, organization, changed, at=at)
    published = {event.resource_id for event in changed}
    return Processed(due, results=[departure_id in published for departure_id in due])


def _window_ends_at(state: _State, at: int) -> int | None:
    """Return the end of the window of the last event, if that has not come."""
    if state.announced_at is None or not 0 <= at - state.announced_at < WINDOW:
        return None
    return state.announced_at + WINDOW


def _event(organization: Organization, state: _State, at: int) -> NewEvent | None:
    """Return the event of a departure that looks different; none within the window of its last event."""
    if _window_ends_at(state, at) is not None:
        return None
    presented = rules.presenter(organization.zone, organization.hours_before_booking_closes, at)(state.row)
    after, kind = orjson.dumps(presented), EventType.DEPARTURE_UPDATED
    if state.announced is None:
        return NewEvent(kind, state.row.id, after, {"changes": None})
    before = orjson.dumps(orjson.loads(state.announced)["data"]["object"])
    event = events.updated(kind, state.row.id, before=before, after=after)
    return event if event.extra["changes"] else None
