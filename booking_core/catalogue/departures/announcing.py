"""Announces departures as `departure.updated`: follows the log of bookings, and publishes what has changed.

A booking writes nothing for it. The worker reads the events behind a remembered sequence, notes the departures that
they are about (`departure_touches`), and publishes each once in a window, with its state at that time. A departure that
looks as it did in its last event is not published.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal_column,
    null,
    select,
)
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.catalogue.departures import rules, store
from booking_core.catalogue.departures.holds import is_live
from booking_core.catalogue.departures.rules import DepartureRow
from booking_core.db import tables
from booking_core.db.due import DueRow, DueRows, Owner, Page, Processed, clock_offset_of
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, now_us
from booking_core.db.tables import Id
from booking_core.db.unit_of_work import Update
from booking_core.models.events import EventType
from booking_core.records import departure_touches, events
from booking_core.records.departure_touches import WINDOW
from booking_core.records.events import NewEvent

EVENTS_MAX = 500
"""Events of an organization that one transaction follows."""
_ABOUT_SEATS = frozenset(
    {
        EventType.BOOKING_CREATED,
        EventType.BOOKING_CANCELLED,
        EventType.BOOKING_RESCHEDULED,
        EventType.BOOKING_UPDATED,
    }
)

_followers, _touches, _events = tables.departure_followers.c, tables.departure_touches.c, tables.events.c
_OWNER = bindparam("organization_id", type_=Id)

# Following -------------------------------------------------------------------------------------------------------

_ORGANIZATIONS = Statement(
    select(
        _followers.organization_id,
        _followers.followed_sequence < tables.counters.c.last_event_sequence,
        clock_offset_of(_followers.organization_id).correlate(tables.departure_followers).scalar_subquery(),
    )
    .join_from(
        tables.departure_followers,
        tables.counters,
        tables.counters.c.organization_id == _followers.organization_id,
    )
    .where(_followers.organization_id > bindparam("after", type_=Id))
    .order_by(_followers.organization_id)
    .limit(bindparam("limit", type_=Integer))
)
_IS_WANTED = exists().where(
    tables.webhook_subscriptions.c.organization_id == _OWNER,
    tables.webhook_subscriptions.c.event_type == EventType.DEPARTURE_UPDATED.value,
    tables.webhook_subscriptions.c.until_sequence.is_(None),
)
_LOCK = Statement(
    select(_followers.followed_sequence, _IS_WANTED)
    .where(_followers.organization_id == _OWNER)
    .with_for_update(key_share=True, skip_locked=True, of=tables.departure_followers)
)
_WANTED = Statement(select(_IS_WANTED))
_FORGET = tuple(
    Statement(delete(table).where(table.c.organization_id == _OWNER))
    for table in (tables.departure_touches, tables.departure_followers)
)
_MOVE = Update("follow_departures", tables.departure_followers, sets=("followed_sequence",), keys=("organization_id",))
_IS_MOVE = _events.type == literal_column(f"'{EventType.BOOKING_RESCHEDULED}'", Text)
_NEXT = Statement(
    select(
        _events.sequence,
        _events.type,
        tables.bookings.c.departure_id,
        case((_IS_MOVE, _events.body), else_=null()),
    )
    .join_from(
        tables.events,
        tables.bookings,
        and_(
            tables.bookings.c.organization_id == _events.organization_id,
            tables.bookings.c.id == _events.resource_id,
        ),
        isouter=True,
    )
    .where(_events.organization_id == _OWNER, _events.sequence > bindparam("after", type_=BigInteger))
    .order_by(_events.sequence)
    .limit(bindparam("limit", type_=Integer))
)


class Following:
    """The organizations whose log is followed, each due while there are events behind its sequence."""

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[Owner]:
        """Return organizations behind `after` in the order of their ids; those count as due that are behind their
        logs."""
        found = tx.all(_ORGANIZATIONS, after=after, limit=limit)
        return [Owner(owner, bool(is_due), offset) for owner, is_due, offset in found]

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> Page:
        """Return the organization itself: it is one row, whatever lies behind."""
        return Page([DueRow(0, organization_id)], None)


FOLLOWING = Following()


def follow(tx: Tx, organization_id: str, keys: Sequence[str]) -> Processed[None]:
    """Note the departures of the next events of an organization. Following ends when no endpoint wants them."""
    locked = tx.first(_LOCK, organization_id=organization_id)
    if locked is None:
        return Processed()
    followed, is_wanted = locked
    if not is_wanted:
        _stop(tx, organization_id)
        return Processed(keys)
    found = tx.all(_NEXT, organization_id=organization_id, after=followed, limit=EVENTS_MAX)
    departure_touches.touch_committed(tx, organization_id, _departures_of(found), at=tx.now())
    if found:
        tx.update(_MOVE, organization_id=organization_id, followed_sequence=found[-1][0])
    return Processed(left=keys) if len(found) == EVENTS_MAX else Processed(keys)


def _departures_of(found: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the departures whose seats the events may have changed.

    A booking that has moved since is of another departure by now, which the event of the move names, too.
    """
    about = {str(departure_id) for _, kind, departure_id, _ in found if kind in _ABOUT_SEATS and departure_id}
    moves = (orjson.loads(body)["data"] for _, _, _, body in found if body is not None)
    for data in moves:
        about |= {data["object"]["departure"]["id"], data["previous_departure"]["id"]}
    return sorted(about)


