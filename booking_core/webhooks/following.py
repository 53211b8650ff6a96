"""The SQL of endpoints that follow the log of events: cursors, subscriptions and ranges of missed events.

An event is, for an endpoint that subscribes to its type, one of these, and never two:

- after the cursor, and to be sent: it has no row yet;
- a row of `deliveries`;
- in a range of events that the endpoint missed while it was disabled.

Disabling, resuming and deleting an endpoint write a few rows, however many events wait. The transactions lock the
endpoint, then its cursor, then the counters of the organization, under which events are published too: an event comes
wholly before the change or wholly after it.
"""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import BigInteger, and_, bindparam, case, delete, insert, null, or_, select, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import dml

from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, in_rows, rows_parameter
from booking_core.db.tables import (
    Id,
    counters,
    webhook_cursors,
    webhook_ranges,
    webhook_recoveries,
    webhook_subscriptions,
)
from booking_core.db.unit_of_work import InsertFromSelect, Update
from booking_core.records import events
from booking_core.webhooks import store

_ENDPOINT: dict[str, Any] = {"organization_id": Id, "endpoint_id": Id}
_ENDPOINT_AT = _ENDPOINT | {"at": BigInteger}

_last = bindparam("last", type_=BigInteger)

# Locks -----------------------------------------------------------------------------------------------------------


def _lock(dialect: Dialect) -> Any:
    wanted = rows_parameter(dialect, "wanted", _ENDPOINT).c
    cursor = webhook_cursors.c
    return (
        select(cursor.served_sequence)
        .where(cursor.organization_id == wanted.organization_id, cursor.endpoint_id == wanted.endpoint_id)
        .order_by(cursor.organization_id, cursor.endpoint_id)
        .with_for_update(of=webhook_cursors, key_share=True)
    )


_LOCK = Statement(_lock)


def lock_cursors(tx: Tx, endpoints: Iterable[tuple[str, str]]) -> None:
    """Lock the cursors of endpoints that are locked already: a claim takes no more events for them."""
    if tx.dialect.name != "sqlite":
        with tx.no_autoflush():
            tx.all(_LOCK, wanted=as_json({"organization_id": o, "endpoint_id": e} for o, e in sorted(endpoints)))


def lock(tx: Tx, organization_id: str, endpoint_id: str) -> int:
    """Lock the cursor of an endpoint and the sequences, and return the last sequence of the organization's log."""
    lock_cursors(tx, [(organization_id, endpoint_id)])
    return events.lock_sequences(tx, {organization_id: (0, 0)})[organization_id][1]


# Beginning and following ---------------------------------------------------------------------------------------------

_FOLLOWED = Update("has_webhooks", counters, sets=("has_webhooks",), keys=("organization_id",))
MOVE = Update("move_cursor", webhook_cursors, sets=("served_sequence",), keys=("organization_id", "endpoint_id"))


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
    tx.update(_FOLLOWED, organization_id=organization_id, has_webhooks=True)


