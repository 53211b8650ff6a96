"""Recovery: failed deliveries of a period are queued again, a few at once and the others by the worker.

What is a row is updated, `ROWS_AT_ONCE` in the request and in each turn of a worker. What lies in a range of missed
events is marked as recovering, which is one row for each type; a worker makes rows of it as they are sent.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from sqlalchemy import BigInteger, Integer, Text, bindparam, func, literal_column, null, select, text, update
from sqlalchemy.engine import Dialect

from booking_core.base import tokens
from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.context import Caller
from booking_core.base.errors import Malformed, NotFound, Unprocessable
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
    RecoverableStatus,
)
from booking_core.webhooks import log, rules, store
from booking_core.webhooks.log import END, Stretch
from booking_core.webhooks.rules import EndpointRow

ROWS_AT_ONCE = 1_000
MATCHED_MAX = 50_000
"""Matching deliveries are counted up to this number."""
QUEUED_MAX = 200
"""Recovered events of one endpoint that are queued rows at the same time."""
_SKEW = MINUTE
"""An event is dated when its request began, so that dates run a little against the sequence (see events.store)."""

_CLOCKS_DIFFER = HOUR
"""Deliveries end by the database's clock, and a recovery begins by that of the server. It is far less than six attempts
take."""

_organization_id = bindparam("organization_id", type_=Id)
_endpoint_id = bindparam("endpoint_id", type_=Id)


class Wanted(NamedTuple):
    """The deliveries that a recovery queues again."""

    since: int
    until: int | None
    statuses: tuple[str, ...]
    types: tuple[str, ...]
    at: int
    ended_until: int = END
    """Deliveries that ended later do not match: one that was recovered and failed once more stays as it is."""

    @property
    def stored(self) -> list[log.Stored]:
        """Return how the rows are stored: some of the failed ones are queued still."""
        found = [log.Stored(DeliveryStatus(status)) for status in self.statuses]
        if DeliveryStatus.FAILED in self.statuses:
            found.append(log.Stored(DeliveryStatus.QUEUED, is_given_up=True))
        return found


def recover(tx: Tx, caller: Caller, endpoint_id: str, request: DeliveryRecover) -> dict[str, Any]:
    """Queue the failed deliveries of a period again, and return how many (decision W2).

    Each starts over with as many attempts and the same delays as a new delivery; its earlier attempts stay in its log.
    Tests are not queued again. A worker goes on with more than a transaction holds.

    Returns:
        `matched`, counted up to 50,000, and `has_more` when there are more.

    Raises:
        Malformed: `since` or `until` is no timestamp.
        NotFound: the organization has no such endpoint.
        Conflict: `endpoint_not_enabled`.
        Unprocessable: the time ends before it begins.
    """
    since = _instant(caller, "since", request.since)
    until = None if request.until is None else _instant(caller, "until", request.until)
    organization_id = caller.organization.id
    endpoint = store.lock(tx, organization_id, endpoint_id)
    if endpoint is None:
        raise NotFound
    rules.check_enabled(endpoint)
    if until is not None and until < since:
        raise Unprocessable.at("until", "The time ends before it begins.", "window_reversed")
    statuses = sorted({status.value for status in request.statuses or list(RecoverableStatus)})
    types = sorted({kind.value for kind in request.event_types or list(EventType)})
    wanted = Wanted(since, until, tuple(statuses), tuple(types), caller.at)
    matched = _recover_ranges(tx, organization_id, endpoint_id, wanted)
    matched += _recover_rows(tx, organization_id, endpoint, wanted)
    return {"matched": matched} if matched <= MATCHED_MAX else {"matched": MATCHED_MAX, "has_more": True}


def _instant(caller: Caller, field: str, text: str) -> int:
    try:
        return caller.organization.zone.parse(text)
    except ValueError as error:
        raise Malformed.at(field, str(error)) from None


# Rows ------------------------------------------------------------------------------------------------------------

_SCAN = {"event_type": Text}


@lru_cache(maxsize=8)
def _matching(stored: log.Stored, *, counted: bool) -> Statement:
    """Return the statement that finds or counts the rows that match, type by type in their order."""

    def build(dialect: Dialect) -> Any:
        of, d = rows_parameter(dialect, "types", _SCAN), deliveries.c
        generation = bindparam("generation", type_=Integer)
        ended = [d.generation == literal_column("0"), d.completed_at <= bindparam("ended_until", type_=BigInteger)]
        given_up = [d.generation < generation] if stored.is_given_up else ended
        until = bindparam("until", type_=BigInteger)
        matching = (
            select(d.id)
            .join_from(of, deliveries, d.event_type == of.c.event_type)
            .where(
                d.organization_id == _organization_id,
                d.endpoint_id == _endpoint_id,
                d.status == bindparam("status", type_=Text),
                *given_up,
                d.created_at >= bindparam("since", type_=BigInteger),
                d.created_at < until,
                d.trigger != DeliveryTrigger.TEST.value,
            )
            .limit(bindparam("limit", type_=Integer))
        )
        return select(func.count()).select_from(matching.subquery()) if counted else matching

    return Statement(build)


def _requeue(dialect: Dialect) -> Any:
    d, at = deliveries.c, bindparam("at", type_=BigInteger)
    return (
        update(deliveries)
        .where(
            d.organization_id == _organization_id,
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
            updated_at=at,
        )
    )


_REQUEUE = Statement(_requeue)


def _recover_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
    """Queue the first matching rows again, leave the others to the workers, and return how many match."""
    queued = requeue(tx, organization_id, endpoint, wanted)
    if queued < ROWS_AT_ONCE:
        return queued
    more = _count_rows(tx, organization_id, endpoint, wanted)
    if more:
        tx.insert(
            webhook_recoveries,
            organization_id=organization_id,
            id=tokens.new_id(),
            endpoint_id=endpoint.id,
            request=orjson.dumps(wanted._replace(ended_until=wanted.at + _CLOCKS_DIFFER)._asdict()).decode(),
            created_at=wanted.at,
        )
    return queued + more


def requeue(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
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
            )
    return queued


def _count_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, wanted: Wanted) -> int:
    found = 0
    for stored in wanted.stored:
        parameters = _parameters(organization_id, endpoint, wanted, stored, MATCHED_MAX + 1)
        row = tx.first(_matching(stored, counted=True), **parameters)
        found += 0 if row is None else int(row[0])
    return found


def _parameters(
    organization_id: str, endpoint: EndpointRow, wanted: Wanted, stored: log.Stored, limit: int
) -> dict[str, Any]:
    decided = {"generation": endpoint.generation} if stored.is_given_up else {"ended_until": wanted.ended_until}
    return decided | {
        "organization_id": organization_id,
        "endpoint_id": endpoint.id,
        "status": stored.status.value,
        "types": as_json({"event_type": kind} for kind in wanted.types),
        "since": wanted.since,
        "until": END if wanted.until is None else wanted.until,
        "limit": limit,
    }


# Ranges ----------------------------------------------------------------------------------------------------------


def _bound(*, first: bool) -> Statement:
    """Return the statement for the first sequence since an instant, or the last one before it.

    It looks along the log from the nearest event that lies surely on the other side.
    """
    e, other = events.c, events.alias("other")
    at, surely = bindparam("at", type_=BigInteger), bindparam("surely", type_=BigInteger)
    beyond = other.c.created_at < surely if first else other.c.created_at >= surely
    nearest = (
        select(other.c.sequence)
        .where(other.c.organization_id == _organization_id, beyond)
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
        .where(e.organization_id == _organization_id, within, dated)
        .order_by(e.sequence.asc() if first else e.sequence.desc())
        .limit(literal_column("1"))
    )


_FIRST_SINCE, _LAST_BEFORE = _bound(first=True), _bound(first=False)


def _bounds(tx: Tx, organization_id: str, wanted: Wanted) -> tuple[int, int]:
    """Return the sequence before the first event of the period, and that of the last."""
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
            events.c.organization_id == _organization_id,
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
    lambda dialect: (
        select(func.count())
        .select_from(events)
        .where(
            events.c.organization_id == _organization_id,
            events.c.resource_id == _endpoint_id,
            events.c.type == bindparam("event_type", type_=Text),
            events.c.sequence + literal_column("0") > bindparam("after", type_=BigInteger),
            events.c.sequence + literal_column("0") <= bindparam("until", type_=BigInteger),
        )
    )
)
_DROP = Statement(
    webhook_ranges.delete().where(
        webhook_ranges.c.organization_id == _organization_id,
        webhook_ranges.c.endpoint_id == _endpoint_id,
        webhook_ranges.c.event_type == bindparam("event_type", type_=Text),
        webhook_ranges.c.from_sequence == bindparam("from_sequence", type_=BigInteger),
    )
)


def _recover_ranges(tx: Tx, organization_id: str, endpoint_id: str, wanted: Wanted) -> int:
    """Mark what lies in the period as recovering, and return how many events that are."""
    missed = [
        each
        for each in log.stretches(tx, organization_id, endpoint_id)
        if each.status in wanted.statuses and each.event_type in wanted.types and each.in_flight is None
    ]
    if not missed:
        return 0
    after, until = _bounds(tx, organization_id, wanted)
    within = [(each, each._replace(after=max(each.after, after), until=min(each.until, until))) for each in missed]
    cut = [(whole, part) for whole, part in within if part.after < part.until]
    for whole, part in cut:
        _cut(tx, organization_id, endpoint_id, whole, part, wanted.at)
    return _count_events(tx, organization_id, endpoint_id, [part for _, part in cut]) if cut else 0


def _cut(tx: Tx, organization_id: str, endpoint_id: str, whole: Stretch, part: Stretch, at: int) -> None:
    """Replace a range by its part, which is recovered, and what lies before and behind it."""
    own = {"organization_id": organization_id, "endpoint_id": endpoint_id, "event_type": whole.event_type}
    tx.run(_DROP, **own, from_sequence=whole.after)
    pieces = ((whole.after, part.after, None), (part.after, part.until, at), (part.until, whole.until, None))
    for first, last, recovering_at in pieces:
        if first < last:
            tx.insert(
                webhook_ranges,
                **own,
                from_sequence=first,
                until_sequence=None if last == END else last,
                missed_at=whole.missed_at,
                recovering_at=recovering_at,
            )


def recover_event(tx: Tx, organization_id: str, endpoint_id: str, event_type: str, sequence: int, at: int) -> None:
    """Mark one missed event as recovering, of a range that has it."""
    for each in log.stretches(tx, organization_id, endpoint_id):
        is_here = each.event_type == event_type and each.after < sequence <= each.until
        if is_here and each.status is DeliveryStatus.FAILED:
            part = each._replace(after=sequence - 1, until=sequence)
            _cut(tx, organization_id, endpoint_id, each, part, at)


def _count_events(tx: Tx, organization_id: str, endpoint_id: str, of: Sequence[Stretch]) -> int:
    """Return how many events lie in the ranges, counted up to one more than `MATCHED_MAX`."""
    found = 0
    for each in of:
        own = {"organization_id": organization_id, "event_type": each.event_type}
        bounds = {"after": each.after, "until": each.until}
        row = tx.first(_COUNT, **own, **bounds, limit=MATCHED_MAX + 1 - found)
        found += 0 if row is None else int(row[0])
        if each.event_type.startswith("webhook."):  # none is sent to the endpoint that it is about
            row = tx.first(_COUNT_OWN, **own, **bounds, endpoint_id=endpoint_id)
            found -= 0 if row is None else int(row[0])
        if found > MATCHED_MAX:
            break
    return found


# The worker's part -----------------------------------------------------------------------------------------------

Place = tuple[str, str]
"""(organization id, endpoint id): endpoints are served in turn."""
FIRST: Place = ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")

_RECOVERING = Statement(
    text(
        "SELECT DISTINCT r.organization_id, r.endpoint_id FROM webhook_ranges r"
        " WHERE r.recovering_at IS NOT NULL AND (r.organization_id > :organization_id"
        " OR (r.organization_id = :organization_id AND r.endpoint_id > :endpoint_id))"
        " ORDER BY r.organization_id, r.endpoint_id LIMIT :limit"
    ).bindparams(bindparam("organization_id", type_=Id), bindparam("endpoint_id", type_=Id))
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
        events.c.organization_id == _organization_id, in_rows(dialect, events.c.sequence, "taken", "sequence")
    )
)
_TAKEN = Statement(
    update(webhook_ranges)
    .where(
        webhook_ranges.c.organization_id == _organization_id,
        webhook_ranges.c.endpoint_id == _endpoint_id,
        webhook_ranges.c.recovering_at.is_not(None),
        webhook_ranges.c.from_sequence < bindparam("taken", type_=BigInteger),
        webhook_ranges.c.until_sequence > bindparam("taken", type_=BigInteger),
    )
    .values(from_sequence=bindparam("taken", type_=BigInteger))
)
_DONE = Statement(
    webhook_ranges.delete().where(
        webhook_ranges.c.organization_id == _organization_id,
        webhook_ranges.c.endpoint_id == _endpoint_id,
        webhook_ranges.c.recovering_at.is_not(None),
        webhook_ranges.c.until_sequence <= bindparam("taken", type_=BigInteger),
    )
)


def recovering(tx: Tx, after: Place, limit: int) -> list[Place]:
    """Return endpoints with ranges that are recovered, in the order of their ids."""
    organization_id, endpoint_id = after
    found = tx.all(_RECOVERING, organization_id=organization_id, endpoint_id=endpoint_id, limit=limit)
    return [(row[0], row[1]) for row in found]


def take_events(tx: Tx, place: Place) -> int:
    """Make queued deliveries of the next recovered events of one endpoint, and return how many."""
    organization_id, endpoint_id = place
    endpoint = store.lock(tx, organization_id, endpoint_id)
    if endpoint is None:
        return 0
    queued = tx.first(_QUEUED, organization_id=organization_id, endpoint_id=endpoint_id, generation=endpoint.generation)
    limit = QUEUED_MAX - (0 if queued is None else int(queued[0]))
    of = [each for each in log.stretches(tx, organization_id, endpoint_id) if each.recovering_at is not None]
    if limit <= 0 or not of:
        return 0
    found = log.find_events(tx, organization_id, endpoint_id, of, Order.ASC, limit)
    _insert_rows(tx, organization_id, endpoint, found)
    taken = found[-1][0] if len(found) == limit else END
    for statement in (_DONE, _TAKEN):
        tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id, taken=taken)
    return len(found)


def _insert_rows(tx: Tx, organization_id: str, endpoint: EndpointRow, found: Sequence[log.Placed]) -> None:
    taken = as_json({"sequence": sequence} for sequence, _ in found)
    resources: dict[int, str | None] = dict(tx.all(_EVENTS, organization_id=organization_id, taken=taken))
    for sequence, row in found:
        store.insert_delivery(
            tx,
            organization_id,
            row,
            event_sequence=sequence,
            resource_id=resources[sequence],
            generation=endpoint.generation,
        )


_RECOVERIES = Statement(
    text(
        "SELECT organization_id, id, endpoint_id, request, created_at FROM webhook_recoveries"
        " WHERE (organization_id > :organization_id OR (organization_id = :organization_id AND id > :id))"
        " ORDER BY organization_id, id LIMIT :limit"
    ).bindparams(bindparam("organization_id", type_=Id), bindparam("id", type_=Id))
)
_RECOVERED = Statement(
    webhook_recoveries.delete().where(
        webhook_recoveries.c.organization_id == _organization_id, webhook_recoveries.c.id == bindparam("id", type_=Id)
    )
)


class Recovery(NamedTuple):
    """A recovery that a worker goes on with."""

    organization_id: str
    id: str
    endpoint_id: str
    request: str
    created_at: int


def recoveries(tx: Tx, after: Place, limit: int) -> list[Recovery]:
    """Return recoveries in the order of their ids, behind that (organization id, id)."""
    found = tx.all(_RECOVERIES, organization_id=after[0], id=after[1], limit=limit)
    return [Recovery._make(row) for row in found]


def go_on(tx: Tx, recovery: Recovery) -> int:
    """Queue the next rows of a recovery again, and return how many. It ends when its endpoint was disabled since."""
    endpoint = store.lock(tx, recovery.organization_id, recovery.endpoint_id)
    wanted = orjson.loads(recovery.request)
    wanted = Wanted(**wanted | {"statuses": tuple(wanted["statuses"]), "types": tuple(wanted["types"])})
    is_over = endpoint is None or endpoint.status != "enabled" or endpoint.enabled_at > recovery.created_at
    queued = 0 if endpoint is None or is_over else requeue(tx, recovery.organization_id, endpoint, wanted)
    if queued < ROWS_AT_ONCE:
        tx.run(_RECOVERED, organization_id=recovery.organization_id, id=recovery.id)
    return queued
