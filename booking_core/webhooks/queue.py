"""The SQL that settles deliveries: it locks them, and names what is written for them."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import Any, NamedTuple

from sqlalchemy import Boolean, Integer, and_, bindparam, literal_column, select, true, union_all
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.context import Organization
from booking_core.db.engine import Query, Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints, webhook_leases
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.webhooks import leases, rules, store
from booking_core.webhooks.leases import FirstAttempt
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery


def clock_parameter(now: int | None) -> dict[str, int]:
    """Return the parameter `now`, or none, so that the database reads its own clock."""
    return {} if now is None else {"now": now}


_LEASED = tuple(deliveries.c[name] for name in LeasedDelivery._fields)
_LEASE_AT = len(_LEASED)
_ENDPOINT_AT = _LEASE_AT + len(leases.COLUMNS)
_ORGANIZATION_AT = _ENDPOINT_AT + len(EndpointRow._fields)
_AT = _ORGANIZATION_AT + len(fields(Organization))
_WANTED: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "id": Id}


def _lock(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Return the statement that locks the wanted deliveries and leases, each with its endpoint and organization.

    On PostgreSQL LATERAL leaves the planner no choice. Row by row in the wanted order, each endpoint is locked before
    its delivery or lease, so that concurrent transactions wait for each other and never deadlock. Each row is found by
    its own key; for a join the planner would scan the whole log of an organization that has sent little.
    """
    wanted = rows_parameter(dialect, "wanted", _WANTED | {"is_lease": Boolean})
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
    of_lease = tuple(webhook_leases.c[key] == wanted.c[key] for key in _WANTED)
    if dialect.name == "sqlite":
        return (
            select(*_LEASED, *leases.COLUMNS, *store.ENDPOINT_COLUMNS, *organizations.COLUMNS, now_us(dialect))
            .join_from(wanted, webhook_endpoints, and_(*of_endpoint))
            .outerjoin(deliveries, and_(*of_delivery))
            .outerjoin(webhook_leases, and_(*of_lease))
            .join(organization_table, organization_table.c.id == wanted.c.organization_id)
        )
    endpoint = select(*store.ENDPOINT_COLUMNS).where(*of_endpoint)
    e = endpoint.with_for_update(key_share=True, skip_locked=skip_locked).lateral("e")
    delivery = select(*_LEASED).where(*of_delivery, deliveries.c.endpoint_id == e.c.id)
    d = delivery.with_for_update(key_share=True, skip_locked=skip_locked).lateral("d")
    lease = select(*leases.COLUMNS).where(*of_lease, webhook_leases.c.endpoint_id == e.c.id)
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


def _expired(dialect: Dialect, table: Any) -> Any:
    """Select the keys of the rows of a table whose leases have expired."""
    t = table.c
    return (
        select(t.organization_id, t.endpoint_id, t.id, t.lease_until)
        .where(t.lease_until <= select(now_us(dialect)).scalar_subquery())
        .order_by(t.lease_until)
        .limit(bindparam("limit", type_=Integer))
        .subquery(f"expired_{table.name}")
    )


def _all_expired(dialect: Dialect) -> Any:
    rows, first_attempts = _expired(dialect, deliveries), _expired(dialect, webhook_leases)
    both = union_all(select(*rows.c), select(*first_attempts.c)).subquery("expired")
    c = both.c
    return (
        select(c.organization_id, c.endpoint_id, c.id).order_by(c.lease_until).limit(bindparam("limit", type_=Integer))
    )


EXPIRED = Statement(_all_expired)


def _lock_expired(table: Any) -> Statement:
    return Statement(
        lambda dialect: (
            select(now_us(dialect), table.c.lost_leases)
            .where(
                table.c.organization_id == bindparam("organization_id", type_=Id),
                table.c.endpoint_id == bindparam("endpoint_id", type_=Id),
                table.c.id == bindparam("id", type_=Id),
                table.c.lease_until <= select(now_us(dialect)).scalar_subquery(),
            )
            .with_for_update(key_share=True, skip_locked=True)
        )
    )


_EXPIRED_ONE = {table.name: _lock_expired(table) for table in (deliveries, webhook_leases)}


