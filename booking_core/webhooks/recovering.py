"""Recovery: failed deliveries of a period are queued again, a few at once and the others by the worker.

Rows are updated, `ROWS_AT_ONCE` in the request and in each turn of a worker. A range of missed events is marked as
recovering, with one row for each type; a worker makes rows of it as they are sent.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    Integer,
    Text,
    bindparam,
    func,
    literal_column,
    null,
    select,
    text,
    tuple_,
    union,
    update,
)
from sqlalchemy.engine import Dialect

from booking_core.base import tokens
from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.context import Caller
from booking_core.base.errors import Unprocessable
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import Id, deliveries, events, events_by_type, webhook_ranges, webhook_recoveries
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
from booking_core.webhooks.rules import EndpointRow
from booking_core.webhooks.store import ENDPOINT_ID, ORGANIZATION_ID, own

ROWS_AT_ONCE = 1_000
MATCHED_MAX = 50_000
"""Matching deliveries are counted up to this number."""
QUEUED_MAX = 200
"""Recovered events of one endpoint that are queued rows at the same time."""
_SKEW = MINUTE
"""An event has the date of its request's beginning, so dates run a little against the sequence (see events.store)."""

_CLOCKS_DIFFER = HOUR
"""Deliveries end by the database's clock, and a recovery begins by the server's clock. It is far less than six attempts
take."""


class Wanted(NamedTuple):
    """The deliveries that a recovery queues again."""

    since: int
    until: int | None
    statuses: Sequence[str]
    types: Sequence[str]
    at: int
    recovery_id: str
    """Of each delivery that is queued again: the list of deliveries filters by it."""
    ended_until: int = END
    """Deliveries that ended later do not match: a delivery that was recovered and failed once more is unchanged."""

    @property
    def stored(self) -> list[log.Stored]:
        """Return how the rows are stored."""
        return [each for status in self.statuses for each in log.stored_as(DeliveryStatus(status))]


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
    since = caller.organization.zone.parse(request.since)
    until = None if request.until is None else caller.organization.zone.parse(request.until)
    organization_id = caller.organization.id
    endpoint = rules.found(store.lock(tx, organization_id, endpoint_id))
    rules.check_enabled(endpoint)
    if until is not None and until < since:
        raise Unprocessable.at("until", "The time ends before it begins.", "window_reversed")
    statuses = sorted({status.value for status in request.statuses or list(RecoverableStatus)})
    types = sorted({kind.value for kind in request.event_types or list(EventType)})
    wanted = Wanted(since, until, statuses, types, caller.at, tokens.new_id())
    missed = _missed(tx, organization_id, endpoint_id, wanted)
    of_rows = _types_of_rows(tx, organization_id, endpoint, wanted)
    rules.check_entitled(caller, {*of_rows, *(each.part.event_type for each in missed)})
    wanted = wanted._replace(types=of_rows)
    matched = sum(each.events for each in missed)
    if request.dry_run:
        matched += _count_rows(tx, organization_id, endpoint, wanted)
        return _answer(None, matched)
    for each in missed:
        _cut(tx, organization_id, endpoint_id, each.whole, each.part, wanted.at, wanted.recovery_id)
    matched += _recover_rows(tx, organization_id, endpoint, wanted)
    return _answer(wanted.recovery_id, matched)


def _answer(recovery_id: str | None, matched: int) -> dict[str, Any]:
    counted = {"id": recovery_id, "matched": min(matched, MATCHED_MAX)}
    return counted if matched <= MATCHED_MAX else counted | {"has_more": True}


# Rows ------------------------------------------------------------------------------------------------------------

_SCAN = {"event_type": Text}


def _in_period() -> list[Any]:
    d, since, until = deliveries.c, bindparam("since", type_=BigInteger), bindparam("until", type_=BigInteger)
    return [d.created_at >= since, d.created_at < until, d.trigger != DeliveryTrigger.TEST.value]


def _period(wanted: Wanted) -> dict[str, int]:
    return {"since": wanted.since, "until": END if wanted.until is None else wanted.until}


