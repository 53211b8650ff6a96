"""Upkeep of the log of deliveries: the worker's small steps between claims, and the deletion of old rows.

Each step is a short transaction over a few rows. Endpoints are served in turn: a large one keeps no other waiting.
"""

from collections.abc import Callable
from functools import partial

from sqlalchemy import ColumnElement, Integer, bindparam, exists, literal_column, not_, select

from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement, as_rows, in_rows, is_of, purge_before, rows_before
from booking_core.db.tables import attempts, deliveries, webhook_endpoints
from booking_core.models.webhooks import DeliveryStatus, FailureReason
from booking_core.webhooks import following, recovering

ENDPOINTS = 20
"""Endpoints in one turn of recoveries, or of failing their queued deliveries."""
PER_ENDPOINT, PER_TURN = 200, 1_000
"""Deliveries of disabled endpoints that fail in one turn: of one endpoint, and of all."""


Step = Callable[[Tx], int]
"""A transaction of the upkeep. It returns how many rows it changed: after some there may be more to do at once."""


def steps(database: Database) -> list[Step]:
    """Return the steps of one turn, each to be run in its own transaction."""
    keys = database.read(lambda tx: recovering.recovering(tx, ENDPOINTS))
    return [
        partial(fail_given_up, per_endpoint=PER_ENDPOINT, limit=PER_TURN),
        *(partial(recovering.go_on, key=key) for key in keys),
    ]


# Queued deliveries of disabled endpoints ---------------------------------------------------------------------------

_endpoint = webhook_endpoints.c
_REFERRED_TO = exists().where(is_of(deliveries.c, _endpoint, endpoint_id="id"))
_QUEUED = _REFERRED_TO.where(
    deliveries.c.status == DeliveryStatus.QUEUED.value,
    deliveries.c.max_attempts > 1,  # a single test is sent while the endpoint is disabled
)
GIVEN_UP = Statement(
    select(_endpoint.organization_id, _endpoint.id, _endpoint.disabled_at, _endpoint.deleted_at)
    .where(_endpoint.status != literal_column("'enabled'"), _QUEUED)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(key_share=True, skip_locked=True)
)


def fail_given_up(tx: Tx, *, per_endpoint: int, limit: int) -> int:
    """Fail deliveries that are still queued for endpoints that were disabled or deleted, and return how many.

    Args:
        per_endpoint: the most deliveries of one endpoint.
    """
    failed = 0
    for organization_id, endpoint_id, disabled_at, deleted_at in tx.all(GIVEN_UP, limit=ENDPOINTS):
        reason = FailureReason.ENDPOINT_DISABLED if deleted_at is None else FailureReason.ENDPOINT_DELETED
        most = min(per_endpoint, limit - failed)
        failed += following.fail_queued(tx, organization_id, endpoint_id, reason, disabled_at, limit=most)
    return failed


# Deleting old rows -----------------------------------------------------------------------------------------------

PASSED = sql_files.load(__name__).statement("passed")
OLD = Statement(rows_before(deliveries, deliveries.c.completed_at, deliveries.c.lease_until.is_(None)))


def _delete(of: ColumnElement[str]) -> Statement:
    """Return the statement that deletes the rows whose column holds one of the purged ids."""
    owner = of.table.c.organization_id
    return Statement(of.table.delete().where(in_rows(owner, "purged", "organization_id"), in_rows(of, "purged", "id")))


_DELETE_ATTEMPTS, _DELETE_DELIVERIES = _delete(attempts.c.delivery_id), _delete(deliveries.c.id)
_DELETE_ENDPOINTS = purge_before(webhook_endpoints, webhook_endpoints.c.deleted_at, not_(_REFERRED_TO))
"""Their secrets, cursors and subscriptions were deleted when the client deleted the endpoint."""


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Delete deliveries that ended before that instant, with their attempts, at most `limit`; return how many.

    A delivery that is queued, or whose attempt is in flight, is never deleted, however old.
    """
    rows = tx.all(OLD, before=before, limit=limit)
    if rows:
        purged = as_rows(("organization_id", "id"), rows)
        tx.run(_DELETE_ATTEMPTS, purged=purged)
        tx.run(_DELETE_DELIVERIES, purged=purged)
    return len(rows)


def purge_endpoints(tx: Tx, *, before: int, limit: int) -> int:
    """Delete the rows of endpoints that were deleted before that instant, at most `limit`; return how many.

    An endpoint stays while a delivery refers to it. Periods of subscriptions that endpoints have passed in the log, or
    whose events are no longer kept, are deleted too.
    """
    tx.run(PASSED)
    return tx.run(_DELETE_ENDPOINTS, before=before, limit=limit)
