"""The SQL of deliveries in flight: leases of first attempts, and the statements that lock and settle deliveries.

A worker claims several events of the log for one endpoint at once, and their first attempts are one row, a lease
(decisions/0030). A delivery gets its row, and its first attempt another, with the result. Until then the lease has all
their data: they can be written without a result when the lease expires. Other attempts lease the row of their delivery.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    Integer,
    Table,
    and_,
    bindparam,
    case,
    delete,
    insert,
    literal,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core import organizations
from booking_core.base.clock import MINUTE
from booking_core.base.context import Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_from_json, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints, webhook_leases
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import InsertFromSelect, Update
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from booking_core.models.webhooks import AttemptTrigger, DeliveryStatus, DeliveryTrigger
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery

Key = tuple[str, str, str]
"""(organization id, endpoint id, id of a delivery or of a lease of first attempts)."""
_KEY: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "id": Id}

# Leases of first attempts ----------------------------------------------------------------------------------------

WORKER_LENGTH = 36
"""A token begins with the id of the worker."""


class LeasedAttempt(NamedTuple):
    """A first attempt in flight: an event of the log, and the id under which it is sent."""

    sequence: int
    event_id: str
    event_type: str
    resource_id: str | None
    created_at: int
    """Of the delivery."""
    attempt_id: str


class Lease(NamedTuple):
    """The attempts that were claimed together for one endpoint, and are not settled."""

    organization_id: str
    endpoint_id: str
    id: str
    token: str
    lease_until: int
    claimed_at: int
    generation: int
    attempts: tuple[LeasedAttempt, ...]
    lost_leases: int = 0

    def delivery(self, attempt: LeasedAttempt) -> LeasedDelivery:
        """Return the delivery of an attempt, as it was queued."""
        return LeasedDelivery(
            organization_id=self.organization_id,
            id=rules.delivery_id(attempt.event_id, self.endpoint_id),
            endpoint_id=self.endpoint_id,
            event_id=attempt.event_id,
            event_type=attempt.event_type,
            lease_token=self.token,
            lease_until=self.lease_until,
            lost_leases=self.lost_leases,
            generation=self.generation,
        )


COLUMNS = tuple(webhook_leases.c[name] for name in Lease._fields)


def from_row(row: Sequence[Any]) -> Lease:
    """Return the lease of a row of COLUMNS."""
    lease = Lease._make(row)
    return lease._replace(attempts=parsed(row[Lease._fields.index("attempts")]))


def parsed(attempts: str) -> tuple[LeasedAttempt, ...]:
    """Return the attempts of a lease from their text."""
    return tuple(LeasedAttempt._make(each) for each in orjson.loads(attempts))


def _written(attempts: Sequence[LeasedAttempt]) -> dict[str, Any]:
    """Return the columns of the attempts, which are in the order of the log."""
    return {
        "first_sequence": attempts[0].sequence,
        "last_sequence": attempts[-1].sequence,
        "attempts": orjson.dumps([tuple(each) for each in attempts]).decode(),
    }


def insert_lease(tx: Tx, lease: Lease) -> None:
    """Insert a lease, whose attempts are in the order of the log."""
    tx.insert(webhook_leases, **lease._asdict() | _written(lease.attempts))


def _end(dialect: Dialect, name: str) -> dml.Delete:
    """Return the statement that deletes leases whose attempts are all settled."""
    of, own = rows_parameter(dialect, name, _KEY).c, webhook_leases.c
    if dialect.name == "postgresql":
        return delete(webhook_leases).where(*(own[key] == of[key] for key in _KEY))
    return delete(webhook_leases).where(tuple_(*(own[key] for key in _KEY)).in_(select(*(of[key] for key in _KEY))))


END = InsertFromSelect("ended_leases", _end)
KEEP = Update(
    "kept_leases",
    webhook_leases,
    sets=("first_sequence", "last_sequence", "attempts"),
    keys=tuple(_KEY),
)


def settle_lease(tx: Tx, lease: Lease, settled: Iterable[LeasedAttempt]) -> None:
    """Take settled attempts out of a locked lease, which ends with its last one."""
    gone = {each.attempt_id for each in settled}
    left = [each for each in lease.attempts if each.attempt_id not in gone]
    key = {"organization_id": lease.organization_id, "endpoint_id": lease.endpoint_id, "id": lease.id}
    if left:
        tx.update(KEEP, **key, **_written(left))
    else:
        tx.insert_from_select(END, **key)


# Locking ---------------------------------------------------------------------------------------------------------

_LEASED = tuple(deliveries.c[name] for name in LeasedDelivery._fields)
_LEASE_AT = len(_LEASED)
_ENDPOINT_AT = _LEASE_AT + len(COLUMNS)
_ORGANIZATION_AT = _ENDPOINT_AT + len(EndpointRow._fields)
_AT = _ORGANIZATION_AT + len(fields(Organization))


def _lock(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Return the statement that locks the wanted deliveries and leases, each with its endpoint and organization.

    On PostgreSQL LATERAL leaves the planner no choice. Row by row in the wanted order, each endpoint is locked before
    its delivery or lease: concurrent transactions wait for each other and never deadlock. Each row is found by its own
    key; for a join the planner would scan the whole log of an organization that has sent little.
    """
    wanted = rows_parameter(dialect, "wanted", _KEY | {"is_lease": Boolean})
    of_endpoint = (
        webhook_endpoints.c.organization_id == wanted.c.organization_id,
        webhook_endpoints.c.id == wanted.c.endpoint_id,
    )
    of_delivery = (
        deliveries.c.organization_id == wanted.c.organization_id,
        deliveries.c.id == wanted.c.id,
        # There is none: while the table is new, the planner may read the whole log of the endpoint to find that out.
        wanted.c.is_lease.is_not(True),
    )
    of_lease = tuple(webhook_leases.c[key] == wanted.c[key] for key in _KEY)
    if dialect.name == "sqlite":
        return (
            select(*_LEASED, *COLUMNS, *store.ENDPOINT_COLUMNS, *organizations.COLUMNS, now_us(dialect))
            .join_from(wanted, webhook_endpoints, and_(*of_endpoint))
            .outerjoin(deliveries, and_(*of_delivery))
            .outerjoin(webhook_leases, and_(*of_lease))
            .join(organization_table, organization_table.c.id == wanted.c.organization_id)
        )
    endpoint = select(*store.ENDPOINT_COLUMNS).where(*of_endpoint)
    e = endpoint.with_for_update(key_share=True, skip_locked=skip_locked).lateral("e")
    delivery = select(*_LEASED).where(*of_delivery, deliveries.c.endpoint_id == e.c.id)
    d = delivery.with_for_update(key_share=True, skip_locked=skip_locked).lateral("d")
    lease = select(*COLUMNS).where(*of_lease, webhook_leases.c.endpoint_id == e.c.id)
    h = lease.with_for_update(skip_locked=skip_locked).lateral("l")
    owner = select(*organizations.COLUMNS).where(organization_table.c.id == wanted.c.organization_id)
    o = owner.limit(literal_column("1")).lateral("o")
    return (
        select(*d.c, *h.c, *e.c, *o.c, now_us(dialect))
        .select_from(wanted)
        .join(e, true())
        .outerjoin(d, true())
        .outerjoin(h, true())
        .join(o, true())
    )


