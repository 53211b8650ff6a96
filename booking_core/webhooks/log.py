"""The SQL of the delivery log: rows of deliveries, and events that are no rows yet, in one order.

The log is ordered by the sequence of the events. Its rows and its events are found by indexes that begin with the type
and end with the sequence, one scan for each type, merged: so a page costs the same at any place and with any filter.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    Integer,
    Text,
    and_,
    bindparam,
    case,
    func,
    literal,
    literal_column,
    null,
    select,
    true,
    union,
    union_all,
)
from sqlalchemy.engine import Dialect

from booking_core.base.clock import MINUTE
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import (
    Id,
    deliveries,
    events,
    webhook_cursors,
    webhook_endpoints,
    webhook_leases,
    webhook_ranges,
    webhook_subscriptions,
)
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import (
    AttemptTrigger,
    DeliveryStatus,
    DeliveryTrigger,
    EndpointStatus,
    FailureReason,
)
from booking_core.webhooks import queue, rules, store
from booking_core.webhooks.queue import LeasedAttempt
from booking_core.webhooks.rules import DeliveryRow, EndpointRow
from booking_core.webhooks.store import ENDPOINT_ID, ORGANIZATION_ID, own

END = 2**63 - 1

_limit = bindparam("limit", type_=Integer)

Placed = tuple[int, DeliveryRow]
"""A delivery after its place in the log, which is the sequence of its event."""

# Events without a row --------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """Events of one type that are no rows of deliveries: those after `after`, up to `until`."""

    event_type: str
    after: int
    until: int
    missed_at: int | None
    """Null: they are to be sent."""
    recovering_at: int | None
    recovery_id: str | None = None
    """The last recovery that they match."""
    in_flight: LeasedAttempt | None = None
    """The first attempt of the only event."""
    claimed_at: int = 0
    """The instant of that attempt's claim."""

    def has(self, event_type: str, sequence: int) -> bool:
        return self.event_type == event_type and self.after < sequence <= self.until

    @property
    def status(self) -> DeliveryStatus:
        is_missed = self.missed_at is not None and self.recovering_at is None
        return DeliveryStatus.FAILED if is_missed else DeliveryStatus.QUEUED


def _stretches() -> Any:
    e, c, s, r, h = (
        table.c for table in (webhook_endpoints, webhook_cursors, webhook_subscriptions, webhook_ranges, webhook_leases)
    )
    behind = select(
        s.event_type, s.from_sequence, s.until_sequence, null(), null(), null(), c.served_sequence, null()
    ).where(
        e.organization_id == ORGANIZATION_ID,
        e.id == ENDPOINT_ID,
        e.status == EndpointStatus.ENABLED.value,
        c.organization_id == e.organization_id,
        c.endpoint_id == e.id,
        s.organization_id == e.organization_id,
        s.endpoint_id == e.id,
    )
    missed = select(
        r.event_type, r.from_sequence, r.until_sequence, r.missed_at, r.recovering_at, r.recovery_id, literal(0), null()
    ).where(*own(webhook_ranges))
    # A delivery in flight when its endpoint was disabled counts as given up, unless it still succeeds.
    given_up_at = case((h.generation < e.generation, func.coalesce(e.given_up_at, e.updated_at)))
    in_flight = select(null(), null(), null(), given_up_at, null(), null(), h.claimed_at, h.attempts).where(
        e.organization_id == ORGANIZATION_ID,
        e.id == ENDPOINT_ID,
        h.organization_id == e.organization_id,
        h.endpoint_id == e.id,
    )
    return union_all(behind, missed, in_flight)


_STRETCHES = Statement(_stretches())


def stretches(tx: Tx, organization_id: str, endpoint_id: str) -> list[Stretch]:
    """Return where the events of the endpoint are that have no row."""
    found: list[Stretch] = []
    for kind, after, until, missed_at, recovering_at, recovery_id, at, in_flight in tx.all(
        _STRETCHES, organization_id=organization_id, endpoint_id=endpoint_id
    ):
        if in_flight is not None:
            found += (
                Stretch(each.event_type, each.sequence - 1, each.sequence, missed_at, None, None, each, at)
                for each in queue.parsed(in_flight)
            )
        elif max(after, at) < (end := END if until is None else until):
            found.append(Stretch(kind, max(after, at), end, missed_at, recovering_at, recovery_id))
    return found


_STRETCH = {"number": Integer, "event_type": Text, "after": BigInteger, "until": BigInteger}


