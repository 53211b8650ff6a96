"""The SQL of the delivery log: rows of deliveries, and events that are no rows, in one order.

An event after the cursor of its endpoint is shown as queued, and a missed event as failed. The
log is ordered by the sequence of the events. Its rows and its events are found by indexes that begin with the type and
end with the sequence, one scan for each type, merged: so a page costs the same at any place and with any filter.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Integer, Table, Text, bindparam, func, literal_column, select, true
from sqlalchemy.engine import Dialect

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, columns_of, rows_parameter
from booking_core.db.tables import deliveries, events
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import DeliveryStatus, FailureReason
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import DeliveryRow, Event
from booking_core.webhooks.store import ENDPOINT_ID, ORGANIZATION_ID, own

END = 2**63 - 1

_SQL = sql_files.load(__name__)
STRETCHES, _FIRST, _ROW_COUNTS = (_SQL.statement(name) for name in ("stretches", "first_sequence", "row_counts"))
_limit = bindparam("limit", type_=Integer)

Placed = tuple[int, DeliveryRow]
"""A delivery after its place in the log, which is the sequence of its event."""

# Events without a row --------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """Events of one type that may be no rows of deliveries: those after `after`, up to `until`."""

    event_type: str
    after: int
    until: int
    missed_at: int | None = None
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
        row = rules.new_delivery(endpoint_id, event)
        if self.missed_at is None:
            return row
        return rules.failed(row, FailureReason.ENDPOINT_DISABLED, self.missed_at)


def stretches(tx: Tx, organization_id: str, endpoint_id: str) -> list[Stretch]:
    """Return where the events of the endpoint are that may have no row."""
    rows = tx.all(STRETCHES, organization_id=organization_id, endpoint_id=endpoint_id)
    return [Stretch._make(row) for row in rows]


def events_of(of: Any, *conditions: ColumnElement[bool]) -> Any:
    """Select the events of a stretch, a row of the parameter `scans`, that have no row of a delivery."""
    v, d = events.c, deliveries.c
    row = select(d.id).where(*own(deliveries), d.event_type == v.type, d.event_sequence == v.sequence)
    return select(*columns_of(Event._fields, events)).where(
        v.organization_id == ORGANIZATION_ID,
        v.type == of.c.event_type,
        v.sequence > of.c.after,
        v.sequence <= of.c.until,
        v.resource_id.is_distinct_from(ENDPOINT_ID),
        ~row.correlate(events).exists(),
        *conditions,
    )


def rows_of(of: Any, *conditions: ColumnElement[bool]) -> Any:
    """Select the deliveries of a stretch, each with the sequence of its event."""
    d = deliveries.c
    return select(*store.DELIVERY_COLUMNS, d.event_sequence).where(
        *own(deliveries),
        d.event_type == of.c.event_type,
        d.event_sequence > of.c.after,
        d.event_sequence <= of.c.until,
        *conditions,
    )


# Scans -----------------------------------------------------------------------------------------------------------

SCAN: dict[str, Any] = {"number": Integer, "event_type": Text, "after": BigInteger, "until": BigInteger, "status": Text}


class Scans:
    """The statements over the rows of scans, one scan for each row of the parameter `scans`.

    Args:
        scan: selects from the table, for a row of the parameter.
    """

    def __init__(self, table: Table, scan: Callable[[Any], Any]) -> None:
        self._table, self._scan = table, scan
        self._sequence = events.c.sequence if table is events else deliveries.c.event_sequence
        self.page = {order: Statement(partial(self._page, order)) for order in Order}
        self.count, self.types = Statement(self._count), Statement(self._types())

    def _page(self, order: Order, dialect: Dialect) -> Any:
        """Select the first rows of all scans in the order of the log, each after the number of its scan."""
        of = rows_parameter("scans", SCAN)
        scan = self._scan(of).order_by(_in_order(order, self._sequence)).limit(_limit).correlate(of)
        if dialect.name == "sqlite":
            rows: Any = self._table.alias("scanned")
            condition: Any = _rowid(rows).in_(scan.with_only_columns(_rowid(self._table)))
        else:
            rows, condition = scan.lateral("scan"), true()
        columns = [rows.c[column.name] for column in scan.selected_columns]
        joined = select(of.c.number, *columns).join_from(of, rows, condition)
        return joined.order_by(_in_order(order, rows.c[self._sequence.name])).limit(_limit)

    def _count(self, dialect: Dialect) -> Any:
        """Count the rows, up to the limit."""
        return select(func.count()).select_from(self._page(Order.ASC, dialect).subquery())

    def _types(self) -> Any:
        """Select the event types of the rows.

        Each is an index search: without the order, a database with statistics would rather read the rows of the
        endpoint.
        """
        of = rows_parameter("scans", SCAN)
        one: Any = literal_column("1")
        rows = self._scan(of).with_only_columns(one, maintain_column_froms=True).order_by(self._sequence)
        return select(of.c.event_type).where(rows.limit(one).correlate(of).scalar_subquery().is_not(None)).distinct()


def _in_order(order: Order, column: Any) -> Any:
    return column.asc() if order is Order.ASC else column.desc()


def _rowid(table: Any) -> Any:
    return literal_column(f"{table.name}.rowid", BigInteger)


EVENTS = Scans(events, events_of)


@lru_cache(maxsize=4)
def _rows(by_status: bool = False, by_recovery: bool = False) -> Scans:
    status = [deliveries.c.status == bindparam("status")] if by_status else []
    recovery = [deliveries.c.recovery_id == bindparam("recovery_id")] if by_recovery else []
    return Scans(deliveries, lambda of: rows_of(of, *status, *recovery))


def as_scans(of: Iterable[Stretch]) -> str:
    """Return the parameter `scans`."""
    return as_json(
        {"number": number, "event_type": stretch.event_type, "after": stretch.after, "until": stretch.until}
        for number, stretch in enumerate(of)
    )


# Pages -----------------------------------------------------------------------------------------------------------


class LogQuery(NamedTuple):
    """A page of the log of an endpoint."""

    order: Order
    after: int | None
    limit: int
    status: DeliveryStatus | None
    event_type: EventType | None
    recovery_id: str | None

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the sequence before the page, and its last one."""
        if self.order is Order.ASC:
            return (0 if self.after is None else self.after), END
        return 0, (END if self.after is None else self.after - 1)

    @property
    def types(self) -> list[str]:
        return [kind.value for kind in EventType] if self.event_type is None else [self.event_type.value]

    def has(self, row: DeliveryRow) -> bool:
        pairs = (self.status, row.status), (self.event_type, row.event_type), (self.recovery_id, row.recovery_id)
        return all(requested in (None, value) for requested, value in pairs)


