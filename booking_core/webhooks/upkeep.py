"""Upkeep of the log of deliveries: the worker's small steps between claims, and the deletion of old rows.

Each step is a short transaction over a few rows. Endpoints are served in turn: a large one keeps no other waiting.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Integer, bindparam, exists, not_, select, text, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement, as_json, in_rows
from booking_core.db.tables import (
    attempts,
    counters,
    deliveries,
    webhook_cursors,
    webhook_endpoints,
    webhook_subscriptions,
)
from booking_core.models.webhooks import FailureReason
from booking_core.webhooks import following, recovering

ENDPOINTS = 20
"""Endpoints in one turn of recoveries, or of failing what is queued for them."""
EACH, ALL = 200, 1_000
"""Deliveries of disabled endpoints in one turn: of one endpoint, and of all."""
FLAGS = 500
"""Organizations in one turn."""


class Step(NamedTuple):
    """A transaction of the upkeep."""

    run: Callable[[Tx], int]
    """Returns how many rows it changed."""
    has_more: bool = True
    """After a step that changed something there may be more to do at once."""


class Upkeep:
    """The place in the round of endpoints with recoveries."""

    def __init__(self) -> None:
        self._place = recovering.FIRST

    def steps(self, database: Database) -> list[Step]:
        """Return the steps of one turn, each to be run in its own transaction."""
        places = database.read(lambda tx: recovering.recovering(tx, self._place, ENDPOINTS))
        self._place = places[-1] if len(places) == ENDPOINTS else recovering.FIRST
        return [
            Step(partial(clear_flags, limit=FLAGS), has_more=False),
            Step(partial(fail_given_up, each=EACH, limit=ALL)),
            *(Step(partial(recovering.go_on, place=place)) for place in places),
        ]


# Clearing the flags ----------------------------------------------------------------------------------------------

_SQL = sql_files.load(__name__)
GIVEN_UP, PASSED = _SQL.statement("given_up"), _SQL.statement("passed")
_BEHIND = """
       SELECT 1 FROM webhook_endpoints e
         JOIN webhook_cursors c ON c.organization_id = e.organization_id AND c.endpoint_id = e.id
        WHERE e.organization_id = counters.organization_id AND e.status = 'enabled' AND e.deleted_at IS NULL
          AND c.served_sequence < counters.last_event_sequence"""
_ENABLED = """
       SELECT 1 FROM webhook_endpoints e
        WHERE e.organization_id = counters.organization_id AND e.status = 'enabled' AND e.deleted_at IS NULL"""


def _delivered(dialect: Dialect) -> Any:
    locking = "" if dialect.name == "sqlite" else "FOR NO KEY UPDATE SKIP LOCKED"
    return text(
        f"SELECT organization_id FROM counters WHERE has_undelivered AND NOT EXISTS ({_BEHIND})"  # noqa: S608
        f" LIMIT :limit {locking}"
    )


def _clear(dialect: Dialect) -> dml.Update:
    return (
        update(counters)
        .where(
            in_rows(dialect, counters.c.organization_id, "delivered", "organization_id"),
            text(f"NOT EXISTS ({_BEHIND})"),
        )
        .values(has_undelivered=False, has_webhooks=text(f"EXISTS ({_ENABLED})"))
    )


DELIVERED, _CLEAR = Statement(_delivered), Statement(_clear)


def clear_flags(tx: Tx, *, limit: int) -> int:
    """Clear the flags of organizations whose endpoints are all served, and return how many.

    A booking never waits for it, nor is a flag lost: the second statement sees all that was committed before the lock,
    and a transaction that publishes reads the flags when it gets the lock.
    """
    delivered = tx.all(DELIVERED, limit=limit)
    if not delivered:
        return 0
    return tx.run(_CLEAR, delivered=as_json({"organization_id": row[0]} for row in delivered))


# Queued deliveries of disabled endpoints ---------------------------------------------------------------------------


def fail_given_up(tx: Tx, *, each: int, limit: int) -> int:
    """Fail what is still queued for endpoints that were disabled or deleted, and return how many.

    Args:
        each: the most deliveries of one endpoint.
    """
    failed = 0
    for organization_id, endpoint_id, disabled_at, deleted_at in tx.all(GIVEN_UP, limit=ENDPOINTS):
        reason = FailureReason.ENDPOINT_DISABLED if deleted_at is None else FailureReason.ENDPOINT_DELETED
        most = min(each, limit - failed)
        failed += following.fail_queued(tx, organization_id, endpoint_id, reason, disabled_at, limit=most)
    return failed


# Deleting old rows -----------------------------------------------------------------------------------------------

OLD = Statement(
    select(deliveries.c.organization_id, deliveries.c.id)
    .where(deliveries.c.completed_at < bindparam("before", type_=BigInteger), deliveries.c.lease_until.is_(None))
    .order_by(deliveries.c.completed_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)


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

_OF_ENDPOINT = (webhook_subscriptions, webhook_cursors)
_DELETE_ENDPOINTS = (*(_delete(table.c.endpoint_id) for table in _OF_ENDPOINT), _delete(webhook_endpoints.c.id))
"""The secrets of an endpoint are deleted when the client deletes the endpoint."""


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Delete deliveries that ended before that instant, with their attempts, at most `limit`; return how many.

    A delivery that is queued, or whose attempt is in flight, is never deleted, however old.
    """
    rows = tx.all(OLD, before=before, limit=limit)
    if rows:
        purged = as_json({"organization_id": owner, "id": delivery_id} for owner, delivery_id in rows)
        tx.run(_DELETE_ATTEMPTS, purged=purged)
        tx.run(_DELETE_DELIVERIES, purged=purged)
    return len(rows)


def purge_endpoints(tx: Tx, *, before: int, limit: int) -> int:
    """Delete the rows of endpoints that were deleted before that instant, at most `limit`; return how many.

    An endpoint stays while a delivery refers to it. Periods of subscriptions that endpoints have passed in the log, or
    whose events are no longer kept, are deleted too.
    """
    tx.run(PASSED)
    rows = tx.all(_DELETED, before=before, limit=limit)
    if rows:
        purged = as_json({"organization_id": owner, "id": endpoint_id} for owner, endpoint_id in rows)
        for statement in _DELETE_ENDPOINTS:
            tx.run(statement, purged=purged)
    return len(rows)