_LOCK = Statement(lambda dialect: _lock(dialect, skip_locked=False))
_LOCK_UNLOCKED = Statement(lambda dialect: _lock(dialect, skip_locked=True))


class FirstAttempt(NamedTuple):
    """An attempt of a locked lease."""

    lease: Lease
    attempt: LeasedAttempt
    like: LeasedDelivery
    """The delivery of the lease's first attempt: the others differ in their ids and events alone."""


@dataclass(slots=True)
class LockedDeliveries:
    """Locked deliveries with their endpoints and organizations, by (organization id, id)."""

    at: int = 0
    deliveries: dict[tuple[str, str], LeasedDelivery] = field(default_factory=dict)
    """The deliveries that have a row."""
    first_attempts: dict[str, FirstAttempt] = field(default_factory=dict)
    """The first attempts of the other deliveries, by the ids of the attempts."""
    endpoints: dict[tuple[str, str], EndpointRow] = field(default_factory=dict)
    organizations: dict[str, Organization] = field(default_factory=dict)

    def lock(
        self, tx: Tx, keys: Iterable[Key], *, leases: Iterable[Key] = (), skip_locked: bool = False
    ) -> "LockedDeliveries":
        """Lock the deliveries and leases that still exist, and return all that are locked; with `skip_locked`, only
        those without another lock.

        Args:
            leases: the keys that are known to be leases of first attempts.
        """
        wanted = [(*key, False) for key in keys] + [(*key, True) for key in leases]
        named = as_json(dict(zip((*_KEY, "is_lease"), each, strict=True)) for each in sorted(set(wanted)))
        for row in tx.all(_LOCK_UNLOCKED if skip_locked else _LOCK, wanted=named):
            self.at = self.at or row[_AT]
            self._add(row)
        return self

    def _add(self, row: Row) -> None:
        endpoint = store.endpoint_from_row(row[_ENDPOINT_AT:_ORGANIZATION_AT])
        if row[0] is not None:
            delivery = LeasedDelivery._make(row[:_LEASE_AT])
            owner = delivery.organization_id
            self.deliveries[owner, delivery.id] = rules.as_given_up(delivery, endpoint)
        elif row[_LEASE_AT] is not None:
            lease = from_row(row[_LEASE_AT:_ENDPOINT_AT])
            owner = lease.organization_id
            like = rules.as_given_up(lease.delivery(lease.attempts[0]), endpoint)
            for attempt in lease.attempts:
                self.first_attempts[attempt.attempt_id] = FirstAttempt(lease, attempt, like)
        else:
            return
        self.endpoints[owner, endpoint.id] = endpoint
        if owner not in self.organizations:
            self.organizations[owner] = organizations.from_row(row[_ORGANIZATION_AT:_AT])


