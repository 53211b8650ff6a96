"""The SQL of leased deliveries: it locks them, and finds and defers those whose lease has expired."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Integer, Table, bindparam, select, update

from booking_core import organizations
from booking_core.base.clock import MINUTE
from booking_core.base.context import Organization
from booking_core.db.engine import Tx
from booking_core.db.statements import NOW, Statement, as_rows, columns_of, in_rows
from booking_core.db.tables import Id, deliveries, webhook_endpoints
from booking_core.db.tables import organizations as organization_table
from booking_core.webhooks import rules, store
from booking_core.webhooks.rules import EndpointRow, LeasedDelivery

DeliveryKey = tuple[str, str, str]
"""(organization id, endpoint id, delivery id)."""
_KEY: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id, "id": Id}

# Locking ---------------------------------------------------------------------------------------------------------

_LEASED = columns_of(LeasedDelivery._fields, deliveries)
_OF_ENDPOINT = (webhook_endpoints.c.organization_id, *store.ENDPOINT_COLUMNS)


def _locking(table: Table, columns: Sequence[Any], key: str) -> tuple[Statement, Statement]:
    """Return two statements that lock the rows with that key of the parameter `keys`.

    The second skips rows that another transaction has locked.

    Endpoints are locked before their deliveries, and both in the order of their ids: concurrent transactions wait for
    each other and never deadlock.
    """

    owner, row_id = table.c.organization_id, table.c.id
    rows = select(*columns).where(in_rows(owner, "keys", "organization_id"), in_rows(row_id, "keys", key))
    locking = partial(rows.order_by(owner, row_id).with_for_update, of=table, key_share=True)
    return Statement(locking()), Statement(locking(skip_locked=True))


LOCK_ENDPOINTS = _locking(webhook_endpoints, _OF_ENDPOINT, "endpoint_id")
LOCK_DELIVERIES = _locking(deliveries, _LEASED, "id")
ORGANIZATIONS = Statement(
    select(NOW, *organizations.COLUMNS).where(in_rows(organization_table.c.id, "keys", "organization_id"))
)


class LockedDeliveries(NamedTuple):
    """Locked deliveries with their endpoints and organizations, by (organization id, id)."""

    at: int
    deliveries: dict[tuple[str, str], LeasedDelivery]
    endpoints: dict[tuple[str, str], EndpointRow]
    organizations: dict[str, Organization]


def lock(tx: Tx, keys: Iterable[DeliveryKey], *, skip_locked: bool = False) -> LockedDeliveries:
    """Lock the deliveries that still exist, after their endpoints; with `skip_locked`, only those without another
    lock."""
    parameter = as_rows(_KEY, sorted(set(keys)))
    endpoints = {
        (owner, columns[0]): store.endpoint_from_row(columns)
        for owner, *columns in tx.all(LOCK_ENDPOINTS[skip_locked], keys=parameter)
    }
    leased = map(LeasedDelivery._make, tx.all(LOCK_DELIVERIES[skip_locked], keys=parameter))
    owners = tx.all(ORGANIZATIONS, keys=parameter)
    return LockedDeliveries(
        owners[0][0] if owners else 0,
        {(row.organization_id, row.id): row for row in leased if (row.organization_id, row.endpoint_id) in endpoints},
        endpoints,
        {row[1]: organizations.from_row(row[1:]) for row in owners},
    )


# Expired leases --------------------------------------------------------------------------------------------------

RESCUE_BATCH = 500
PARKED = 10 * MINUTE
"""After this time it is tried again to rescue a delivery that could not be rescued."""

EXPIRED = Statement(
    select(deliveries.c.organization_id, deliveries.c.endpoint_id, deliveries.c.id)
    .where(deliveries.c.lease_until <= select(NOW).scalar_subquery())
    .order_by(deliveries.c.lease_until)
    .limit(bindparam("limit", type_=Integer))
)


def expired_leases(tx: Tx) -> list[DeliveryKey]:
    """Return the deliveries whose lease has expired: at most 500, the oldest first."""
    return [(owner, endpoint_id, row_id) for owner, endpoint_id, row_id in tx.all(EXPIRED, limit=RESCUE_BATCH)]


PARK = Statement(
    update(deliveries)
    .where(
        *(deliveries.c[key] == bindparam(key, type_=kind) for key, kind in _KEY.items()),
        deliveries.c.lease_until <= NOW,
    )
    .values(lease_until=NOW + bindparam("wait"), lost_leases=bindparam("lost_leases"))
)


def park(tx: Tx, key: DeliveryKey) -> None:
    """Defer a delivery that cannot be rescued: it hides no other.

    Its number of expired leases shows it to the doctor: no rescued delivery keeps so many.
    """
    tx.run(PARK, **dict(zip(_KEY, key, strict=True)), wait=PARKED, lost_leases=rules.EXPIRED_LEASES_MAX)