class LockedDeliveries(NamedTuple):
    """Locked deliveries with their endpoints and organizations, by (organization id, id)."""

    deliveries: dict[tuple[str, str], LeasedDelivery]
    """Those that have a row."""
    endpoints: dict[tuple[str, str], EndpointRow]
    organizations: dict[str, Organization]
    at: int
    first_attempts: dict[str, FirstAttempt]
    """Of the deliveries that have no row yet, by the ids of the attempts."""

    def with_rows(self, others: "LockedDeliveries") -> "LockedDeliveries":
        """Return these and others that were locked behind them."""
        return LockedDeliveries(
            self.deliveries | others.deliveries,
            self.endpoints | others.endpoints,
            self.organizations | others.organizations,
            self.at or others.at,
            self.first_attempts,
        )


def _from_rows(found: list[tuple[Any, ...]]) -> LockedDeliveries:
    locked = LockedDeliveries({}, {}, {}, found[0][_AT] if found else 0, {})
    for row in found:
        endpoint = store.endpoint_from_row(row[_ENDPOINT_AT:_ORGANIZATION_AT])
        if row[0] is not None:
            delivery = LeasedDelivery._make(row[:_LEASE_AT])
            owner = delivery.organization_id
            locked.deliveries[owner, delivery.id] = rules.as_given_up(delivery, endpoint)
        elif row[_LEASE_AT] is not None:
            lease = leases.from_row(row[_LEASE_AT:_ENDPOINT_AT])
            owner = lease.organization_id
            like = rules.as_given_up(lease.delivery(lease.attempts[0]), endpoint)
            for attempt in lease.attempts:
                locked.first_attempts[attempt.attempt_id] = FirstAttempt(lease, attempt, like)
        else:
            continue
        locked.endpoints[owner, endpoint.id] = endpoint
        if owner not in locked.organizations:
            locked.organizations[owner] = organizations.from_row(row[_ORGANIZATION_AT:_AT])
    return locked


Key = tuple[str, str, str]
"""(organization id, endpoint id, id of a delivery or of a lease of first attempts)."""


def locking(
    keys: Iterable[Key], *, now: int | None, skip_locked: bool = False, leases: AbstractSet[Key] = frozenset()
) -> Query[LockedDeliveries]:
    """Return the query that locks the deliveries and leases that still exist; with `skip_locked`, only those without
    another lock.

    Args:
        leases: the keys that are known to be leases of first attempts.
    """
    wanted = as_json(
        {"organization_id": key[0], "endpoint_id": key[1], "id": key[2], "is_lease": key in leases}
        for key in sorted({*keys, *leases})
    )
    return Query(_LOCK_UNLOCKED if skip_locked else _LOCK, {"wanted": wanted, **clock_parameter(now)}, _from_rows)


def expired(tx: Tx, *, limit: int, now: int | None) -> list[Key]:
    """Return the deliveries, and the leases of first attempts, that have expired, the longest expired first."""
    return [
        (owner, endpoint_id, delivery_id)
        for owner, endpoint_id, delivery_id in tx.all(EXPIRED, limit=limit, **clock_parameter(now))
    ]


PARK = Update("park", deliveries, sets=("lease_until", "lost_leases"))


def park(tx: Tx, key: Key, *, wait: int, lost_leases: int, now: int | None) -> None:
    """Put off what has expired, without its endpoint and organization: a delivery, or a lease of first attempts.

    Args:
        lost_leases: it counts as lost so often, at least.
    """
    named = dict(zip(_WANTED, key, strict=True))
    for table, target in ((deliveries, PARK), (webhook_leases, leases.PARK)):
        found = tx.first(_EXPIRED_ONE[table.name], **named, **clock_parameter(now))
        if found is not None:
            at, lost = found
            own = {name: named[name] for name in target.keys}
            tx.update(target, **own, lease_until=at + wait, lost_leases=max(lost, lost_leases))


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
DISABLE = Update(
    "disable",
    webhook_endpoints,
    sets=(
        *HEALTH.sets,
        "status",
        "disabled_at",
        "disabled_reason",
        "generation",
        "given_up_at",
        "updated_at",
    ),
)