@lru_cache(maxsize=8)
def _matching(stored: log.Stored, *, counted: bool) -> Statement:
    """Return the statement that finds or counts the rows that match, type by type in their order."""

    def build(dialect: Dialect) -> Any:
        of, d = rows_parameter(dialect, "types", _SCAN), deliveries.c
        generation = bindparam("generation", type_=Integer)
        ended = [d.generation == literal_column("0"), d.completed_at <= bindparam("ended_until", type_=BigInteger)]
        given_up = [d.generation < generation] if stored.is_given_up else ended
        matching = (
            select(d.id)
            .join_from(of, deliveries, d.event_type == of.c.event_type)
            .where(
                *own(deliveries),
                d.status == bindparam("status", type_=Text),
                *given_up,
                *_in_period(),
            )
            .limit(bindparam("limit", type_=Integer))
        )
        return select(func.count()).select_from(matching.subquery()) if counted else matching

    return Statement(build)


def _lost_types(dialect: Dialect) -> Any:
    """Select the types of rows that match: an index search for each type, status and generation."""
    of, d = rows_parameter(dialect, "scans", _SCAN | {"status": Text, "generation": Integer}), deliveries.c
    matching = select(d.id).where(
        *own(deliveries),
        d.event_type == of.c.event_type,
        d.status == of.c.status,
        d.generation == of.c.generation,
        *_in_period(),
    )
    return select(of.c.event_type).where(log.has_row(matching.order_by(d.event_sequence), of)).distinct()


_LOST_TYPES = Statement(_lost_types)


def _types_of_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> list[str]:
    """Return the types of the rows that match."""
    scans = as_json(
        {"event_type": kind, "status": stored.status.value, "generation": generation}
        for kind in wanted.types
        for stored in wanted.stored
        for generation in stored.generations(endpoint)
    )
    period = _period(wanted)
    rows = tx.all(_LOST_TYPES, organization_id=organization_id, endpoint_id=endpoint.id, scans=scans, **period)
    return sorted(row[0] for row in rows)


def _requeue(dialect: Dialect) -> Any:
    d, at = deliveries.c, bindparam("at", type_=BigInteger)
    return (
        update(deliveries)
        .where(
            d.organization_id == ORGANIZATION_ID,
            in_rows(dialect, d.id, "matching", "id"),
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
            generation=bindparam("generation", type_=Integer),
            recovery_id=bindparam("recovery_id", type_=Id),
            updated_at=at,
        )
    )


_REQUEUE = Statement(_requeue)


def _recover_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
    """Queue the first matching rows again, leave the others to the workers, and return how many match."""
    queued = _queue_rows(tx, organization_id, endpoint, wanted)
    if queued < ROWS_AT_ONCE:
        return queued
    more = _count_rows(tx, organization_id, endpoint, wanted)
    if more:
        tx.insert(
            webhook_recoveries,
            organization_id=organization_id,
            id=wanted.recovery_id,
            endpoint_id=endpoint.id,
            request=orjson.dumps(wanted._replace(ended_until=wanted.at + _CLOCKS_DIFFER)._asdict()).decode(),
            created_at=wanted.at,
        )
    return queued + more


def _count_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
    """Return how many rows match, of each status counted up to one more than `MATCHED_MAX`."""
    return sum(
        _counted(
            tx,
            _matching(stored, counted=True),
            **_parameters(organization_id, endpoint, wanted, stored, MATCHED_MAX + 1),
        )
        for stored in wanted.stored
    )


def _queue_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
    """Queue matching rows again, at most `ROWS_AT_ONCE`, and return how many. Their endpoint is locked."""
    queued = 0
    for stored in wanted.stored:
        parameters = _parameters(organization_id, endpoint, wanted, stored, ROWS_AT_ONCE - queued)
        found = tx.all(_matching(stored, counted=False), **parameters) if queued < ROWS_AT_ONCE else []
        if found:
            queued += tx.run(
                _REQUEUE,
                organization_id=organization_id,
                matching=as_json({"id": row[0]} for row in found),
                at=wanted.at,
                generation=endpoint.generation,
                recovery_id=wanted.recovery_id,
            )
    return queued


