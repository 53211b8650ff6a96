"""The SQL of endpoints that follow the log of events: cursors, periods of subscriptions, and queued deliveries.

An event is, for an endpoint that subscribes to its type, one of these, and never two:

- in an active period, after the cursor: it will be a delivery;
- a row of `deliveries`;
- in a missed period, without a row: it occurred while the endpoint was disabled.

Creating, disabling and enabling an endpoint, and changing its types, write a few rows, however many events wait. The
transactions lock the endpoint, then its cursor, then the counters of the organization, under which events are published
too: an event comes wholly before the change or wholly after it.
"""

from collections.abc import Collection

from sqlalchemy import delete, select

from booking_core.db import sql_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import webhook_cursors, webhook_recoveries, webhook_secrets, webhook_subscriptions
from booking_core.models.webhooks import FailureReason
from booking_core.records import events
from booking_core.webhooks import store

FAILED_AT_ONCE = 1_000
"""Queued deliveries that fail with their endpoint, in its transaction; a worker goes on with the others."""

_SQL = sql_files.load(__name__)
DISABLE = tuple(_SQL.statement(name) for name in ("miss_all", "miss_rest", "end_active", "move_to_end"))
END = _SQL.statement("forget_period"), _SQL.statement("end_period")
FAIL_QUEUED = _SQL.statement("fail_queued")

# Locks -----------------------------------------------------------------------------------------------------------


_LOCK = Statement(
    select(webhook_cursors.c.served_sequence).where(*store.own(webhook_cursors)).with_for_update(key_share=True)
)


def lock_cursor(tx: Tx, organization_id: str, endpoint_id: str) -> None:
    """Lock the cursor of an endpoint that is locked already: no more of its events become deliveries."""
    with tx.no_autoflush():
        tx.all(_LOCK, organization_id=organization_id, endpoint_id=endpoint_id)


def lock(tx: Tx, organization_id: str, endpoint_id: str) -> int:
    """Lock the cursor of an endpoint and the sequences, and return the last sequence of the organization's log."""
    lock_cursor(tx, organization_id, endpoint_id)
    return events.lock_sequences(tx, {organization_id: (0, 0)})[organization_id][1]


# Periods of subscriptions ----------------------------------------------------------------------------------------


def begin(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """Let a new endpoint follow the log after that sequence."""
    tx.insert(
        webhook_cursors,
        organization_id=organization_id,
        endpoint_id=endpoint_id,
        served_sequence=last,
        last_claimed_at=None,
    )
    subscribe(tx, organization_id, endpoint_id, types, last)


def subscribe(
    tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int, missed_at: int | None = None
) -> None:
    """Begin a period of each type with the events after that sequence: of a disabled endpoint, a missed one."""
    for kind in sorted(types):
        tx.insert(
            webhook_subscriptions,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            event_type=kind,
            from_sequence=last,
            until_sequence=None,
            missed_at=missed_at,
        )


def unsubscribe(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """End the open periods of the types: events up to that sequence are still sent, or were missed."""
    for kind in sorted(types):
        for statement in END:
            tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id, event_type=kind, last=last)


def enable(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """End the missed periods of a disabled endpoint, and let it follow the log after that sequence."""
    unsubscribe(tx, organization_id, endpoint_id, types, last)
    subscribe(tx, organization_id, endpoint_id, types, last)
    tx.update(webhook_cursors, organization_id=organization_id, endpoint_id=endpoint_id, served_sequence=last)


def disable(tx: Tx, organization_id: str, endpoint_id: str, at: int) -> None:
    """Let all events after the cursor of an endpoint, and later ones, be missed, and fail its queued deliveries.

    The endpoint, its cursor and the sequences are locked.
    """
    for statement in DISABLE:
        tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id, at=at)
    fail_queued(tx, organization_id, endpoint_id, FailureReason.ENDPOINT_DISABLED, at)


def fail_queued(
    tx: Tx, organization_id: str, endpoint_id: str, reason: str, at: int, *, limit: int = FAILED_AT_ONCE
) -> int:
    """Fail queued deliveries of an endpoint, at most `limit`, and return how many."""
    return tx.run(
        FAIL_QUEUED, organization_id=organization_id, endpoint_id=endpoint_id, reason=reason, at=at, limit=limit
    )


FORGET = tuple(
    Statement(delete(table).where(*store.own(table)))
    for table in (webhook_cursors, webhook_subscriptions, webhook_secrets, webhook_recoveries)
)


def forget(tx: Tx, organization_id: str, endpoint_id: str, at: int) -> None:
    """Delete the place of a deleted endpoint in the log, and its secrets, and fail its queued deliveries."""
    for statement in FORGET:
        tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id)
    fail_queued(tx, organization_id, endpoint_id, FailureReason.ENDPOINT_DELETED, at)
