"""The SQL of the delivery queue: claim, settle and purge.

The statement CLAIM is plain SQL, once for each database. Read it from `waiting`: the endpoints with a queued delivery
are found by an index skip scan, from one endpoint to the next, so its cost grows with the number of endpoints and not
with the number of queued deliveries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    and_,
    bindparam,
    exists,
    literal_column,
    not_,
    select,
    text,
    true,
)
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.clock import END_OF_TIME
from booking_core.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, now_us, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints, webhook_subscriptions
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.webhooks import store
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery

# Claiming --------------------------------------------------------------------------------------------------------

_DUE = """
              AND {d}.next_attempt_at <= (SELECT at FROM clock) AND {d}.lease_until IS NULL
              AND (e.status = 'enabled' OR {d}."trigger" = 'test')
              -- A first attempt waits for the first attempts of earlier events about the same resource (decision W13).
              AND CASE WHEN {d}.attempt_count > 0 OR {d}.resource_id IS NULL THEN true
                       ELSE {d}.event_sequence = (
                            SELECT min(p.event_sequence) FROM deliveries p
                             WHERE p.organization_id = {d}.organization_id AND p.endpoint_id = {d}.endpoint_id
                               AND p.resource_id = {d}.resource_id
                               AND p.completed_at IS NULL AND p.attempt_count = 0) END
            ORDER BY {d}.next_attempt_at LIMIT CAST(:per_endpoint AS integer)"""
"""The due deliveries of one endpoint, the longest due first."""

_OFFERED = """
    SELECT r.organization_id, r.endpoint_id, r.is_idle, r.of_endpoint, r.of_organization, e.url, e.last_timed_out,
           e.last_claimed_at, due.id, due.next_attempt_at,
           row_number() OVER (PARTITION BY r.endpoint_id ORDER BY due.next_attempt_at) AS place
      FROM room r
     CROSS JOIN {endpoint}
     CROSS JOIN {due}
     WHERE r.due_at <= (SELECT at FROM clock) AND r.of_endpoint > 0 AND (r.of_organization > 0 OR r.is_idle)
       AND (NOT e.last_timed_out OR CAST(:slow_free AS integer) > 0)