def _counted(tx: Tx, statement: Statement, **parameters: Any) -> int:
    ((number,),) = tx.all(statement, **parameters)
    return int(number)


def _parameters(
    organization_id: str, endpoint: EndpointRow, wanted: Wanted, stored: log.Stored, limit: int
) -> dict[str, Any]:
    decided = {"generation": endpoint.generation} if stored.is_given_up else {"ended_until": wanted.ended_until}
    return decided | {
        "organization_id": organization_id,
        "endpoint_id": endpoint.id,
        "status": stored.status.value,
        "types": as_json({"event_type": kind} for kind in wanted.types),
        "limit": limit,
        **_period(wanted),
    }


# Ranges ----------------------------------------------------------------------------------------------------------


def _bound(*, first: bool) -> Statement:
    """Return the statement for the first sequence since an instant, or the last one before it.

    It looks along the log from the nearest event that is surely on the other side.
    """
    e, other = events.c, events.alias("other")
    at, surely = bindparam("at", type_=BigInteger), bindparam("surely", type_=BigInteger)
    beyond = other.c.created_at < surely if first else other.c.created_at >= surely
    nearest = (
        select(other.c.sequence)
        .where(other.c.organization_id == ORGANIZATION_ID, beyond)
        .order_by(other.c.created_at.desc() if first else other.c.created_at.asc())
        .limit(literal_column("1"))
        .scalar_subquery()
    )
    within = e.sequence > func.coalesce(nearest, 0) if first else e.sequence < func.coalesce(nearest, END)
    # The sum hides the column of another index, whose rows a database would rather sort.
    created_at = e.created_at + literal_column("0")
    dated = created_at >= at if first else created_at < at
    return Statement(
        select(e.sequence)
        .where(e.organization_id == ORGANIZATION_ID, within, dated)
        .order_by(e.sequence.asc() if first else e.sequence.desc())
        .limit(literal_column("1"))
    )


_FIRST_SINCE, _LAST_BEFORE = _bound(first=True), _bound(first=False)


def _bounds(tx: Tx, organization_id: str, wanted: Wanted) -> tuple[int, int]:
    """Return the sequence before the first event of the period, and the sequence of the last."""
    first = tx.first(_FIRST_SINCE, organization_id=organization_id, at=wanted.since, surely=wanted.since - _SKEW)
    if first is None or wanted.until is None:
        return (END if first is None else first[0] - 1), END
    last = tx.first(_LAST_BEFORE, organization_id=organization_id, at=wanted.until, surely=wanted.until + _SKEW)
    return first[0] - 1, 0 if last is None else last[0]


_event_type, _after, _until = (
    bindparam("event_type", type_=Text),
    bindparam("after", type_=BigInteger),
    bindparam("until", type_=BigInteger),
)
_COUNT = Statement(
    select(func.count()).select_from(
        select(events.c.sequence)
        .where(
            events.c.organization_id == ORGANIZATION_ID,
            events.c.type == _event_type,
            events.c.sequence > _after,
            events.c.sequence <= _until,
        )
        .with_hint(events, f"INDEXED BY {events_by_type.name}", dialect_name="sqlite")
        .limit(bindparam("limit", type_=Integer))
        .subquery()
    )
)
_COUNT_OWN = Statement(
    select(func.count())
    .select_from(events)
    .where(
        events.c.organization_id == ORGANIZATION_ID,
        events.c.resource_id == ENDPOINT_ID,
        events.c.type == _event_type,
        events.c.sequence + literal_column("0") > _after,
        events.c.sequence + literal_column("0") <= _until,
    )
)
_DROP = Statement(
    webhook_ranges.delete().where(
        *own(webhook_ranges),
        webhook_ranges.c.event_type == _event_type,
        webhook_ranges.c.from_sequence == bindparam("from_sequence", type_=BigInteger),
    )
)


class _Missed(NamedTuple):
    """A range of missed events."""

    whole: Stretch
    part: Stretch
    """The part in the period."""
    events: int


