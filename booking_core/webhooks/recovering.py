"""Queues failed and dead deliveries again, and events that an endpoint missed while it was disabled.

A recovery first queues rows that match, and makes rows of missed events that have none. The rest, beyond the rows of a
transaction, stays in `webhook_recoveries`, and a worker goes on with it.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, bindparam

from booking_core.base import tokens
from booking_core.base.context import Caller
from booking_core.base.errors import Unprocessable
from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import as_json
from booking_core.db.tables import Id, deliveries, events, webhook_recoveries
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import DeliveryRecover, DeliveryTrigger, EndpointStatus, RecoverableStatus
from booking_core.webhooks import log, rules, store
from booking_core.webhooks.log import END, Scans
from booking_core.webhooks.rules import DeliveryRow, Event

ROWS_AT_ONCE = 1_000
MATCHED_MAX = 50_000
"""Matching deliveries are counted up to this number."""
QUEUED_MAX = 200
"""Deliveries of one endpoint that wait when rows of its missed events are made."""


class Recovery(NamedTuple):
    """The deliveries that a recovery queues again."""

    id: str
    """Of each delivery that is queued again: the list of deliveries filters by it. One that failed once more since does
    not match."""
    since: int
    until: int
    statuses: Sequence[str]
    types: Sequence[str]
    at: int


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
    tx.insert(
        webhook_recoveries,
        organization_id=organization_id,
        id=recovery.id,
        endpoint_id=endpoint_id,
        request=orjson.dumps(recovery._asdict()).decode(),
        created_at=recovery.at,
    )


# Matching deliveries ---------------------------------------------------------------------------------------------

_since, _until = bindparam("since", type_=BigInteger), bindparam("until", type_=BigInteger)


def _rows_of(of: Any) -> Any:
    d = deliveries.c
    return log.rows_of(
        of,
        d.status == of.c.status,
        d.created_at >= _since,
        d.created_at < _until,
        d.recovery_id.is_distinct_from(bindparam("recovery_id", type_=Id)),
        d.trigger != DeliveryTrigger.TEST.value,
    )


def _events_of(of: Any) -> Any:
    return log.events_of(of, events.c.created_at >= _since, events.c.created_at < _until)


ROWS, EVENTS = Scans(deliveries, _rows_of), Scans(events, _events_of)


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
        scans = (
            {"event_type": kind, "after": 0, "until": END, "status": status}
            for kind, status in product(recovery.types, recovery.statuses)
        )
        of = self.key | {"since": recovery.since, "until": recovery.until}
        self.of_rows = of | {"scans": as_json(scans), "recovery_id": recovery.id}
        self.of_events = of | {"scans": log.as_scans(self.missed)}

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
        rows = self.tx.all(ROWS.page[Order.ASC], **self.of_rows, limit=ROWS_AT_ONCE)
        missed = self.tx.all(EVENTS.page[Order.ASC], **self.of_events, limit=room) if self.missed and room else []
        for _, *columns, _ in rows:
            self._queue_again(DeliveryRow(*columns))
        for _, *columns in missed:
            self._insert(Event._make(columns))
        is_all = len(rows) < ROWS_AT_ONCE and (not self.missed or len(missed) < room)
        return _Queued(len(rows) + len(missed), is_all)

    def _queue_again(self, row: DeliveryRow) -> None:
        row = rules.started_over(row, DeliveryTrigger.RECOVER)._replace(recovery_id=self.recovery.id)
        store.queue_again(self.tx, self.key["organization_id"], row, at=self.recovery.at)

    def _insert(self, event: Event) -> None:
        row = rules.new_delivery(self.key["endpoint_id"], event, DeliveryTrigger.RECOVER, self.recovery.at)
        row = row._replace(recovery_id=self.recovery.id)
        store.insert_delivery(self.tx, self.key["organization_id"], row, event)


class _Queued(NamedTuple):
    """The deliveries that were queued again in one transaction."""

    deliveries: int
    is_all: bool


# The worker's part -----------------------------------------------------------------------------------------------

EndpointKey = tuple[str, str]
"""(organization id, endpoint id)."""

_SQL = sql_files.load(__name__)
WAITING, UNFINISHED, NEXT, END_RECOVERY = (_SQL.statement(name) for name in ("waiting", "unfinished", "next", "end"))


def recovering(tx: Tx, limit: int) -> list[EndpointKey]:
    """Return endpoints with unfinished recoveries, any of them: each has its turn."""
    return [(row[0], row[1]) for row in tx.all(UNFINISHED, limit=limit)]


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