def find(tx: Tx, organization_id: str, endpoint_id: str, query: LogQuery) -> list[Placed]:
    """Return the first deliveries that match the query, of the rows and of the events without a row.

    The events are read first: an event that becomes a row meanwhile is read twice, and none is missed.
    """
    key = {"organization_id": organization_id, "endpoint_id": endpoint_id}
    of = [
        stretch.within(*query.bounds)
        for stretch in stretches(tx, organization_id, endpoint_id)
        if stretch.event_type in query.types and query.status in (None, stretch.status) and not query.recovery_id
    ]
    placed: dict[int, DeliveryRow] = {}
    events_page = tx.all(EVENTS.page[query.order], **key, scans=as_scans(of), limit=query.limit) if of else ()
    for number, *columns in events_page:
        event = Event._make(columns)
        placed[event.sequence] = of[number].delivery(event, endpoint_id)
    rows = tx.all(
        _rows(query.status is not None, query.recovery_id is not None).page[query.order],
        **key,
        scans=as_scans(Stretch(kind, *query.bounds) for kind in query.types),
        limit=query.limit,
        status=query.status,
        recovery_id=query.recovery_id,
    )
    with_rows = store.with_attempts(tx, organization_id, [DeliveryRow(*columns) for _, *columns, _ in rows])
    placed |= {row[-1]: delivery for row, delivery in zip(rows, with_rows, strict=True)}
    return sorted(placed.items(), reverse=query.order is Order.DESC)[: query.limit]


# One delivery ----------------------------------------------------------------------------------------------------

EVENTS_OF = Statement(
    select(*columns_of(Event._fields, events)).where(
        events.c.organization_id == ORGANIZATION_ID,
        events.c.id >= bindparam("first_id"),
        events.c.id <= bindparam("last_id"),
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


def types(tx: Tx, organization_id: str, endpoint_id: str) -> set[str]:
    """Return the event types of all deliveries of the endpoint."""
    key = {"organization_id": organization_id, "endpoint_id": endpoint_id}
    rows = tx.all(EVENTS.types, **key, scans=as_scans(stretches(tx, organization_id, endpoint_id)))
    rows += tx.all(_rows().types, **key, scans=as_scans(Stretch(kind, 0, END) for kind in EventType))
    return {row[0] for row in rows}


# Counts ----------------------------------------------------------------------------------------------------------

RETRYING = "retrying"


_of = rows_parameter("scans", SCAN)
_counted = events_of(_of).with_only_columns(func.count(), maintain_column_froms=True).correlate(_of).scalar_subquery()
_EVENT_COUNTS = Statement(select(_of.c.number, _counted))


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
        rows = tx.all(_EVENT_COUNTS, organization_id=organization_id, endpoint_id=endpoint_id, scans=as_scans(of))
        for number, events_without_row in rows:
            counts[endpoint_id][of[number].status] += events_without_row
    return counts