def _missed(tx: Tx, organization_id: str, endpoint_id: str, wanted: Wanted) -> list[_Missed]:
    """Return the ranges with events of the period. All of them are counted up to one more than `MATCHED_MAX`."""
    ranges = [
        each
        for each in log.stretches(tx, organization_id, endpoint_id)
        if each.status in wanted.statuses and each.event_type in wanted.types and each.in_flight is None
    ]
    after, until = _bounds(tx, organization_id, wanted) if ranges else (0, 0)
    found: list[_Missed] = []
    for whole in ranges:
        part = whole._replace(after=max(whole.after, after), until=min(whole.until, until))
        limit = max(1, MATCHED_MAX + 1 - sum(each.events for each in found))
        if part.after < part.until and (events := _count_events(tx, organization_id, endpoint_id, part, limit)):
            found.append(_Missed(whole, part, events))
    return found


def _cut(
    tx: Tx,
    organization_id: str,
    endpoint_id: str,
    whole: Stretch,
    part: Stretch,
    at: int,
    recovery_id: str | None = None,
) -> None:
    """Replace a range with three: the recovered part, and the parts before and after it."""
    own = {"organization_id": organization_id, "endpoint_id": endpoint_id, "event_type": whole.event_type}
    tx.run(_DROP, **own, from_sequence=whole.after)
    rest = None, whole.recovery_id
    pieces = (
        (whole.after, part.after, *rest),
        (part.after, part.until, at, recovery_id),
        (part.until, whole.until, *rest),
    )
    for first, last, recovering_at, of_recovery in pieces:
        if first < last:
            tx.insert(
                webhook_ranges,
                **own,
                from_sequence=first,
                until_sequence=None if last == END else last,
                missed_at=whole.missed_at,
                recovering_at=recovering_at,
                recovery_id=of_recovery,
            )


def recover_event(tx: Tx, organization_id: str, endpoint_id: str, event: Event, at: int) -> None:
    """Mark one missed event as recovering, of a range that has it, unless it is in flight."""
    for each in log.stretches(tx, organization_id, endpoint_id):
        is_missed = each.status is DeliveryStatus.FAILED and each.in_flight is None
        if is_missed and each.has(event.type, event.sequence):
            part = each._replace(after=event.sequence - 1, until=event.sequence)
            _cut(tx, organization_id, endpoint_id, each, part, at)


def _count_events(tx: Tx, organization_id: str, endpoint_id: str, of: Stretch, limit: int) -> int:
    """Return how many events lie in the range, counted up to the limit."""
    parameters = {"organization_id": organization_id, "event_type": of.event_type, "after": of.after, "until": of.until}
    own_events = 0
    if of.event_type.startswith("webhook."):  # none is sent to the endpoint that it is about
        own_events = _counted(tx, _COUNT_OWN, **parameters, endpoint_id=endpoint_id)
    return _counted(tx, _COUNT, **parameters, limit=limit + own_events) - own_events


# The worker's part -----------------------------------------------------------------------------------------------

Place = tuple[str, str]
"""(organization id, endpoint id): endpoints are served in turn."""
FIRST: Place = ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")


def _behind(table: Any) -> Any:
    """Select the endpoints of a table whose places follow the given one."""
    own, behind = table.c, tuple_(ORGANIZATION_ID, ENDPOINT_ID)
    return select(own.organization_id, own.endpoint_id).where(tuple_(own.organization_id, own.endpoint_id) > behind)