def subscribe(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """Subscribe the endpoint to the types, for the events after that sequence."""
    for kind in sorted(types):
        tx.insert(
            webhook_subscriptions,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            event_type=kind,
            from_sequence=last,
            until_sequence=None,
        )


def _of_types(dialect: Dialect, table: Any) -> Any:
    """Return the condition for the rows of the given types that have no end yet."""
    return and_(
        *store.own(table),
        table.c.until_sequence.is_(None),
        in_rows(dialect, table.c.event_type, "types", "event_type"),
    )


def _ended(table: Any) -> tuple[Statement, Statement]:
    """Return the statements that delete the rows that began at the last sequence, and end the others there."""
    return (
        Statement(lambda d: delete(table).where(_of_types(d, table), table.c.from_sequence >= _last)),
        Statement(lambda d: update(table).where(_of_types(d, table)).values(until_sequence=_last)),
    )


_END_SUBSCRIPTIONS, _END_RANGES = _ended(webhook_subscriptions), _ended(webhook_ranges)


def unsubscribe(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """End the subscriptions of an enabled endpoint: events up to that sequence are still sent."""
    _end(tx, _END_SUBSCRIPTIONS, organization_id, endpoint_id, types, last)


def _end(
    tx: Tx,
    statements: tuple[Statement, ...],
    organization_id: str,
    endpoint_id: str,
    types: Collection[str],
    last: int,
) -> None:
    of_types = as_json({"event_type": kind} for kind in types)
    for statement in statements:
        tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id, types=of_types, last=last)


def miss(tx: Tx, organization_id: str, endpoint_id: str, types: Iterable[str], last: int, at: int) -> None:
    """Begin a range of missed events for types that a disabled endpoint subscribes to now."""
    for kind in sorted(types):
        tx.insert(
            webhook_ranges,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            event_type=kind,
            from_sequence=last,
            until_sequence=None,
            missed_at=at,
            recovering_at=None,
        )


def no_longer_miss(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """End the ranges of types that a disabled endpoint no longer subscribes to, or misses no longer."""
    _end(tx, _END_RANGES, organization_id, endpoint_id, types, last)


def resume(tx: Tx, organization_id: str, endpoint_id: str, types: Collection[str], last: int) -> None:
    """End the ranges of a disabled endpoint, and let it follow the log after that sequence."""
    no_longer_miss(tx, organization_id, endpoint_id, types, last)
    tx.update(MOVE, organization_id=organization_id, endpoint_id=endpoint_id, served_sequence=last)
    tx.update(_FOLLOWED, organization_id=organization_id, has_webhooks=True)


# Giving up -------------------------------------------------------------------------------------------------------


def _missed(dialect: Dialect, name: str) -> dml.Insert:
    """Return the statement that inserts the ranges of all events after the cursors of the endpoints."""
    of = rows_parameter(dialect, name, _ENDPOINT_AT).c
    s, c = webhook_subscriptions.c, webhook_cursors.c
    values = {
        "organization_id": s.organization_id,
        "endpoint_id": s.endpoint_id,
        "event_type": s.event_type,
        "from_sequence": case((s.from_sequence > c.served_sequence, s.from_sequence), else_=c.served_sequence),
        "until_sequence": s.until_sequence,
        "missed_at": of.at,
    }
    selected = select(*values.values()).where(
        c.organization_id == of.organization_id,
        c.endpoint_id == of.endpoint_id,
        s.organization_id == of.organization_id,
        s.endpoint_id == of.endpoint_id,
        or_(s.until_sequence.is_(None), s.until_sequence > c.served_sequence),
    )
    return insert(webhook_ranges).from_select(list(values), selected)


def _no_recovery(dialect: Dialect, name: str) -> dml.Update:
    """Return the statement that stops the recovery of the ranges of the endpoints."""
    of, r = rows_parameter(dialect, name, _ENDPOINT_AT).c, webhook_ranges.c
    return (
        update(webhook_ranges)
        .where(r.organization_id == of.organization_id, r.endpoint_id == of.endpoint_id, r.recovering_at.is_not(None))
        .values(recovering_at=null(), missed_at=of.at)
    )


def _all_served(dialect: Dialect, name: str) -> dml.Update:
    """Return the statement that moves the cursors to the end of the log."""
    of, c = rows_parameter(dialect, name, _ENDPOINT_AT).c, webhook_cursors.c
    last = select(counters.c.last_event_sequence).where(counters.c.organization_id == c.organization_id)
    return (
        update(webhook_cursors)
        .where(c.organization_id == of.organization_id, c.endpoint_id == of.endpoint_id)
        .values(served_sequence=last.scalar_subquery())
    )


_GIVE_UP = (
    InsertFromSelect("missed", _missed),
    InsertFromSelect("no_recovery", _no_recovery),
    InsertFromSelect("all_served", _all_served),
)


def give_up(tx: Tx, organization_id: str, endpoint_id: str, at: int) -> None:
    """Turn all events after the cursor of an endpoint into ranges of missed events, open to later events.

    Its cursor and the sequences are locked. Queued deliveries are not touched: the endpoint's new generation fails
    them.
    """
    for target in _GIVE_UP:
        tx.insert_from_select(target, organization_id=organization_id, endpoint_id=endpoint_id, at=at)


_FORGET = tuple(
    Statement(delete(table).where(*store.own(table)))
    for table in (webhook_cursors, webhook_subscriptions, webhook_ranges, webhook_recoveries)
)


def forget(tx: Tx, organization_id: str, endpoint_id: str) -> None:
    """Delete the place of an endpoint in the log, and all that it missed."""
    for statement in _FORGET:
        tx.run(statement, organization_id=organization_id, endpoint_id=endpoint_id)
