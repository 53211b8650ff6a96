"""The SQL of the delivery log: rows of deliveries, and events that are no rows, in one order.

An event after the cursor of its endpoint is shown as queued, and a missed event as failed. The
log is ordered by the sequence of the events. Its rows and its events are found by indexes that begin with the type and
end with the sequence, one scan for each type, merged: so a page costs the same at any place and with any filter.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Integer, Text, bindparam, exists, func, literal_column, select, true, union
from sqlalchemy.engine import Dialect

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, rows_parameter
from booking_core.db.tables import Id, deliveries, events
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import DeliveryStatus, DeliveryTrigger, FailureReason
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import DeliveryRow
from booking_core.webhooks.store import ENDPOINT_ID, ORGANIZATION_ID, own

END = 2**63 - 1

_SQL = sql_files.load(__name__)
STRETCHES, _FIRST, _ROW_COUNTS = (_SQL.statement(name) for name in ("stretches", "first_sequence", "row_counts"))
_limit = bindparam("limit", type_=Integer)

Placed = tuple[int, DeliveryRow]
"""A delivery after its place in the log, which is the sequence of its event."""

# Events without a row --------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """An event of the log."""

    id: str
    type: str
    sequence: int
    created_at: int
    resource_id: str | None


class Stretch(NamedTuple):
    """Events of one type that may be no rows of deliveries: those after `after`, up to `until`."""

    event_type: str
    after: int
    until: int
    missed_at: int | None
    """The instant since which they are missed. Null: they are to be sent."""

    def has(self, event: Event) -> bool:
        return self.event_type == event.type and self.after < event.sequence <= self.until

    def within(self, after: int, until: int) -> "Stretch":
        return self._replace(after=max(self.after, after), until=min(self.until, until))

    @property
    def status(self) -> DeliveryStatus:
        return DeliveryStatus.QUEUED if self.missed_at is None else DeliveryStatus.FAILED

    def delivery(self, event: Event, endpoint_id: str) -> DeliveryRow:
        """Return the delivery of an event that has no row."""
        at = event.created_at
        row = rules.new_delivery(
            endpoint_id, event.id, event.type, created_at=at, trigger=DeliveryTrigger.EVENT, due_at=at
        )
        if self.missed_at is None:
            return row
        return rules.failed(row, FailureReason.ENDPOINT_DISABLED, self.missed_at)


def stretches(tx: Tx, organization_id: str, endpoint_id: str) -> list[Stretch]:
    """Return where the events of the endpoint are that may have no row."""
    rows = tx.all(STRETCHES, organization_id=organization_id, endpoint_id=endpoint_id)
    return [Stretch._make(row) for row in rows]


STRETCH: dict[str, Any] = {"number": Integer, "event_type": Text, "after": BigInteger, "until": BigInteger}


def events_of(of: Any, *columns: Any) -> Any:
    """Select the events of a row of the parameter `stretches` that have no row of a delivery."""
    v, d = events.c, deliveries.c
    has_row = exists(
        select(d.id).where(*own(deliveries), d.event_type == v.type, d.event_sequence == v.sequence).correlate(events)
    )
    return select(*columns).where(
        v.organization_id == ORGANIZATION_ID,
        v.type == of.c.event_type,
        v.sequence > of.c.after,
        v.sequence <= of.c.until,
        v.resource_id.is_distinct_from(ENDPOINT_ID),
        ~has_row,
    )


@lru_cache(maxsize=8)
def _events(order: Order) -> Statement:
    def build(dialect: Dialect) -> Any:
        of = rows_parameter(dialect, "stretches", STRETCH)
        columns = [events.c[name] for name in Event._fields]
        scan = events_of(of, *columns).order_by(_in_order(order, events.c.sequence)).limit(_limit)
        return merged(dialect, of, events, scan, order, ("number",))

    return Statement(build)


def _in_order(order: Order, column: Any) -> Any:
    return column.asc() if order is Order.ASC else column.desc()


def merged(dialect: Dialect, of: Any, table: Any, scan: Any, order: Order, names: Sequence[str]) -> Any:
    """Return the first rows of all scans in their order: one scan for each row of the parameter."""
    sequence = "sequence" if table is events else "event_sequence"
    if dialect.name == "sqlite":
        rows = table.alias("scanned")
        condition = _rowid(rows).in_(scan.with_only_columns(_rowid(table)).correlate(of))
    else:
        rows, condition = scan.correlate(of).lateral("scan"), true()
    columns = [rows.c[column.name] for column in scan.selected_columns]
    joined = select(*(of.c[name] for name in names), *columns).join_from(of, rows, condition)
    return joined.order_by(_in_order(order, rows.c[sequence])).limit(_limit)


def _rowid(table: Any) -> Any:
    return literal_column(f"{table.name}.rowid", BigInteger)


def find_events(
    tx: Tx, organization_id: str, endpoint_id: str, of: Sequence[Stretch], order: Order, limit: int
) -> list[tuple[Stretch, Event]]:
    """Return the first events of the stretches that have no row, in order."""
    if not of:
        return []
    rows = tx.all(
        _events(order), organization_id=organization_id, endpoint_id=endpoint_id, stretches=as_rows(of), limit=limit
    )
    return [(of[number], Event._make(columns)) for number, *columns in rows]


def as_rows(of: Iterable[Stretch]) -> str:
    """Return the parameter `stretches`."""
    return as_json(
        {"number": number, "event_type": stretch.event_type, "after": stretch.after, "until": stretch.until}
        for number, stretch in enumerate(of)
    )


# Rows ------------------------------------------------------------------------------------------------------------

_SCAN = {"event_type": Text, "after": BigInteger, "until": BigInteger}


@lru_cache(maxsize=32)
def _rows(order: Order, by_status: bool, by_recovery: bool) -> Statement:
    def build(dialect: Dialect) -> Any:
        of, d = rows_parameter(dialect, "scans", _SCAN), deliveries.c
        status = [d.status == bindparam("status", type_=Text)] if by_status else []
        recovery = [d.recovery_id == bindparam("recovery_id", type_=Id)] if by_recovery else []
        scan = (
            select(*store.DELIVERY_COLUMNS, d.event_sequence)
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
        return merged(dialect, of, deliveries, scan, order, ())

    return Statement(build)


def find_rows(
    tx: Tx,
    organization_id: str,
    endpoint_id: str,
    types: Iterable[str],
    bounds: tuple[int, int],
    order: Order,
    limit: int,
    *,
    status: DeliveryStatus | None = None,
    recovery_id: str | None = None,
) -> list[Placed]:
    """Return the first rows of those types between the bounds, in any order."""
    after, until = bounds
    rows = tx.all(
        _rows(order, status is not None, recovery_id is not None),
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        scans=as_json({"event_type": kind, "after": after, "until": until} for kind in types),
        limit=limit,
        status=status,
        recovery_id=recovery_id,
    )
    sequences = [row[-1] for row in rows]
    page = store.with_attempts(tx, organization_id, [DeliveryRow(*row[:-1]) for row in rows])
    return list(zip(sequences, page, strict=True))


# One delivery ----------------------------------------------------------------------------------------------------

EVENTS_OF = Statement(
    select(*(events.c[name] for name in Event._fields)).where(
        events.c.organization_id == ORGANIZATION_ID,
        events.c.id >= bindparam("first_id", type_=Id),
        events.c.id <= bindparam("last_id", type_=Id),
    )
)


def find_event(tx: Tx, organization_id: str, event_id: str) -> Event | None:
    """Return an event, or None if it does not exist or is no longer kept."""
    row = tx.first(EVENTS_OF, organization_id=organization_id, first_id=event_id, last_id=event_id)
    return Event._make(row) if row else None


def get_event(
    tx: Tx, organization_id: str, endpoint_id: str, delivery_id: str, *, event_id: str | None = None
) -> DeliveryRow | None:
    """Return the delivery of an event, as it is without a row.

    Args:
        event_id: the event, where it is known: without it, all events of the same instant are read.
    """
    of = stretches(tx, organization_id, endpoint_id)
    first, last = (event_id, event_id) if event_id else rules.event_ids_of(delivery_id)
    rows = tx.all(EVENTS_OF, organization_id=organization_id, first_id=first, last_id=last) if of else ()
    for event in map(Event._make, rows):
        if rules.delivery_id(event.id, endpoint_id) == delivery_id and event.resource_id != endpoint_id:
            return next((stretch.delivery(event, endpoint_id) for stretch in of if stretch.has(event)), None)
    return None


# Types -----------------------------------------------------------------------------------------------------------


def _types(dialect: Dialect) -> Any:
    """Select the types of the rows, and of the events of the stretches.

    Each is an index search: without the order, a database with statistics would rather read the rows of the endpoint.
    """
    of, stretch = rows_parameter(dialect, "types", {"event_type": Text}), rows_parameter(dialect, "stretches", STRETCH)
    row = select(deliveries.c.id).where(*own(deliveries), deliveries.c.event_type == of.c.event_type)
    event = events_of(stretch, events.c.id)
    return union(
        select(of.c.event_type).where(has_row(row.order_by(deliveries.c.event_sequence), of)),
        select(stretch.c.event_type).where(has_row(event.order_by(events.c.sequence), stretch)),
    )


def has_row(rows: Any, of: Any) -> Any:
    """Return the condition that rows are selected for a row of a parameter, as an index search for the first."""
    one: Any = literal_column("1")
    return (
        rows.with_only_columns(one, maintain_column_froms=True).limit(one).correlate(of).scalar_subquery().is_not(None)
    )


_TYPES = Statement(_types)


def types(tx: Tx, organization_id: str, endpoint_id: str) -> set[str]:
    """Return the event types of all deliveries of the endpoint."""
    rows = tx.all(
        _TYPES,
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        types=as_json({"event_type": kind.value} for kind in EventType),
        stretches=as_rows(stretches(tx, organization_id, endpoint_id)),
    )
    return {row[0] for row in rows}


# Counts ----------------------------------------------------------------------------------------------------------

RETRYING = "retrying"


def _event_counts(dialect: Dialect) -> Any:
    of = rows_parameter(dialect, "stretches", STRETCH)
    counted = events_of(of, func.count()).correlate(of).scalar_subquery()
    return select(of.c.number, counted)


_EVENT_COUNTS = Statement(_event_counts)


def count(tx: Tx, organization_id: str, endpoint_ids: Sequence[str], at: int) -> dict[str, dict[str, int]]:
    """Count the deliveries of the events since an instant, by endpoint and state.

    A state is a status, or `retrying`: queued again after an attempt.
    """
    states = (*map(str, DeliveryStatus), RETRYING)
    counts = {endpoint_id: dict.fromkeys(states, 0) for endpoint_id in endpoint_ids}
    ((first,),) = tx.all(_FIRST, organization_id=organization_id, at=at)
    if first is None:
        return counts
    for endpoint_id, state, number in tx.all(_ROW_COUNTS, organization_id=organization_id, since=first):
        if endpoint_id in counts:
            counts[endpoint_id][state] += number
    for endpoint_id in endpoint_ids:
        of = [stretch.within(first - 1, END) for stretch in stretches(tx, organization_id, endpoint_id)]
        rows = tx.all(_EVENT_COUNTS, organization_id=organization_id, endpoint_id=endpoint_id, stretches=as_rows(of))
        for number, events_without_row in rows:
            counts[endpoint_id][of[number].status] += events_without_row
    return counts
