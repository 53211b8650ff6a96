"""The SQL of the feed.

A page costs the same at any place of the feed and with any filter. Every type: a scan along the primary key. Some
types: one scan along the index of types for each, merged: a rare type is not searched among the others. One resource:
one scan along the index of its occurrences for each type, merged too, since a departure that changes all the time has
thousands. A bound in time becomes a bound of the sequence first: the scan ends there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Text,
    bindparam,
    case,
    delete,
    false,
    func,
    literal_column,
    select,
    union_all,
)

from booking_core.base.clock import END_OF_TIME, MINUTE
from booking_core.db.engine import Tx
from booking_core.db.statements import LIMIT, OWNER, ROW_ID, Statement, columns_of, in_selected, is_of
from booking_core.db.tables import (
    deliveries,
    events,
    events_by_type,
    organizations,
    webhook_cursors,
    webhook_endpoints,
)
from booking_core.due_work.rows import Owner
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.records.events.publish import ONCE

_SKEW = MINUTE
"""An event is dated when its request began and numbered when its transaction is about to end, so dates run a little
against the sequence. No transaction of ours may last this long."""

_START, _END = 0, 2**63 - 1
BEFORE_ALL = {Order.ASC: _START, Order.DESC: _END}
"""The position before the first event of the feed, by order."""


class EventRow(NamedTuple):
    """The columns of an event in the feed."""

    sequence: int
    body: str
    resource_type: str
    resource_id: str | None


_EVENTS = select(*columns_of(EventRow._fields, events)).where(events.c.organization_id == OWNER)
_GET = Statement(_EVENTS.where(events.c.id == ROW_ID))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The parts of a query that change the statement."""

    order: Order
    types: int
    repeated: int
    """The first ones of the types, which a resource may have more than once."""
    of_one: bool
    dated: bool


def get(tx: Tx, organization_id: str, event_id: str) -> EventRow | None:
    return tx.first_as(EventRow._make, _GET, organization_id=organization_id, id=event_id)


def find(
    tx: Tx,
    organization_id: str,
    order: Order,
    limit: int,
    *,
    types: tuple[str, ...],
    after: int,
    resource_id: str | None,
    created_since: int | None,
    created_until: int | None,
) -> list[EventRow]:
    """Return the next events, at most `limit`; no types means every type."""
    of_one = resource_id is not None
    kinds = sorted(types or (tuple(EventType) if of_one else ()), key=ONCE.__contains__)
    parameters: dict[str, Any] = {f"type_{i}": str(kind) for i, kind in enumerate(kinds)}
    parameters["after"] = after
    if of_one:
        parameters["resource_id"] = resource_id
    dated = created_since is not None or created_until is not None
    if dated:
        since = 0 if created_since is None else created_since
        until = END_OF_TIME if created_until is None else created_until
        parameters |= {"since": since, "until": until, "surely_before": since - _SKEW, "surely_behind": until + _SKEW}
    repeated = sum(kind not in ONCE for kind in kinds)
    statement = _page(_Shape(order, len(kinds), repeated, of_one, dated))
    rows = tx.all(statement, organization_id=organization_id, limit=limit, **parameters)
    return [EventRow._make(row) for row in rows]


@lru_cache(maxsize=1024)
def _page(shape: _Shape) -> Statement:
    kinds = [bindparam(f"type_{i}", type_=Text) for i in range(shape.types)]
    scans = _of_one(shape, kinds) if shape.of_one else _of_all(shape, kinds)
    if len(scans) == 1:
        return Statement(scans[0])
    merged = union_all(*(select(scan.subquery()) for scan in scans))
    return Statement(_first(merged, merged.selected_columns["sequence"], shape.order))


_after, _since, _until = (bindparam(name, type_=BigInteger) for name in ("after", "since", "until"))


def _first(query: Any, sequence: ColumnElement[int], order: Order) -> Any:
    in_order = sequence.asc() if order is Order.ASC else sequence.desc()
    return query.order_by(in_order).limit(LIMIT)


def _of_all(shape: _Shape, kinds: list[Any]) -> list[Any]:
    """Return the scans of all resources: one of the sequence, or one for each type."""
    query = _EVENTS.where(*_between(shape)(events.c.sequence, events.c.created_at))
    if not kinds:
        return [_first(query, events.c.sequence, shape.order)]
    # Without this, SQLite 3.53 scans the primary key under a bound in time, past the events of every other type.
    query = query.with_hint(events, f"INDEXED BY {events_by_type.name}", dialect_name="sqlite")
    return [_first(query.where(events.c.type == kind), events.c.sequence, shape.order) for kind in kinds]


def _of_one(shape: _Shape, kinds: list[Any]) -> list[Any]:
    """Return the scans of one resource: one of its single events, at most one for each type, and one for each type
    that it may have more than once, whose occurrences are sequences.

    The sums hide columns of other indexes, which SQLite would scan rather than sort the few rows of this one.
    """
    query, between = _EVENTS.where(events.c.resource_id == bindparam("resource_id")), _between(shape)
    sequence, created_at = (column + literal_column("0") for column in (events.c.sequence, events.c.created_at))
    single = query.where(events.c.type.in_(kinds), events.c.occurrence == _START, *between(sequence, created_at))
    repeated = query.where(events.c.occurrence != _START, *between(events.c.occurrence, events.c.created_at))
    return [
        _first(single, sequence, shape.order),
        *(
            _first(repeated.where(events.c.type == kind), events.c.occurrence, shape.order)
            for kind in kinds[: shape.repeated]
        ),
    ]


