"""Queues failed and dead deliveries again, and events that an endpoint missed while it was disabled.

A recovery first queues rows that match, and makes rows of missed events that have none. The rest, beyond the rows of a
transaction, stays in `webhook_recoveries`, and a worker goes on with it.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, Integer, Table, Text, bindparam, func, literal_column, null, select, update
from sqlalchemy.engine import Dialect

from booking_core.base import tokens
from booking_core.base.clock import HOUR
from booking_core.base.context import Caller
from booking_core.base.errors import Unprocessable
from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import Id, deliveries, events, webhook_recoveries
from booking_core.models.events import EventType
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.pages import Order
from booking_core.models.webhooks import (
    DeliveryRecover,
    DeliveryStatus,
    DeliveryTrigger,
    EndpointStatus,
    RecoverableStatus,
)
from booking_core.webhooks import log, rules, store
from booking_core.webhooks.log import END, Event, Stretch
from booking_core.webhooks.store import ORGANIZATION_ID, own

ROWS_AT_ONCE = 1_000
MATCHED_MAX = 50_000
"""Matching deliveries are counted up to this number."""
QUEUED_MAX = 200
"""Deliveries of one endpoint that wait when rows of its missed events are made."""
_CLOCKS_DIFFER = HOUR
"""Deliveries end by the database's clock, and a recovery begins by the server's clock. It is far less than six attempts
take."""


class Recovery(NamedTuple):
    """The deliveries that a recovery queues again."""

    id: str
    """Of each delivery that is queued again: the list of deliveries filters by it."""
    since: int
    until: int
    statuses: Sequence[str]
    types: Sequence[str]
    at: int
    ended_until: int = END
    """Deliveries that ended later do not match: a delivery that was recovered and failed once more is unchanged."""


def recover(tx: Tx, caller: Caller, endpoint_id: str, request: DeliveryRecover) -> dict[str, Any]:
    """Queue the failed deliveries of a period again, and return how many (decisions W2, W16). A dry run counts only.

    Each starts over with as many attempts and the same delays as a new delivery; its earlier attempts stay in its log.
    Tests are not queued again. A worker goes on with more than a transaction holds.

    Returns:
        `id`, None of a dry run; `matched`, counted up to 50,000, and `has_more` when there are more.

    Raises:
        NotFound: the organization has no such endpoint.
        InsufficientScope: the key may not read something that would be sent.
        Conflict: `endpoint_not_enabled`.
        Unprocessable: the time ends before it begins.
    """
    organization_id = caller.organization.id
    recovery = _recovery(caller, request)
    endpoint = rules.existing(store.lock(tx, organization_id, endpoint_id))
    rules.check_enabled(endpoint)
    if recovery.until < recovery.since:
        raise Unprocessable.at("until", "The time ends before it begins.", "window_reversed")
    matching = _Matching(tx, organization_id, endpoint_id, recovery)
    rules.check_entitled(caller, matching.types())
    count = matching.count()
    if not request.dry_run and not matching.queue().is_all:
        _leave_to_workers(tx, organization_id, endpoint_id, recovery)
    answer = {"id": None if request.dry_run else recovery.id, "matched": min(count, MATCHED_MAX)}
    return answer if count <= MATCHED_MAX else answer | {"has_more": True}


def _recovery(caller: Caller, request: DeliveryRecover) -> Recovery:
    zone = caller.organization.zone
    return Recovery(
        id=tokens.new_id(),
        since=zone.parse(request.since),
        until=END if request.until is None else zone.parse(request.until),
        statuses=sorted({status.value for status in request.statuses or list(RecoverableStatus)}),
        types=sorted({kind.value for kind in request.event_types or list(EventType)}),
        at=caller.at,
    )


def _leave_to_workers(tx: Tx, organization_id: str, endpoint_id: str, recovery: Recovery) -> None:
    rest = recovery._replace(ended_until=recovery.at + _CLOCKS_DIFFER)
    tx.insert(
        webhook_recoveries,
        organization_id=organization_id,
        id=recovery.id,
        endpoint_id=endpoint_id,
        request=orjson.dumps(rest._asdict()).decode(),
        created_at=recovery.at,
    )


# Matching deliveries ---------------------------------------------------------------------------------------------

_since, _until = bindparam("since", type_=BigInteger), bindparam("until", type_=BigInteger)


def _rows_of(of: Any) -> Any:
    """Select the rows of a type and a status that match."""
    d = deliveries.c
    return (
        select(d.id, d.event_sequence)
        .where(
            *own(deliveries),
            d.status == of.c.status,
            d.event_type == of.c.event_type,
            d.created_at >= _since,
            d.created_at < _until,
            d.completed_at <= bindparam("ended_until", type_=BigInteger),
            d.trigger != DeliveryTrigger.TEST.value,
        )
        .order_by(d.event_sequence)
    )


def _events_of(of: Any) -> Any:
    """Select the events of a stretch that match: they have no row."""
    v = events.c
    matching = log.events_of(of, *(v[name] for name in Event._fields))
    return matching.where(v.created_at >= _since, v.created_at < _until).order_by(v.sequence)


class _Statements:
    """The statements that find matching rows, count them, and find their types: a scan for each row of a parameter."""

    def __init__(self, parameter: str, columns: dict[str, Any], table: Table, scan: Callable[[Any], Any]) -> None:
        def page(dialect: Dialect) -> Any:
            of = rows_parameter(dialect, parameter, columns)
            limited = scan(of).limit(bindparam("limit", type_=Integer))
            return log.merged(dialect, of, table, limited, Order.ASC, ("number",))

        def types(dialect: Dialect) -> Any:
            of = rows_parameter(dialect, parameter, columns)
            return select(of.c.event_type).where(log.has_row(scan(of), of)).distinct()

        self.page, self.types = Statement(page), Statement(types)
        self.count = Statement(lambda dialect: select(func.count()).select_from(page(dialect).subquery()))


ROWS = _Statements("scans", {"number": Integer, "event_type": Text, "status": Text}, deliveries, _rows_of)
EVENTS = _Statements("stretches", log.STRETCH, events, _events_of)


class _Matching:
    """The deliveries of a locked endpoint that a recovery matches: rows, and events that it missed."""

    def __init__(self, tx: Tx, organization_id: str, endpoint_id: str, recovery: Recovery) -> None:
        self.tx = tx
        self.key = {"organization_id": organization_id, "endpoint_id": endpoint_id}
        self.recovery = recovery
        self.missed = [
            stretch
            for stretch in log.stretches(tx, organization_id, endpoint_id)
            if stretch.status in recovery.statuses and stretch.event_type in recovery.types and stretch.missed_at
        ]
        scans = product(recovery.types, recovery.statuses)
        period = {"since": recovery.since, "until": recovery.until}
        self.of_rows = (
            self.key
            | period
            | {
                "scans": as_json({"number": 0, "event_type": kind, "status": status} for kind, status in scans),
                "ended_until": recovery.ended_until,
            }
        )
        self.of_events = self.key | period | {"stretches": log.as_rows(self.missed)}

    def types(self) -> set[str]:
        rows = [*self.tx.all(ROWS.types, **self.of_rows), *self.tx.all(EVENTS.types, **self.of_events)]
        return {row[0] for row in rows}

    def count(self) -> int:
        """Return how many match, of rows and of events each counted up to one more than `MATCHED_MAX`."""
        ((rows,),) = self.tx.all(ROWS.count, **self.of_rows, limit=MATCHED_MAX + 1)
        ((missed,),) = self.tx.all(EVENTS.count, **self.of_events, limit=MATCHED_MAX + 1)
        return int(rows) + int(missed)

    def queue(self) -> "_Queued":
        """Queue the first ones again: some rows, and as many events as the queue of the endpoint has room for."""
        ((waiting,),) = self.tx.all(WAITING, **self.key, limit=QUEUED_MAX)
        room = QUEUED_MAX - int(waiting)
        rows = self.tx.all(ROWS.page, **self.of_rows, limit=ROWS_AT_ONCE)
        missed = self.tx.all(EVENTS.page, **self.of_events, limit=room) if self.missed and room else []
        if rows:
            queued = as_json({"id": row_id} for _, row_id, _ in rows)
            of = {"organization_id": self.key["organization_id"], "recovery_id": self.recovery.id}
            self.tx.run(REQUEUE, **of, queued=queued, at=self.recovery.at)
        for number, *columns in missed:
            self._insert(self.missed[number], Event._make(columns))
        is_all = len(rows) < ROWS_AT_ONCE and (not self.missed or len(missed) < room)
        return _Queued(len(rows) + len(missed), is_all)

    def _insert(self, stretch: Stretch, event: Event) -> None:
        at = self.recovery.at
        row = stretch.delivery(event, self.key["endpoint_id"])._replace(
            status=DeliveryStatus.QUEUED,
            failure_reason=None,
            trigger=DeliveryTrigger.RECOVER,
            next_attempt_at=at,
            completed_at=None,
            updated_at=at,
            recovery_id=self.recovery.id,
        )
        store.insert_delivery(self.tx, self.key["organization_id"], row, event.sequence, event.resource_id)


class _Queued(NamedTuple):
    """The deliveries that were queued again in one transaction."""

    deliveries: int
    is_all: bool


def _requeue(dialect: Dialect) -> Any:
    d, at = deliveries.c, bindparam("at", type_=BigInteger)
    return (
        update(deliveries)
        .where(
            d.organization_id == ORGANIZATION_ID,
            in_rows(dialect, d.id, "queued", "id"),
            d.status != DeliveryStatus.SUCCEEDED.value,
        )
        .values(
            status=DeliveryStatus.QUEUED.value,
            failure_reason=null(),
            trigger=DeliveryTrigger.RECOVER.value,
            max_attempts=d.attempt_count + literal_column(str(WEBHOOK_ATTEMPTS)),
            next_attempt_at=at,
            completed_at=null(),
            lease_token=null(),
            lease_until=null(),
            lost_leases=0,
            recovery_id=bindparam("recovery_id", type_=Id),
            updated_at=at,
        )
    )


REQUEUE = Statement(_requeue)

# The worker's part -----------------------------------------------------------------------------------------------

EndpointKey = tuple[str, str]
"""(organization id, endpoint id): endpoints are served in turn."""
FIRST: EndpointKey = ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")

_SQL = sql_files.load(__name__)
WAITING, UNFINISHED, NEXT, END_RECOVERY = (_SQL.statement(name) for name in ("waiting", "unfinished", "next", "end"))


def recovering(tx: Tx, after: EndpointKey, limit: int) -> list[EndpointKey]:
    """Return endpoints with unfinished recoveries, in the order of their ids."""
    organization_id, endpoint_id = after
    rows = tx.all(UNFINISHED, organization_id=organization_id, endpoint_id=endpoint_id, limit=limit)
    return [(row[0], row[1]) for row in rows]


def go_on(tx: Tx, key: EndpointKey) -> int:
    """Queue the next deliveries of the first recovery of an endpoint, and return how many. The recovery ends with its
    last ones, or when the endpoint was disabled since."""
    organization_id, endpoint_id = key
    endpoint = store.lock(tx, organization_id, endpoint_id)
    row = tx.first(NEXT, organization_id=organization_id, endpoint_id=endpoint_id)
    if endpoint is None or row is None:
        return 0
    recovery = Recovery(**orjson.loads(row[0]))
    queued = _Queued(0, is_all=True)
    if endpoint.status == EndpointStatus.ENABLED and endpoint.enabled_at <= recovery.at:
        queued = _Matching(tx, organization_id, endpoint_id, recovery).queue()
    if queued.is_all:
        tx.run(END_RECOVERY, organization_id=organization_id, id=recovery.id)
    return queued.deliveries