"""

_PICKED = """
-- How many more attempts each endpoint, and its organization, may have in flight. An endpoint that has none may always
-- have one: endpoints that hang must not use up the limit of their organization for an endpoint that answers.
room AS (
    SELECT w.organization_id, w.endpoint_id, w.due_at, coalesce(b.attempts, 0) = 0 AS is_idle,
           CAST(:per_endpoint AS integer) - coalesce(b.attempts, 0) AS of_endpoint,
           CAST(:per_organization AS integer) - sum(coalesce(b.attempts, 0)) OVER (PARTITION BY w.organization_id)
               AS of_organization
      FROM waiting w LEFT JOIN busy b ON b.endpoint_id = w.endpoint_id
),
offered AS ({offered}),
-- One from each before two from any; the endpoint that was served least recently comes first.
fair AS (
    SELECT o.*, row_number() OVER (PARTITION BY o.organization_id ORDER BY o.place, o.last_claimed_at NULLS FIRST)
               AS place_in_organization
      FROM offered o WHERE o.place <= o.of_endpoint
),
in_lanes AS (
    SELECT f.*, row_number() OVER (PARTITION BY f.last_timed_out ORDER BY f.place, f.last_claimed_at NULLS FIRST)
               AS place_in_lane
      FROM fair f WHERE f.place_in_organization <= f.of_organization OR (f.is_idle AND f.place = 1)
),
picked AS (
    SELECT * FROM in_lanes l
     WHERE NOT l.last_timed_out OR l.place_in_lane <= CAST(:slow_free AS integer)
     ORDER BY l.place, l.last_claimed_at NULLS FIRST, l.endpoint_id LIMIT CAST(:free AS integer)
)"""

_CLAIMED = f"""
       d.organization_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.failure_reason, k.url, k.last_timed_out,
       coalesce((SELECT max(a.number) FROM attempts a
                  WHERE a.organization_id = d.organization_id AND a.delivery_id = d.id), 0) + 1 AS number,
       (SELECT v.body FROM events v WHERE v.organization_id = d.organization_id AND v.id = d.event_id) AS body,
       (SELECT {{joined}}(coalesce(s.expires_at, {END_OF_TIME}) || ':' || s.created_at
                            || ':' || s.id || ':' || s.secret_sealed, ' ')
          FROM webhook_secrets s WHERE s.organization_id = d.organization_id AND s.endpoint_id = d.endpoint_id
           AND (s.expires_at IS NULL OR s.expires_at > (SELECT at FROM clock))) AS secrets,
       (SELECT at FROM clock) AS at"""  # noqa: S608 - built from constants only

# LATERAL with a LIMIT or a lock runs row by row along an index, whatever number of rows the planner estimates; a plain
# join would now and then read a whole table.
_WAITING_POSTGRESQL = """
waiting AS (
    (SELECT organization_id, endpoint_id, next_attempt_at AS due_at FROM deliveries WHERE status = 'queued'
      ORDER BY organization_id, endpoint_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT following.* FROM waiting w CROSS JOIN LATERAL (
        SELECT d.organization_id, d.endpoint_id, d.next_attempt_at FROM deliveries d
         WHERE d.status = 'queued' AND (d.organization_id, d.endpoint_id) > (w.organization_id, w.endpoint_id)
         ORDER BY d.organization_id, d.endpoint_id, d.next_attempt_at LIMIT 1) following
)"""
_OFFERED_POSTGRESQL = _OFFERED.format(
    endpoint="""LATERAL (
           SELECT e.* FROM webhook_endpoints e
            WHERE e.organization_id = r.organization_id AND e.id = r.endpoint_id LIMIT 1) e""",
    due=f"""LATERAL (
           SELECT d.id, d.next_attempt_at FROM deliveries d
            WHERE d.organization_id = r.organization_id AND d.endpoint_id = r.endpoint_id AND d.status = 'queued'
            {_DUE.format(d="d")}) due""",  # noqa: S608
)
_CLAIM_POSTGRESQL = f"""
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT coalesce(CAST(:now AS bigint), CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)) AS at
),
busy AS (SELECT * FROM json_to_recordset(CAST(:in_flight AS json)) AS b (endpoint_id uuid, attempts integer)),
{_WAITING_POSTGRESQL},
{_PICKED.format(offered=_OFFERED_POSTGRESQL)},
-- An endpoint that another transaction changes is not marked as served: that is not worth a wait or a deadlock.
served AS MATERIALIZED (
    SELECT e.organization_id, e.id
      FROM (SELECT DISTINCT organization_id, endpoint_id FROM picked) s
     CROSS JOIN LATERAL (
           SELECT e.organization_id, e.id FROM webhook_endpoints e
            WHERE e.organization_id = s.organization_id AND e.id = s.endpoint_id
              FOR NO KEY UPDATE SKIP LOCKED) e
)
SELECT {_CLAIMED.format(joined="string_agg")},
       EXISTS (SELECT 1 FROM served s WHERE s.organization_id = d.organization_id AND s.id = d.endpoint_id)
           AS is_served
  FROM picked k
 CROSS JOIN LATERAL (
       -- Checked again once it is locked. Within coalesce() the status is only a filter: the planner must not choose
       -- the index of all queued deliveries for it.
       SELECT d.* FROM deliveries d
        WHERE d.organization_id = k.organization_id AND d.id = k.id AND coalesce(d.status, '') = 'queued'
          -- Another worker may have sent it and failed since this statement began: then it waits again.
          AND d.lease_until IS NULL AND coalesce(d.next_attempt_at, 0) = k.next_attempt_at
          FOR UPDATE SKIP LOCKED) d