@lru_cache(maxsize=8)
def _events(order: Order) -> Statement:
    def build(dialect: Dialect) -> Any:
        of = rows_parameter(dialect, "stretches", _STRETCH)
        v = events.c
        each = (
            select(v.id, v.sequence, v.created_at)
            .where(
                v.organization_id == ORGANIZATION_ID,
                v.type == of.c.event_type,
                v.sequence > of.c.after,
                v.sequence <= of.c.until,
                v.resource_id.is_distinct_from(ENDPOINT_ID),
            )
            .order_by(_in_order(order, v.sequence))
            .limit(_limit)
        )
        return _merged(dialect, of, events, each, order, ("number", "event_type"))

    return Statement(build)


def _in_order(order: Order, column: Any) -> Any:
    return column.asc() if order is Order.ASC else column.desc()


def _merged(dialect: Dialect, of: Any, table: Any, each: Any, order: Order, named: Sequence[str]) -> Any:
    """Return the first rows of all scans in their order: one scan for each row of the parameter."""
    sequence = "sequence" if table is events else "event_sequence"
    if dialect.name == "sqlite":
        found = table.alias("found")
        condition = _rowid(found).in_(each.with_only_columns(_rowid(table)).correlate(of))
    else:
        found, condition = each.correlate(of).lateral("each"), true()
    columns = [found.c[column.name] for column in each.selected_columns]
    joined = select(*(of.c[name] for name in named), *columns).join_from(of, found, condition)
    return joined.order_by(_in_order(order, found.c[sequence])).limit(_limit)


def _rowid(table: Any) -> Any:
    return literal_column(f"{table.name}.rowid", BigInteger)


def find_events(
    tx: Tx, organization_id: str, endpoint_id: str, of: Sequence[Stretch], order: Order, limit: int
) -> list[Placed]:
    """Return the first deliveries of the stretches, in order."""
    if not of:
        return []
    found = tx.all(
        _events(order), organization_id=organization_id, endpoint_id=endpoint_id, stretches=_as_json(of), limit=limit
    )
    return [
        (sequence, computed(endpoint_id, event_id, kind, created_at, of[number]))
        for number, kind, event_id, sequence, created_at in found
    ]


def _as_json(of: Iterable[Stretch]) -> str:
    return as_json(
        {"number": number, "event_type": each.event_type, "after": each.after, "until": each.until}
        for number, each in enumerate(of)
    )


def computed(endpoint_id: str, event_id: str, kind: str, created_at: int, of: Stretch) -> DeliveryRow:
    """Return the delivery of an event that has no row."""
    at = of.recovering_at or created_at
    trigger = DeliveryTrigger.EVENT if of.recovering_at is None else DeliveryTrigger.RECOVER
    row = rules.new_delivery(endpoint_id, event_id, kind, created_at=created_at, trigger=trigger, due_at=at)
    row = row._replace(updated_at=at, recovery_id=of.recovery_id)
    if of.in_flight is not None:
        attempt = (of.in_flight.attempt_id, 1, AttemptTrigger.SCHEDULED, of.claimed_at, None, None, None, None)
        row = row._replace(last_attempt_at=of.claimed_at, attempts=orjson.dumps(attempt).decode())
    if of.status is DeliveryStatus.FAILED:
        return rules.failed(row, FailureReason.ENDPOINT_DISABLED, of.missed_at or created_at)
    return row


# Rows ------------------------------------------------------------------------------------------------------------

_SCAN = {"event_type": Text, "generation": Integer, "after": BigInteger, "until": BigInteger}


class Stored(NamedTuple):
    """A status as it is stored: queued rows of an earlier generation are shown as failed."""

    status: DeliveryStatus
    is_given_up: bool = False

    def generations(self, endpoint: EndpointRow) -> Iterable[int]:
        """Return the generations of such rows. Earlier ones than the last two were written down as failed long ago."""
        if self.is_given_up:
            return range(max(0, endpoint.generation - 2), endpoint.generation)
        return [endpoint.generation if self.status is DeliveryStatus.QUEUED else 0]


def stored_as(status: DeliveryStatus) -> list[Stored]:
    """Return how rows are stored that are shown with that status."""
    given_up = [Stored(DeliveryStatus.QUEUED, is_given_up=True)] if status is DeliveryStatus.FAILED else []
    return [Stored(status), *given_up]


