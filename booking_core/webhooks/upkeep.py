"""Upkeep of the log of deliveries: the worker's small steps between claims, and the deletion of old rows.

Each step is a short transaction over a few rows. Endpoints are served in turn: a large one keeps no other waiting.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Integer, and_, bindparam, exists, not_, or_, select, text, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db import sql_files
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import (
    Id,
    attempts,
    counters,
    deliveries,
    webhook_cursors,
    webhook_endpoints,
    webhook_leases,
    webhook_ranges,
    webhook_subscriptions,
)
from booking_core.db.unit_of_work import Update
from booking_core.models.webhooks import DeliveryStatus, FailureReason
from booking_core.webhooks import recovering
from booking_core.webhooks.following import MOVE

ENDPOINTS = 20
"""Endpoints in one turn of recoveries."""
EACH, ALL = 200, 1_000
"""Deliveries of earlier generations in one turn: of one endpoint, and of all."""
FLAGS = 500
"""Cursors, or organizations, in one turn."""


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
        found = database.read(lambda tx: recovering.recovering(tx, self._place, ENDPOINTS))
        self._place = found[-1] if len(found) == ENDPOINTS else recovering.FIRST
        return [
            Step(partial(skip, limit=FLAGS), has_more=False),
            Step(partial(clear_flags, limit=FLAGS), has_more=False),
            Step(partial(fail_given_up, each=EACH, limit=ALL)),
            *(Step(partial(recovering.go_on, place=place)) for place in found),
        ]


# Skipping, and clearing the flags --------------------------------------------------------------------------------

_SQL = sql_files.load(__name__)
IDLE, GIVEN_UP, OLD = (_SQL.statement(name) for name in ("idle", "given_up", "old"))


def _skip(dialect: Dialect) -> Any:
    idle = rows_parameter(dialect, "idle", {"organization_id": Id, "endpoint_id": Id, "served": BigInteger})
    c = webhook_cursors.c
    same = and_(
        c.organization_id == idle.c.organization_id,
        c.endpoint_id == idle.c.endpoint_id,
        c.served_sequence == idle.c.served,
    )
    return (
        select(c.organization_id, c.endpoint_id)
        .join_from(idle, webhook_cursors, same)
        .with_for_update(of=webhook_cursors, key_share=True, skip_locked=True)
    )


_SKIP = Statement(_skip)


def skip(tx: Tx, *, limit: int) -> int:
    """Move the cursors of endpoints that wait for nothing to the end of the log, and return how many."""
    found = {(row[0], row[1]): (row[2], row[3]) for row in tx.all(IDLE, limit=limit)}
    if not found:
        return 0
    idle = as_json({"organization_id": o, "endpoint_id": e, "served": at} for (o, e), (at, _) in found.items())
    locked = tx.all(_SKIP, idle=idle)
    for organization_id, endpoint_id in locked:
        last = found[organization_id, endpoint_id][1]
        tx.update(MOVE, organization_id=organization_id, endpoint_id=endpoint_id, served_sequence=last)
    return len(locked)


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


# Deliveries of earlier generations -------------------------------------------------------------------------------

_FAIL = Update(
    "fail_given_up",
    deliveries,
    sets=("status", "failure_reason", "next_attempt_at", "completed_at", "generation", "updated_at"),
)


def fail_given_up(tx: Tx, *, each: int, limit: int) -> int:
    """Write down that deliveries have failed which were queued before their endpoint was disabled or deleted.

    Args:
        each: the most deliveries of one endpoint.
    """
    found = tx.all(GIVEN_UP, each=each, limit=limit)
    for organization_id, delivery_id, given_up_at, deleted_at in found:
        reason = FailureReason.ENDPOINT_DISABLED if deleted_at is None else FailureReason.ENDPOINT_DELETED
        tx.update(
            _FAIL,
            organization_id=organization_id,
            id=delivery_id,
            status=DeliveryStatus.FAILED.value,
            failure_reason=reason.value,
            next_attempt_at=None,
            generation=0,
            completed_at=given_up_at,
            updated_at=given_up_at,
        )
    return len(found)


# Deleting old rows -----------------------------------------------------------------------------------------------

LOOKED_AT = 10
"""For each delivery that may be deleted so many are looked at: an old one may be queued again, or have ended lately."""


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


_PASSED = Statement(
    text(
        "DELETE FROM webhook_subscriptions WHERE until_sequence IS NOT NULL AND until_sequence <="
        " (SELECT c.served_sequence FROM webhook_cursors c"
        " WHERE c.organization_id = webhook_subscriptions.organization_id"
        " AND c.endpoint_id = webhook_subscriptions.endpoint_id)"
    )
)
_EMPTY = Statement(
    text(
        "DELETE FROM webhook_ranges WHERE until_sequence < coalesce((SELECT min(v.sequence) FROM events v"
        " WHERE v.organization_id = webhook_ranges.organization_id), 0)"
    )
)


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

    An endpoint stays while a delivery or a lease refers to it. Ranges that endpoints have passed in the log, or that
    can no longer be recovered, are deleted too.
    """
    for statement in (_PASSED, _EMPTY):
        tx.run(statement)
    found = tx.all(_DELETED, before=before, limit=limit)
    if found:
        purged = as_json({"organization_id": owner, "id": endpoint_id} for owner, endpoint_id in found)
        for statement in _DELETE_ENDPOINTS:
            tx.run(statement, purged=purged)
    return len(found)