"""  # noqa: S608

# Two look-ups for each step, since SQLite scans row by row for a comparison of pairs; CROSS JOIN keeps the tables in
# the order in which they are written.
_WAITING_SQLITE = """
waiting AS (
    SELECT * FROM (
        SELECT organization_id, endpoint_id, next_attempt_at AS due_at FROM deliveries WHERE status = 'queued'
         ORDER BY organization_id, endpoint_id, next_attempt_at LIMIT 1)
    UNION ALL
    SELECT d.organization_id, d.endpoint_id, d.next_attempt_at
      FROM waiting w CROSS JOIN deliveries d ON d.rowid = coalesce(
           (SELECT f.rowid FROM deliveries f
             WHERE f.status = 'queued' AND f.organization_id = w.organization_id AND f.endpoint_id > w.endpoint_id
             ORDER BY f.endpoint_id, f.next_attempt_at LIMIT 1),
           (SELECT f.rowid FROM deliveries f WHERE f.status = 'queued' AND f.organization_id > w.organization_id
             ORDER BY f.organization_id, f.endpoint_id, f.next_attempt_at LIMIT 1))
)"""
_OFFERED_SQLITE = _OFFERED.format(
    endpoint="webhook_endpoints e ON e.organization_id = r.organization_id AND e.id = r.endpoint_id",
    due=f"""deliveries due ON due.rowid IN (
           SELECT q.rowid FROM deliveries q
            WHERE q.organization_id = r.organization_id AND q.endpoint_id = r.endpoint_id AND q.status = 'queued'
            {_DUE.format(d="q")})""",  # noqa: S608
)
_CLAIM_SQLITE = f"""
WITH RECURSIVE clock AS (SELECT :now AS at),
busy AS (
    SELECT json_extract(value, '$.endpoint_id') AS endpoint_id, json_extract(value, '$.attempts') AS attempts
      FROM json_each(:in_flight)
),
{_WAITING_SQLITE},
{_PICKED.format(offered=_OFFERED_SQLITE)}
SELECT {_CLAIMED.format(joined="group_concat")}, true AS is_served
  FROM picked k CROSS JOIN deliveries d ON d.organization_id = k.organization_id AND d.id = k.id