# Expired leases --------------------------------------------------------------------------------------------------

RESCUE_BATCH = 500
PARKED = 10 * MINUTE
"""After this time it is tried again to rescue a delivery that could not be rescued."""


def _expired(dialect: Dialect) -> Any:
    limit = bindparam("limit", type_=Integer)
    found = [
        select(t.c.organization_id, t.c.endpoint_id, t.c.id, t.c.lease_until)
        .where(t.c.lease_until <= select(now_us(dialect)).scalar_subquery())
        .order_by(t.c.lease_until)
        .limit(limit)
        .subquery(f"expired_{t.name}")
        for t in (deliveries, webhook_leases)
    ]
    c = union_all(*(select(*rows.c) for rows in found)).subquery("expired").c
    return select(c.organization_id, c.endpoint_id, c.id).order_by(c.lease_until).limit(limit)


EXPIRED = Statement(_expired)


def expired_leases(tx: Tx) -> list[Key]:
    """Return the deliveries, and the leases of first attempts, that have expired: at most 500, the oldest first."""
    return [(owner, endpoint_id, row_id) for owner, endpoint_id, row_id in tx.all(EXPIRED, limit=RESCUE_BATCH)]


def _parking(table: Table) -> Statement:
    """Return the statement that defers expired rows, and counts them as lost at least so often."""
    lost, least = table.c.lost_leases, bindparam("lost_leases", type_=Integer)

    def build(dialect: Dialect) -> dml.Update:
        now = now_us(dialect)
        return (
            update(table)
            .where(
                *(table.c[key] == bindparam(key, type_=kind) for key, kind in _KEY.items()), table.c.lease_until <= now
            )
            .values(
                lease_until=now + bindparam("wait", type_=BigInteger),
                lost_leases=case((lost > least, lost), else_=least),
            )
        )

    return Statement(build)


PARK = tuple(map(_parking, (deliveries, webhook_leases)))


def park(tx: Tx, key: Key) -> None:
    """Defer a delivery, or a lease, that cannot be rescued: it hides no other.

    Its number of expired leases shows it to the doctor: no rescued delivery keeps so many.
    """
    for statement in PARK:
        tx.run(statement, **dict(zip(_KEY, key, strict=True)), wait=PARKED, lost_leases=rules.EXPIRED_LEASES_MAX)


# Settling --------------------------------------------------------------------------------------------------------

SETTLE = Update(
    "settle",
    deliveries,
    sets=(
        "status",
        "failure_reason",
        "attempt_count",
        "next_attempt_at",
        "completed_at",
        "last_response_status",
        "last_error",
        "lease_token",
        "lease_until",
        "lost_leases",
        "generation",
        "updated_at",
    ),
)
RESULT = Update(
    "attempt_result", attempts, sets=("started_at", "duration_ms", "response_status", "response_excerpt", "error")
)
HEALTH = Update(
    "endpoint_health",
    webhook_endpoints,
    sets=("consecutive_failures", "last_success_at", "last_failure_at", "last_timed_out", "warned_hours"),
)