def _stop(tx: Tx, organization_id: str) -> None:
    """Forget the organization, unless an endpoint has subscribed meanwhile, which is done under the same lock."""
    events.lock_sequences(tx, {organization_id: (0, 0)})
    ((is_wanted,),) = tx.all(_WANTED, organization_id=organization_id)
    for statement in () if is_wanted else _FORGET:
        tx.run(statement, organization_id=organization_id)


# Announcing ------------------------------------------------------------------------------------------------------

TOUCHED = DueRows(tables.departure_touches, _touches.due_at, _touches.departure_id, lambda _: ())


def _lock_touches(dialect: Dialect) -> Any:
    return (
        select(_touches.departure_id, _touches.id)
        .where(
            _touches.organization_id == _OWNER,
            in_rows(dialect, _touches.departure_id, "wanted", "id"),
            _touches.due_at <= select(now_us(dialect)).scalar_subquery(),
        )
        .with_for_update(skip_locked=True)
    )


def _delete(dialect: Dialect) -> Any:
    return delete(tables.departure_touches).where(
        _touches.organization_id == _OWNER,
        in_rows(dialect, _touches.departure_id, "wanted", "id"),
        in_rows(dialect, _touches.id, "touches", "id"),
    )


_LOCK_TOUCHES, _DELETE = Statement(_lock_touches), Statement(_delete)


class _State(NamedTuple):
    """A departure as it is now, and as its last event shows it."""

    row: DepartureRow
    hold_ends_at: int | None
    """The next end of a hold."""
    announced_at: int | None
    announced: str | None
    """The body of its last event."""


_AT = bindparam("at", type_=BigInteger)
_last = tables.events.alias("last")
_LAST_SEQUENCE = (
    select(func.max(_events.occurrence))
    .where(
        _events.organization_id == tables.departures.c.organization_id,
        _events.resource_id == tables.departures.c.id,
        _events.type == EventType.DEPARTURE_UPDATED.value,
    )
    .correlate(tables.departures)
    .scalar_subquery()
)
_HOLD_ENDS_AT = (
    select(func.min(tables.holds.c.expires_at))
    .where(
        tables.holds.c.organization_id == tables.departures.c.organization_id,
        tables.holds.c.departure_id == tables.departures.c.id,
        is_live(_AT),
    )
    .correlate(tables.departures)
    .scalar_subquery()
)


def _states(dialect: Dialect) -> Any:
    same = and_(_last.c.organization_id == tables.departures.c.organization_id, _last.c.sequence == _LAST_SEQUENCE)
    return (
        store.select_rows()
        .add_columns(_HOLD_ENDS_AT, _last.c.created_at, _last.c.body)
        .join(_last, same, isouter=True)
        .where(tables.departures.c.organization_id == _OWNER, in_rows(dialect, tables.departures.c.id, "wanted", "id"))
        .order_by(tables.departures.c.id)
    )


_STATES = Statement(_states)


def announce(tx: Tx, organization_id: str, departure_ids: Sequence[str]) -> Processed[bool]:
    """Publish those of the departures that were touched and differ from their last event.

    A departure that was announced less than the window ago is put off. One with seats on hold is looked at again when
    the next hold ends, since that is no event.

    Returns:
        As a result for each departure that was touched: True if it was published.
    """
    wanted = _ids(sorted(set(departure_ids)))
    locked = tx.all(_LOCK_TOUCHES, organization_id=organization_id, wanted=wanted)
    if not locked:
        return Processed()
    organization, at = organizations.by_id(tx, organization_id), tx.now()
    touched = sorted({str(departure_id) for departure_id, _ in locked})
    found = [_state(row) for row in tx.all(_STATES, organization_id=organization_id, wanted=_ids(touched), at=at)]
    touches = _ids(str(touch_id) for _, touch_id in locked)
    tx.run(_DELETE, organization_id=organization_id, wanted=_ids(touched), touches=touches)
    changed = [event for state in found if (event := _announce(tx, organization, state, at)) is not None]
    if changed:
        events.publish(tx, organization, changed, at=at)
    published = {str(event.resource_id) for event in changed}
    return Processed(touched, results=[departure_id in published for departure_id in touched])


def _ids(ids: Any) -> str:
    return as_json({"id": each} for each in ids)


def _state(row: Sequence[Any]) -> _State:
    width = len(DepartureRow._fields)
    return _State(DepartureRow._make(row[:width]), *row[width:])


def _announce(tx: Tx, organization: Organization, state: _State, at: int) -> NewEvent | None:
    """Return the event of a departure that looks different; note when it is looked at again."""
    again_at = state.hold_ends_at
    is_put_off = state.announced_at is not None and 0 <= at - state.announced_at < WINDOW
    if is_put_off:
        again_at = (state.announced_at or 0) + WINDOW
    if again_at is not None:
        departure_touches.touch_later(tx, organization.id, state.row.id, due_at=again_at, at=at)
    return None if is_put_off else _event(organization, state, at)


def _event(organization: Organization, state: _State, at: int) -> NewEvent | None:
    shown = rules.presenter(organization.zone, organization.hours_before_booking_closes, at)(state.row)
    after, kind = orjson.dumps(shown), EventType.DEPARTURE_UPDATED
    if state.announced is None:
        return NewEvent(kind, state.row.id, after, {"changes": None})
    before = orjson.dumps(orjson.loads(state.announced)["data"]["object"])
    event = events.updated(kind, state.row.id, before=before, after=after)
    return event if event.extra["changes"] else None