"""  # noqa: S608


def _for_each(postgresql: str, sqlite: str) -> Statement:
    return Statement(lambda dialect: text(postgresql if dialect.name == "postgresql" else sqlite))


CLAIM = _for_each(_CLAIM_POSTGRESQL, _CLAIM_SQLITE)


class DueDelivery(NamedTuple):
    """A due delivery, in the order of the columns of CLAIM."""

    organization_id: str
    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    failure_reason: str | None
    url: str
    last_timed_out: bool
    number: int
    body: str | None
    """Null: the event is no longer kept."""
    secrets: str | None
    at: int
    is_served: bool


def _clock(now: int | None) -> dict[str, int]:
    """Return the parameter `now`, or none, so that the database reads its own clock."""
    return {} if now is None else {"now": now}


def pick(
    tx: Tx,
    *,
    free: int,
    in_flight: Mapping[str, int],
    slow_free: int,
    per_endpoint: int,
    per_organization: int,
    now: int | None,
) -> list[DueDelivery]:
    """Return due deliveries, at most `free`; on PostgreSQL it locks them and skips locked ones."""
    busy = as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items())
    found = tx.all(
        CLAIM,
        free=free,
        in_flight=busy,
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        **_clock(now),
    )
    return [DueDelivery._make(row) for row in found]


def live_secrets(secrets: str | None) -> list[tuple[str, str]]:
    """Return (id, sealed secret) of a claimed delivery, the newest first.

    The current secret never expires; of the others, an older secret expires sooner.
    """
    split = [secret.split(":") for secret in (secrets or "").split()]
    split.sort(key=lambda parts: (-int(parts[0]), -int(parts[1])))
    return [(secret_id, sealed) for _, _, secret_id, sealed in split]


LEASE = Update("lease", deliveries, sets=("lease_token", "lease_until", "last_attempt_at"))
SERVED = Update("served", webhook_endpoints, sets=("last_claimed_at",))

# What is due next ------------------------------------------------------------------------------------------------

_NEXT = """
SELECT min(at) FROM (
    SELECT (SELECT d.next_attempt_at FROM deliveries d
             WHERE d.organization_id = w.organization_id AND d.endpoint_id = w.endpoint_id AND d.status = 'queued'
               AND d.lease_until IS NULL
             ORDER BY d.next_attempt_at LIMIT 1) AS at
      FROM waiting w
    UNION ALL
    SELECT min(lease_until) FROM deliveries WHERE lease_until IS NOT NULL
) due
"""
NEXT = _for_each(f"WITH RECURSIVE {_WAITING_POSTGRESQL} {_NEXT}", f"WITH RECURSIVE {_WAITING_SQLITE} {_NEXT}")

# Settling --------------------------------------------------------------------------------------------------------

_LEASED = tuple(deliveries.c[name] for name in LeasedDelivery._fields)
_ENDPOINT_AT = len(_LEASED)
_ORGANIZATION_AT = _ENDPOINT_AT + len(EndpointRow._fields)
_AT = _ORGANIZATION_AT + len(fields(Organization))
_WANTED: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "id": Id}


def _lock(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Return the statement that locks the wanted deliveries, each with its endpoint and organization.

    On PostgreSQL LATERAL leaves the planner no choice. Row by row in the wanted order, each endpoint is locked before
    its delivery, so that concurrent transactions wait for each other and never deadlock. Each row is found by its own
    key; for a join the planner would scan the whole log of an organization that has sent little.
    """
    wanted = rows_parameter(dialect, "wanted", _WANTED)
    of_endpoint = (
        webhook_endpoints.c.organization_id == wanted.c.organization_id,
        webhook_endpoints.c.id == wanted.c.endpoint_id,
    )
    of_delivery = (deliveries.c.organization_id == wanted.c.organization_id, deliveries.c.id == wanted.c.id)
    if dialect.name == "sqlite":
        return (
            select(*_LEASED, *store.ENDPOINT_COLUMNS, *organizations.COLUMNS, now_us(dialect))
            .join_from(wanted, webhook_endpoints, and_(*of_endpoint))
            .join(deliveries, and_(*of_delivery))
            .join(organization_table, organization_table.c.id == wanted.c.organization_id)
        )
    endpoint = select(*store.ENDPOINT_COLUMNS).where(*of_endpoint)
    e = endpoint.with_for_update(key_share=True, skip_locked=skip_locked).lateral("e")
    delivery = select(*_LEASED).where(*of_delivery, deliveries.c.endpoint_id == e.c.id)
    d = delivery.with_for_update(key_share=True, skip_locked=skip_locked).lateral("d")
    owner = select(*organizations.COLUMNS).where(organization_table.c.id == d.c.organization_id)
    o = owner.limit(literal_column("1")).lateral("o")
    return select(*d.c, *e.c, *o.c, now_us(dialect)).select_from(wanted).join(e, true()).join(d, true()).join(o, true())


_LOCK = Statement(lambda dialect: _lock(dialect, skip_locked=False))
_LOCK_UNLOCKED = Statement(lambda dialect: _lock(dialect, skip_locked=True))
EXPIRED = Statement(
    lambda dialect: (
        select(deliveries.c.organization_id, deliveries.c.endpoint_id, deliveries.c.id)
        .where(deliveries.c.lease_until <= select(now_us(dialect)).scalar_subquery())
        .order_by(deliveries.c.lease_until)
        .limit(bindparam("limit", type_=Integer))
    )
)


_LEASE = Statement(
    lambda dialect: (
        select(now_us(dialect), deliveries.c.lost_leases)
        .where(
            deliveries.c.organization_id == bindparam("organization_id", type_=Id),
            deliveries.c.id == bindparam("id", type_=Id),
            deliveries.c.lease_until <= select(now_us(dialect)).scalar_subquery(),
        )
        .with_for_update(key_share=True, skip_locked=True)
    )
)