@lru_cache(maxsize=32)
def _rows(order: Order, by_status: bool, by_recovery: bool) -> Statement:
    def build(dialect: Dialect) -> Any:
        of, d = rows_parameter(dialect, "scans", _SCAN), deliveries.c
        status = [d.status == bindparam("status", type_=Text), d.generation == of.c.generation] if by_status else []
        recovery = [d.recovery_id == bindparam("recovery_id", type_=Id)] if by_recovery else []
        each = (
            select(*store.SHOWN, d.event_sequence, d.generation)
            .where(
                *own(deliveries),
                *status,
                *recovery,
                d.event_type == of.c.event_type,
                d.event_sequence > of.c.after,
                d.event_sequence <= of.c.until,
            )
            .order_by(_in_order(order, d.event_sequence))
            .limit(_limit)
        )
        page = _merged(dialect, of, deliveries, each, order, ()).subquery("page")
        shown = [page.c[column.name] for column in store.SHOWN]
        return select(page.c.event_sequence, page.c.generation, *shown, store.attempts_of(page).label("attempts"))

    return Statement(build)


def find_rows(
    tx: Tx,
    organization_id: str,
    endpoint: EndpointRow,
    types: Iterable[str],
    bounds: tuple[int, int],
    order: Order,
    limit: int,
    stored: Stored | None,
    recovery_id: str | None = None,
) -> list[Placed]:
    """Return the first rows of those types between the bounds, as they are shown, in any order."""
    after, until = bounds
    generations = [0] if stored is None else list(stored.generations(endpoint))
    if not generations:
        return []
    scans = as_json(
        {"event_type": kind, "generation": each, "after": after, "until": until}
        for kind in types
        for each in generations
    )
    parameters: dict[str, Any] = {} if stored is None else {"status": stored.status.value}
    parameters |= {} if recovery_id is None else {"recovery_id": recovery_id}
    found = tx.all(
        _rows(order, stored is not None, recovery_id is not None),
        organization_id=organization_id,
        endpoint_id=endpoint.id,
        scans=scans,
        limit=limit,
        **parameters,
    )
    return [(row[0], store.shown_delivery(row[2:], row[1], endpoint)) for row in found]


# One delivery ----------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """An event of the log."""

    id: str
    type: str
    sequence: int
    created_at: int
    resource_id: str | None


_EVENTS_OF = Statement(
    select(*(events.c[name] for name in Event._fields)).where(
        events.c.organization_id == ORGANIZATION_ID,
        and_(events.c.id >= bindparam("first_id", type_=Id), events.c.id <= bindparam("last_id", type_=Id)),
    )
)


def find_event(tx: Tx, organization_id: str, event_id: str) -> Event | None:
    """Return an event, or None if it does not exist or is no longer kept."""
    row = tx.first(_EVENTS_OF, organization_id=organization_id, first_id=event_id, last_id=event_id)
    return Event._make(row) if row else None


def get_event(
    tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str, *, event_id: str | None = None
) -> DeliveryRow | None:
    """Return the delivery of an event that has no row, by its own id or by the id of its attempt in flight.

    Args:
        event_id: the event, where it is known: without it, all events of the same instant are read.
    """
    of = stretches(tx, organization_id, endpoint_id)
    for each in of:
        if each.in_flight is not None and each.in_flight.attempt_id == delivery_id:
            event_id = each.in_flight.event_id
            delivery_id = rules.delivery_id(event_id, endpoint_id)
    first, last = (event_id, event_id) if event_id else rules.event_ids_of(delivery_id)
    found = tx.all(_EVENTS_OF, organization_id=organization_id, first_id=first, last_id=last) if of else ()
    for event in map(Event._make, found):
        if rules.delivery_id(event.id, endpoint_id) == delivery_id:
            for each in of:
                if each.has(event.type, event.sequence) and event.resource_id != endpoint_id:
                    return computed(endpoint_id, event.id, event.type, event.created_at, each)
    return None


# Types ---------------------------------------------------------------------------------------------------------------


def _types(dialect: Dialect) -> Any:
    """Select the types of the rows, and of the events of the stretches.

    Each is an index search: without the order, a database with statistics would rather read the rows of the endpoint.
    """
    of, stretch = rows_parameter(dialect, "types", {"event_type": Text}), rows_parameter(dialect, "stretches", _STRETCH)
    d, v = deliveries.c, events.c
    row = select(d.id).where(*own(deliveries), d.event_type == of.c.event_type)
    event = select(v.id).where(
        v.organization_id == ORGANIZATION_ID,
        v.type == stretch.c.event_type,
        v.sequence > stretch.c.after,
        v.sequence <= stretch.c.until,
        v.resource_id.is_distinct_from(ENDPOINT_ID),
    )
    return union(
        select(of.c.event_type).where(has_row(row.order_by(d.event_sequence), of)),
        select(stretch.c.event_type).where(has_row(event.order_by(v.sequence), stretch)),
    )


