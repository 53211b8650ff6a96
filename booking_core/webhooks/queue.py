"""The SQL of leased deliveries: it locks them, finds and defers those whose lease has expired, and settles them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import BigInteger, Integer, bindparam, case, select, true, update
from sqlalchemy.engine import Dialect

from booking_core import organizations
from booking_core.base.clock import MINUTE
from booking_core.base.context import Organization
from booking_core.db.engine import Row, Tx
from booking_core.db.statements import Statement, as_json, now_us, rows_parameter
from booking_core.db.tables import Id, attempts, deliveries, webhook_endpoints
from booking_core.db.tables import organizations as organization_table
from booking_core.db.unit_of_work import Update
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery

Key = tuple[str, str, str]
"""(organization id, endpoint id, delivery id)."""
_KEY: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "id": Id}

# Locking ---------------------------------------------------------------------------------------------------------

_LEASED = tuple(deliveries.c[name] for name in LeasedDelivery._fields)
_ENDPOINT_AT = len(_LEASED)
_ORGANIZATION_AT = _ENDPOINT_AT + len(EndpointRow._fields)
_AT = _ORGANIZATION_AT + len(fields(Organization))


def _lock(dialect: Dialect, *, skip_locked: bool) -> Any:
    """Return the statement that locks the deliveries, each with its endpoint, and reads their organizations.

    On PostgreSQL LATERAL leaves the planner no choice. Row by row in the given order, each endpoint is locked before
    its delivery: concurrent transactions wait for each other and never deadlock. Each row is found by its own key; for
    a join the planner would scan the whole log of an organization that has sent little.
    """
    keys = rows_parameter(dialect, "keys", _KEY)
    endpoint = select(*store.ENDPOINT_COLUMNS).where(
        webhook_endpoints.c.organization_id == keys.c.organization_id, webhook_endpoints.c.id == keys.c.endpoint_id
    )
    delivery = select(*_LEASED).where(
        deliveries.c.organization_id == keys.c.organization_id, deliveries.c.id == keys.c.id
    )
    owner = select(*organizations.COLUMNS).where(organization_table.c.id == keys.c.organization_id)
    if dialect.name == "sqlite":
        return (
            select(*_LEASED, *store.ENDPOINT_COLUMNS, *organizations.COLUMNS, now_us(dialect))
            .select_from(keys)
            .join(webhook_endpoints, endpoint.whereclause)
            .join(deliveries, delivery.whereclause)
            .join(organization_table, owner.whereclause)
        )
    e = endpoint.with_for_update(key_share=True, skip_locked=skip_locked).lateral("e")
    d = (
        delivery.where(deliveries.c.endpoint_id == e.c.id)
        .with_for_update(key_share=True, skip_locked=skip_locked)
        .lateral("d")
    )
    o = owner.limit(1).lateral("o")
    return select(*d.c, *e.c, *o.c, now_us(dialect)).select_from(keys).join(e, true()).join(d, true()).join(o, true())


LOCK = Statement(lambda dialect: _lock(dialect, skip_locked=False))
LOCK_UNLOCKED = Statement(lambda dialect: _lock(dialect, skip_locked=True))


@dataclass(slots=True)
class LockedDeliveries:
    """Locked deliveries with their endpoints and organizations, by (organization id, id)."""

    at: int = 0
    deliveries: dict[tuple[str, str], LeasedDelivery] = field(default_factory=dict)
    endpoints: dict[tuple[str, str], EndpointRow] = field(default_factory=dict)
    organizations: dict[str, Organization] = field(default_factory=dict)

    def _add(self, row: Row) -> None:
        delivery = LeasedDelivery._make(row[:_ENDPOINT_AT])
        owner, endpoint = delivery.organization_id, store.endpoint_from_row(row[_ENDPOINT_AT:_ORGANIZATION_AT])
        self.at = row[_AT]
        self.deliveries[owner, delivery.id] = delivery
        self.endpoints[owner, endpoint.id] = endpoint
        if owner not in self.organizations:
            self.organizations[owner] = organizations.from_row(row[_ORGANIZATION_AT:_AT])


def lock(tx: Tx, keys: Iterable[Key], *, skip_locked: bool = False) -> LockedDeliveries:
    """Lock the deliveries that still exist; with `skip_locked`, only those without another lock."""
    locked = LockedDeliveries()
    parameter = as_json(dict(zip(_KEY, key, strict=True)) for key in sorted(set(keys)))
    for row in tx.all(LOCK_UNLOCKED if skip_locked else LOCK, keys=parameter):
        locked._add(row)
    return locked


# Expired leases --------------------------------------------------------------------------------------------------

RESCUE_BATCH = 500
PARKED = 10 * MINUTE
"""After this time it is tried again to rescue a delivery that could not be rescued."""

EXPIRED = Statement(
    lambda dialect: (
        select(deliveries.c.organization_id, deliveries.c.endpoint_id, deliveries.c.id)
        .where(deliveries.c.lease_until <= select(now_us(dialect)).scalar_subquery())
        .order_by(deliveries.c.lease_until)
        .limit(bindparam("limit", type_=Integer))
    )
)


def expired_leases(tx: Tx) -> list[Key]:
    """Return the deliveries whose lease has expired: at most 500, the oldest first."""
    return [(owner, endpoint_id, row_id) for owner, endpoint_id, row_id in tx.all(EXPIRED, limit=RESCUE_BATCH)]


def _park(dialect: Dialect) -> Any:
    lost, least, now = deliveries.c.lost_leases, bindparam("lost_leases", type_=Integer), now_us(dialect)
    return (
        update(deliveries)
        .where(
            *(deliveries.c[key] == bindparam(key, type_=kind) for key, kind in _KEY.items()),
            deliveries.c.lease_until <= now,
        )
        .values(
            lease_until=now + bindparam("wait", type_=BigInteger), lost_leases=case((lost > least, lost), else_=least)
        )
    )


PARK = Statement(_park)


def park(tx: Tx, key: Key) -> None:
    """Defer a delivery that cannot be rescued: it hides no other.

    Its number of expired leases shows it to the doctor: no rescued delivery keeps so many.
    """
    tx.run(PARK, **dict(zip(_KEY, key, strict=True)), wait=PARKED, lost_leases=rules.EXPIRED_LEASES_MAX)


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