def _between(shape: _Shape) -> Callable[[ColumnElement[int], ColumnElement[int]], list[ColumnElement[bool]]]:
    """Return a function of the sequence and the date of an event that gives the bounds of a page.

    There is one condition on each side, since SQLite uses only one of two for the range that it reads.
    """
    if not shape.dated:
        is_up = shape.order is Order.ASC
        return lambda sequence, _: [sequence > _after if is_up else sequence < _after]
    bounds = _bounds(shape.order)
    lower, upper = select(bounds.c.lower).scalar_subquery(), select(bounds.c.upper).scalar_subquery()
    return lambda sequence, created_at: [
        sequence > lower,
        sequence < upper,
        created_at >= _since,
        created_at < _until,
    ]


def _bounds(order: Order) -> CTE:
    """Return the bounds of the sequences of all events in the period after the cursor."""
    other = events.alias("other")
    before = other.c.created_at < bindparam("surely_before")
    behind = other.c.created_at >= bindparam("surely_behind")

    def nearest(dated: ColumnElement[bool], order: ColumnElement[Any]) -> ColumnElement[Any]:
        is_own = other.c.organization_id == OWNER
        return (
            select(other.c.sequence).where(is_own, dated).order_by(order).limit(literal_column("1")).scalar_subquery()
        )

    lower: ColumnElement[int] = func.coalesce(nearest(before, other.c.created_at.desc()), _START)
    upper: ColumnElement[int] = func.coalesce(nearest(behind, other.c.created_at.asc()), _END)
    if order is Order.ASC:
        lower = case((lower > _after, lower), else_=_after)
    else:
        upper = case((upper < _after, upper), else_=_after)
    return select(lower.label("lower"), upper.label("upper")).cte("bounds")


# Each feed is purged from its oldest end, and no further than the first event that an endpoint still waits for, or the
# first that is not old: the remaining sequence has no gaps. Dates run a little against the sequence: an event that is
# not old yet may precede an old one; it is searched among as many events as one purge takes. An enabled
# endpoint waits for the events after its cursor and for the events of queued deliveries.
def _first_awaited(waiting: ColumnElement[int], table: Any, *conditions: ColumnElement[bool]) -> ColumnElement[int]:
    is_own = table.c.organization_id == OWNER
    first: ColumnElement[int] = (
        select(func.coalesce(func.min(waiting), _END)).where(is_own, *conditions).scalar_subquery()
    )
    return first


_WAITED_FOR = (
    _first_awaited(deliveries.c.event_sequence, deliveries, deliveries.c.status == "queued"),
    _first_awaited(
        webhook_cursors.c.served_sequence + literal_column("1"),
        webhook_cursors,
        is_of(webhook_endpoints.c, webhook_cursors.c, id="endpoint_id"),
        webhook_endpoints.c.status == "enabled",
        webhook_endpoints.c.deleted_at.is_(None),
    ),
)
_BEFORE = bindparam("before", type_=BigInteger)
_FIRST_ONES = (
    select(events.c.sequence, events.c.created_at)
    .where(events.c.organization_id == OWNER)
    .order_by(events.c.sequence)
    .limit(LIMIT)
    .subquery("first_ones")
)
# An event dated far ahead, by a clock that was wrong once, must not keep the others for so long.
_NOT_OLD = select(func.coalesce(func.min(_FIRST_ONES.c.sequence), _END)).where(
    _FIRST_ONES.c.created_at >= _BEFORE, _FIRST_ONES.c.created_at < bindparam("surely_behind")
)
_OLD = (
    select(events.c.sequence)
    .where(
        events.c.organization_id == OWNER,
        events.c.created_at < _BEFORE,
        *(events.c.sequence < first for first in _WAITED_FOR),
        events.c.sequence < _NOT_OLD.scalar_subquery(),
    )
    .order_by(events.c.sequence)
    .limit(LIMIT)
    .with_for_update(skip_locked=True)
)
_PURGE = Statement(
    delete(events).where(
        events.c.organization_id == OWNER,
        in_selected(events.c.sequence, _OLD),
    )
)


def purge(tx: Tx, organization_id: str, *, before: int, limit: int) -> int:
    """Delete an organization's events from before that instant, the oldest first, and return how many.

    The event of a queued delivery, and all events after it, are kept. A cursor before the oldest event continues there.
    """
    return tx.run(_PURGE, organization_id=organization_id, before=before, surely_behind=before + _SKEW, limit=limit)


_OLDEST = (
    select(events.c.created_at)
    .where(events.c.organization_id == organizations.c.id)
    .order_by(events.c.sequence)
    .limit(literal_column("1"))
    .scalar_subquery()
)
_ORGANIZATIONS_BEFORE = Statement(
    select(
        organizations.c.id,
        func.coalesce(bindparam("before", type_=BigInteger) > _OLDEST, false()),
    )
    .where(organizations.c.id > bindparam("after"))
    .order_by(organizations.c.id)
    .limit(LIMIT)
)


def organizations_before(tx: Tx, before: int, *, after: str, limit: int) -> list[Owner]:
    """Return the organizations after `after`, by id, whose oldest event is from before that instant."""
    rows = tx.all(_ORGANIZATIONS_BEFORE, before=before, after=after, limit=limit)
    return [Owner(organization_id, bool(is_old)) for organization_id, is_old in rows]