class LockedDeliveries(NamedTuple):
    """Locked deliveries with their endpoints and organizations, by (organization id, id)."""

    deliveries: dict[tuple[str, str], LeasedDelivery]
    endpoints: dict[tuple[str, str], EndpointRow]
    organizations: dict[str, Organization]
    at: int


def _from_rows(found: list[tuple[Any, ...]]) -> LockedDeliveries:
    leased: dict[tuple[str, str], LeasedDelivery] = {}
    endpoints: dict[tuple[str, str], EndpointRow] = {}
    owners: dict[str, Organization] = {}
    for row in found:
        delivery = LeasedDelivery._make(row[:_ENDPOINT_AT])
        owner = delivery.organization_id
        leased[owner, delivery.id] = delivery
        if (owner, delivery.endpoint_id) not in endpoints:
            endpoints[owner, delivery.endpoint_id] = store.endpoint_from_row(row[_ENDPOINT_AT:_ORGANIZATION_AT])
        if owner not in owners:
            owners[owner] = organizations.from_row(row[_ORGANIZATION_AT:_AT])
    return LockedDeliveries(leased, endpoints, owners, found[0][_AT] if found else 0)


Key = tuple[str, str, str]
"""(organization id, endpoint id, delivery id)."""


def lock(tx: Tx, keys: Iterable[Key], *, now: int | None, skip_locked: bool = False) -> LockedDeliveries:
    """Lock the deliveries that still exist; with `skip_locked`, only deliveries without another lock."""
    wanted = as_json(
        {"organization_id": owner, "endpoint_id": endpoint_id, "id": delivery_id}
        for owner, endpoint_id, delivery_id in sorted(set(keys))
    )
    return _from_rows(tx.all(_LOCK_UNLOCKED if skip_locked else _LOCK, wanted=wanted, **_clock(now)))


def expired(tx: Tx, *, limit: int, now: int | None) -> list[Key]:
    """Return the deliveries whose leases have expired, the longest expired first."""
    return [
        (owner, endpoint_id, delivery_id)
        for owner, endpoint_id, delivery_id in tx.all(EXPIRED, limit=limit, **_clock(now))
    ]


class ExpiredLease(NamedTuple):
    """The lease of a delivery that could not be rescued."""

    at: int
    lost_leases: int


def lock_lease(tx: Tx, key: Key, *, now: int | None) -> ExpiredLease | None:
    """Lock one delivery whose lease has expired, without its endpoint and organization."""
    organization_id, _, delivery_id = key
    row = tx.first(_LEASE, organization_id=organization_id, id=delivery_id, **_clock(now))
    return None if row is None else ExpiredLease._make(row)


PARK = Update("park", deliveries, sets=("lease_until", "lost_leases"))
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
DISABLE = Update("disable", webhook_endpoints, sets=("status", "disabled_at", "disabled_reason", "updated_at"))


def disable(tx: Tx, endpoints: Iterable[tuple[str, EndpointRow]], reason: str, at: int) -> None:
    """Disable the endpoints and fail their queued deliveries, in one flush."""
    for organization_id, row in endpoints:
        columns = {name: getattr(row, name) for name in DISABLE.sets}
        tx.update(DISABLE, organization_id=organization_id, id=row.id, **columns)
        tx.insert_from_select(store.FAIL_QUEUED, **store.fail_queued_row(organization_id, row.id, reason, at))
    tx.flush()


# Purging ---------------------------------------------------------------------------------------------------------