_RECOVERING = Statement(
    union(_behind(webhook_ranges).where(webhook_ranges.c.recovering_at.is_not(None)), _behind(webhook_recoveries))
    .order_by("organization_id", "endpoint_id")
    .limit(bindparam("limit", type_=Integer))
)
_QUEUED = Statement(
    text(
        f"SELECT count(*) FROM (SELECT 1 FROM deliveries d WHERE d.organization_id = :organization_id"  # noqa: S608
        " AND d.endpoint_id = :endpoint_id AND d.status = 'queued' AND d.lease_until IS NULL"
        f" AND d.generation = :generation LIMIT {QUEUED_MAX}) queued"
    ).bindparams(
        bindparam("organization_id", type_=Id),
        bindparam("endpoint_id", type_=Id),
        bindparam("generation", type_=Integer),
    )
)
_EVENTS = Statement(
    lambda dialect: select(events.c.sequence, events.c.resource_id).where(
        events.c.organization_id == ORGANIZATION_ID, in_rows(dialect, events.c.sequence, "taken", "sequence")
    )
)
_taken = bindparam("taken", type_=BigInteger)
_TAKEN = Statement(
    update(webhook_ranges)
    .where(
        *own(webhook_ranges),
        webhook_ranges.c.recovering_at.is_not(None),
        webhook_ranges.c.from_sequence < _taken,
        webhook_ranges.c.until_sequence > _taken,
    )
    .values(from_sequence=_taken)
)
_DONE = Statement(
    webhook_ranges.delete().where(
        *own(webhook_ranges),
        webhook_ranges.c.recovering_at.is_not(None),
        webhook_ranges.c.until_sequence <= _taken,
    )
)


def recovering(tx: Tx, after: Place, limit: int) -> list[Place]:
    """Return endpoints with deliveries to recover, in the order of their ids."""
    organization_id, endpoint_id = after
    found = tx.all(_RECOVERING, organization_id=organization_id, endpoint_id=endpoint_id, limit=limit)
    return [(row[0], row[1]) for row in found]


def go_on(tx: Tx, place: Place) -> int:
    """Queue the next recovered events and rows of one endpoint, and return how many."""
    endpoint = store.lock(tx, *place)
    return 0 if endpoint is None else _take_events(tx, place, endpoint) + _take_rows(tx, place, endpoint)


def _take_events(tx: Tx, place: Place, endpoint: EndpointRow) -> int:
    """Make queued deliveries of the next recovered events."""
    own = dict(zip(("organization_id", "endpoint_id"), place, strict=True))
    limit = QUEUED_MAX - _counted(tx, _QUEUED, **own, generation=endpoint.generation)
    of = [each for each in log.stretches(tx, *place) if each.recovering_at is not None]
    if limit <= 0 or not of:
        return 0
    found = log.find_events(tx, *place, of, Order.ASC, limit)
    _insert_rows(tx, place[0], endpoint, found)
    taken = found[-1][0] if len(found) == limit else END
    for statement in (_DONE, _TAKEN):
        tx.run(statement, **own, taken=taken)
    return len(found)


def _insert_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, found: Sequence[log.Placed]) -> None:
    taken = as_json({"sequence": sequence} for sequence, _ in found)
    resources: dict[int, str | None] = dict(tx.all(_EVENTS, organization_id=organization_id, taken=taken))
    for place, row in found:
        store.insert_delivery(tx, organization_id, row, place, resources[place], endpoint.generation)


_RECOVERY = Statement(
    select(webhook_recoveries.c.id, webhook_recoveries.c.request, webhook_recoveries.c.created_at)
    .where(*own(webhook_recoveries))
    .order_by(webhook_recoveries.c.id)
    .limit(literal_column("1"))
)
_RECOVERED = Statement(
    webhook_recoveries.delete().where(
        webhook_recoveries.c.organization_id == ORGANIZATION_ID, webhook_recoveries.c.id == bindparam("id", type_=Id)
    )
)


def _take_rows(tx: Tx, place: Place, endpoint: EndpointRow) -> int:
    """Queue the next rows of the endpoint's first recovery, which ends when the endpoint was disabled since."""
    organization_id, endpoint_id = place
    found = tx.first(_RECOVERY, organization_id=organization_id, endpoint_id=endpoint_id)
    if found is None:
        return 0
    recovery_id, request, created_at = found
    is_on = endpoint.status == EndpointStatus.ENABLED and endpoint.enabled_at <= created_at
    queued = _queue_rows(tx, organization_id, endpoint, Wanted(**orjson.loads(request))) if is_on else 0
    if queued < ROWS_AT_ONCE:
        tx.run(_RECOVERED, organization_id=organization_id, id=recovery_id)
    return queued