def has_row(rows: Any, of: Any) -> Any:
    """Return the condition that rows are selected for a row of a parameter, as an index search for the first."""
    return rows.limit(literal_column("1")).correlate(of).scalar_subquery().is_not(None)


_TYPES = Statement(_types)


def types(tx: Tx, organization_id: str, endpoint_id: str) -> set[str]:
    """Return the event types of all deliveries of the endpoint."""
    found = tx.all(
        _TYPES,
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        types=as_json({"event_type": kind.value} for kind in EventType),
        stretches=_as_json(stretches(tx, organization_id, endpoint_id)),
    )
    return {row[0] for row in found}


# Counts --------------------------------------------------------------------------------------------------------------

RETRYING = "retrying"
_since = bindparam("since", type_=BigInteger)
_QUEUED = literal_column(f"'{DeliveryStatus.QUEUED}'", Text)
"""Not a parameter: the indexes are for rows of this status, or of the others."""


def _first() -> Any:
    """Select the first sequence since an instant. Sequences follow the instants to within a transaction's length."""
    v = events.c
    since = (v.organization_id == ORGANIZATION_ID, v.created_at >= bindparam("at", type_=BigInteger))
    begin = select(func.min(v.created_at)).where(*since).scalar_subquery()
    return select(func.min(v.sequence)).where(*since, v.created_at < begin + MINUTE)


_FIRST = Statement(_first())


def _row_counts() -> Any:
    """Return the statement that counts rows: those that have ended by an index alone, and the few that are queued."""
    d, e = deliveries.c, webhook_endpoints.c
    ours = (d.organization_id == ORGANIZATION_ID, d.event_sequence >= _since)
    counted = select(d.endpoint_id, d.status, func.count()).where(*ours, d.status != _QUEUED)
    state = case(
        (d.generation < e.generation, literal(DeliveryStatus.FAILED.value)),
        (d.attempt_count > 0, literal(RETRYING)),
        else_=literal(DeliveryStatus.QUEUED.value),
    )
    queued = select(d.endpoint_id, state.label("state"), func.count()).where(
        *ours, d.status == _QUEUED, e.organization_id == d.organization_id, e.id == d.endpoint_id
    )
    return union_all(counted.group_by(d.endpoint_id, d.status), queued.group_by(d.endpoint_id, "state"))


def _event_counts(dialect: Dialect) -> Any:
    of, v = rows_parameter(dialect, "stretches", _STRETCH).c, events.c
    return (
        select(of.number, func.count())
        .where(
            v.organization_id == ORGANIZATION_ID,
            v.sequence > of.after,
            v.sequence <= of.until,
            v.type == of.event_type,
            v.resource_id.is_distinct_from(ENDPOINT_ID),
        )
        .group_by(of.number)
    )


_ROW_COUNTS, _EVENT_COUNTS = Statement(_row_counts()), Statement(_event_counts)


def count(tx: Tx, organization_id: str, endpoint_ids: Sequence[str], at: int) -> dict[str, dict[str, int]]:
    """Count the deliveries of the events since an instant, by endpoint and state.

    A state is a status, or `retrying`: queued again after an attempt.
    """
    states = (*map(str, DeliveryStatus), RETRYING)
    counts = {each: dict.fromkeys(states, 0) for each in endpoint_ids}
    ((first,),) = tx.all(_FIRST, organization_id=organization_id, at=at)
    if first is None:
        return counts
    for endpoint_id, state, number in tx.all(_ROW_COUNTS, organization_id=organization_id, since=first):
        if endpoint_id in counts:
            counts[endpoint_id][state] += number
    for endpoint_id in endpoint_ids:
        of = stretches(tx, organization_id, endpoint_id)
        since = _as_json(each._replace(after=max(each.after, first - 1)) for each in of)
        for number, found in tx.all(
            _EVENT_COUNTS, organization_id=organization_id, endpoint_id=endpoint_id, stretches=since
        ):
            counts[endpoint_id][of[number].status] += found
    return counts