_OLD_POSTGRESQL = """
WITH RECURSIVE logs AS (
    (SELECT organization_id, endpoint_id, created_at FROM deliveries
      ORDER BY organization_id, endpoint_id, created_at LIMIT 1)
    UNION ALL
    SELECT following.* FROM logs l CROSS JOIN LATERAL (
        SELECT d.organization_id, d.endpoint_id, d.created_at FROM deliveries d
         WHERE (d.organization_id, d.endpoint_id) > (l.organization_id, l.endpoint_id)
         ORDER BY d.organization_id, d.endpoint_id, d.created_at LIMIT 1) following
)
SELECT d.organization_id, d.id
  FROM logs l
 CROSS JOIN LATERAL (
       SELECT d.organization_id, d.id FROM deliveries d
        WHERE d.organization_id = l.organization_id AND d.endpoint_id = l.endpoint_id AND d.created_at < :before
          AND d.status <> 'queued' AND d.lease_until IS NULL AND d.completed_at < :before
        ORDER BY d.created_at LIMIT :limit FOR UPDATE SKIP LOCKED) d
 WHERE l.created_at < :before
 LIMIT :limit
"""
_OLD_SQLITE = """
WITH RECURSIVE logs AS (
    SELECT * FROM (
        SELECT organization_id, endpoint_id, created_at FROM deliveries
         ORDER BY organization_id, endpoint_id, created_at LIMIT 1)
    UNION ALL
    SELECT d.organization_id, d.endpoint_id, d.created_at
      FROM logs l CROSS JOIN deliveries d ON d.rowid = coalesce(
           (SELECT f.rowid FROM deliveries f
             WHERE f.organization_id = l.organization_id AND f.endpoint_id > l.endpoint_id
             ORDER BY f.endpoint_id, f.created_at LIMIT 1),
           (SELECT f.rowid FROM deliveries f WHERE f.organization_id > l.organization_id
             ORDER BY f.organization_id, f.endpoint_id, f.created_at LIMIT 1))
)
SELECT d.organization_id, d.id
  FROM logs l CROSS JOIN deliveries d ON d.organization_id = l.organization_id AND d.endpoint_id = l.endpoint_id
 WHERE l.created_at < :before AND d.created_at < :before
   AND d.status <> 'queued' AND d.lease_until IS NULL AND d.completed_at < :before
 LIMIT :limit
"""
OLD = _for_each(_OLD_POSTGRESQL, _OLD_SQLITE)


def _delete(of: ColumnElement[str]) -> Statement:
    """Return the statement that deletes the rows whose column holds one of the purged ids."""
    table = of.table

    def build(dialect: Dialect) -> Any:
        return table.delete().where(
            in_rows(dialect, table.c.organization_id, "purged", "organization_id"), in_rows(dialect, of, "purged", "id")
        )

    return Statement(build)


_DELETE_ATTEMPTS, _DELETE_DELIVERIES = _delete(attempts.c.delivery_id), _delete(deliveries.c.id)
_REFERRED_TO = exists().where(
    deliveries.c.organization_id == webhook_endpoints.c.organization_id,
    deliveries.c.endpoint_id == webhook_endpoints.c.id,
)
_DELETED = Statement(
    select(webhook_endpoints.c.organization_id, webhook_endpoints.c.id)
    .where(webhook_endpoints.c.deleted_at < bindparam("before", type_=BigInteger), not_(_REFERRED_TO))
    .order_by(webhook_endpoints.c.deleted_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)

_DELETE_ENDPOINTS = (_delete(webhook_subscriptions.c.endpoint_id), _delete(webhook_endpoints.c.id))
"""The secrets of an endpoint are deleted when the client deletes the endpoint."""


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Delete deliveries that ended before that instant, with their attempts, at most `limit`; return how many.

    A delivery that is queued, or whose attempt is in flight, is never deleted, however old.
    """
    found = tx.all(OLD, before=before, limit=limit)
    if found:
        purged = as_json({"organization_id": owner, "id": delivery_id} for owner, delivery_id in found)
        tx.run(_DELETE_ATTEMPTS, purged=purged)
        tx.run(_DELETE_DELIVERIES, purged=purged)
    return len(found)


def purge_endpoints(tx: Tx, *, before: int, limit: int) -> int:
    """Delete the rows of endpoints that were deleted before that instant, at most `limit`; return how many.

    An endpoint to which a delivery still refers stays until that delivery is purged.
    """
    found = tx.all(_DELETED, before=before, limit=limit)
    if found:
        purged = as_json({"organization_id": owner, "id": endpoint_id} for owner, endpoint_id in found)
        for statement in _DELETE_ENDPOINTS:
            tx.run(statement, purged=purged)
    return len(found)
