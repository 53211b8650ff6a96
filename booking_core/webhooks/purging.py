"""Deletes old deliveries with their attempts, and deleted endpoints."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, bindparam, exists, not_, or_, select
from sqlalchemy.engine import Dialect

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import (
    attempts,
    deliveries,
    webhook_cursors,
    webhook_endpoints,
    webhook_leases,
    webhook_ranges,
    webhook_subscriptions,
)
from booking_core.webhooks import following

LOOKED_AT = 10
"""For each delivery that may be deleted so many are looked at: an old one may be queued again, or have ended lately."""

OLD = sql_files.load(__name__).statement("old")


def _delete(of: ColumnElement[str]) -> Statement:
    """Return the statement that deletes the rows whose column holds one of the purged ids."""
    table = of.table

    def build(dialect: Dialect) -> Any:
        return table.delete().where(
            in_rows(dialect, table.c.organization_id, "purged", "organization_id"), in_rows(dialect, of, "purged", "id")
        )

    return Statement(build)


_DELETE_ATTEMPTS, _DELETE_DELIVERIES = _delete(attempts.c.delivery_id), _delete(deliveries.c.id)
_REFERRED_TO = or_(
    *(
        exists().where(
            table.c.organization_id == webhook_endpoints.c.organization_id,
            table.c.endpoint_id == webhook_endpoints.c.id,
        )
        for table in (deliveries, webhook_leases)
    )
)
_DELETED = Statement(
    select(webhook_endpoints.c.organization_id, webhook_endpoints.c.id)
    .where(webhook_endpoints.c.deleted_at < bindparam("before", type_=BigInteger), not_(_REFERRED_TO))
    .order_by(webhook_endpoints.c.deleted_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)

_OF_ENDPOINT = (webhook_subscriptions, webhook_cursors, webhook_ranges)
_DELETE_ENDPOINTS = (*(_delete(table.c.endpoint_id) for table in _OF_ENDPOINT), _delete(webhook_endpoints.c.id))
"""The secrets of an endpoint are deleted when the client deletes the endpoint."""


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Delete deliveries that ended before that instant, with their attempts, at most `limit`; return how many.

    A delivery that is queued, or whose attempt is in flight, is never deleted, however old.
    """
    found = tx.all(OLD, before=before, limit=limit, looked_at=LOOKED_AT * limit)
    if found:
        purged = as_json({"organization_id": owner, "id": delivery_id} for owner, delivery_id in found)
        tx.run(_DELETE_ATTEMPTS, purged=purged)
        tx.run(_DELETE_DELIVERIES, purged=purged)
    return len(found)


def purge_endpoints(tx: Tx, *, before: int, limit: int) -> int:
    """Delete the rows of endpoints that were deleted before that instant, at most `limit`; return how many.

    An endpoint to which a delivery or a lease still refers stays until that is gone. What endpoints have passed in the
    log, and what can no longer be recovered, goes too.
    """
    following.purge(tx)
    found = tx.all(_DELETED, before=before, limit=limit)
    if found:
        purged = as_json({"organization_id": owner, "id": endpoint_id} for owner, endpoint_id in found)
        for statement in _DELETE_ENDPOINTS:
            tx.run(statement, purged=purged)
    return len(found)