# First attempts that have ended ----------------------------------------------------------------------------------

# Most deliveries are written once, with their first attempt (decisions/0030). On PostgreSQL the rows of both tables are
# made of one JSON text, which has their common values once.

_OF_DELIVERY = (
    "organization_id",
    "endpoint_id",
    "event_id",
    "event_type",
    "event_sequence",
    "resource_id",
    "status",
    "failure_reason",
    "attempt_count",
    "next_attempt_at",
    "last_attempt_at",
    "completed_at",
    "lost_leases",
    "created_at",
    "updated_at",
    "generation",
)
_OF_ATTEMPT = (
    "organization_id",
    "delivery_id",
    "started_at",
    "duration_ms",
    "response_status",
    "response_excerpt",
    "error",
)
_OTHER_NAMES = {"id": "delivery_id", "last_response_status": "response_status", "last_error": "error"}
_DELIVERIES = {name: name for name in _OF_DELIVERY} | _OTHER_NAMES
_ATTEMPTS = {name: name for name in _OF_ATTEMPT} | {"id": "attempt_id"}
"""The collected column of each column."""
_DELIVERY: dict[str, Any] = {"trigger": DeliveryTrigger.EVENT.value, "max_attempts": WEBHOOK_ATTEMPTS}
_ATTEMPT: dict[str, Any] = {"trigger": AttemptTrigger.SCHEDULED.value, "number": 1}
"""The columns whose value is the same in every row."""
_SUCCEEDED: dict[str, Any] = {
    "status": DeliveryStatus.SUCCEEDED.value,
    "failure_reason": None,
    "attempt_count": 1,
    "next_attempt_at": None,
    "lost_leases": 0,
    "generation": 0,
    "error": None,
}
"""The columns that are the same for every first attempt that succeeded. Most rows leave them out, at two thirds of the
cost."""

_TYPES = {source: deliveries.c[name].type for name, source in _DELIVERIES.items()} | {
    source: attempts.c[name].type for name, source in _ATTEMPTS.items()
}


def _inserting_both(known: Mapping[str, Any]) -> Callable[[Dialect, str], dml.Insert]:
    """Return the statement of PostgreSQL, which alone can insert into two tables at once.

    Args:
        known: collected columns that are not collected, and their values.
    """

    def build(dialect: Dialect, name: str) -> dml.Insert:
        collected = {source: kind for source, kind in _TYPES.items() if source not in known}
        rows = select(*rows_from_json(dialect, name, collected).c).cte(f"{name}_rows")
        of_attempts = _insert(attempts, _ATTEMPTS, _ATTEMPT, known, rows)
        of_deliveries = _insert(deliveries, _DELIVERIES, _DELIVERY, known, rows)
        return of_deliveries.add_cte(of_attempts.cte(f"{name}_attempts"))

    return build


def _insert(
    table: Table, columns: Mapping[str, str], constants: Mapping[str, Any], known: Mapping[str, Any], rows: CTE
) -> dml.Insert:
    read = {column: rows.c[source] for column, source in columns.items() if source not in known}
    same = {column: known[source] for column, source in columns.items() if source in known} | dict(constants)
    literals = {column: literal(value, table.c[column].type) for column, value in same.items() if value is not None}
    return insert(table).from_select([*read, *literals], select(*read.values(), *literals.values()))


_BOTH = InsertFromSelect("first_results", _inserting_both({}))
_SUCCESSES = InsertFromSelect("first_successes", _inserting_both(_SUCCEEDED))


def insert_first(tx: Tx, rows: Sequence[dict[str, Any]], *, succeeded: bool) -> None:
    """Collect the rows of deliveries and of their first attempts: those that succeeded without the columns that are the
    same for all of them."""
    if tx.dialect.name == "postgresql":
        if rows:
            tx.insert_all_from_select(_SUCCESSES if succeeded else _BOTH, rows)
        return
    for row in rows:
        full = row | _SUCCEEDED if succeeded else row
        tx.insert(deliveries, **{name: full[source] for name, source in _DELIVERIES.items()}, **_DELIVERY)
        tx.insert(attempts, **{name: full[source] for name, source in _ATTEMPTS.items()}, **_ATTEMPT)
