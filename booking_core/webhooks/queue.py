"""The SQL that settles deliveries: it locks them, and names what is written for them."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from sqlalchemy import Integer, and_, bindparam, literal_column, select, true
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery


def clock_parameter(now: int | None) -> dict[str, int]:
    """Return the parameter `now`, or none, so that the database reads its own clock."""
    return {} if now is None else {"now": now}


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
        endpoint = endpoints.get((owner, delivery.endpoint_id))
        if endpoint is None:
            endpoint = store.endpoint_from_row(row[_ENDPOINT_AT:_ORGANIZATION_AT])
            endpoints[owner, delivery.endpoint_id] = endpoint
        leased[owner, delivery.id] = rules.as_given_up(delivery, endpoint)
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
    return _from_rows(tx.all(_LOCK_UNLOCKED if skip_locked else _LOCK, wanted=wanted, **clock_parameter(now)))


def expired(tx: Tx, *, limit: int, now: int | None) -> list[Key]:
    """Return the deliveries whose leases have expired, the longest expired first."""
    return [
        (owner, endpoint_id, delivery_id)
        for owner, endpoint_id, delivery_id in tx.all(EXPIRED, limit=limit, **clock_parameter(now))
    ]


class ExpiredLease(NamedTuple):
    """The lease of a delivery that could not be rescued."""

    at: int
    lost_leases: int


def lock_lease(tx: Tx, key: Key, *, now: int | None) -> ExpiredLease | None:
    """Lock one delivery whose lease has expired, without its endpoint and organization."""
    organization_id, _, delivery_id = key
    row = tx.first(_LEASE, organization_id=organization_id, id=delivery_id, **clock_parameter(now))
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
