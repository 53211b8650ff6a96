"""Idempotency keys: each key is executed once, despite retries and kills (decisions I1 to I7).

The stored answer is committed with the work of its request. While a request runs, PostgreSQL holds an advisory lock of
the transaction for its key, which ends with the process; on SQLite the single writer is the lock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Boolean, ColumnElement, Integer, Text, bindparam, func, select

from booking_core.base.context import Actor
from booking_core.base.errors import (
    BookingError,
    Conflict,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InsufficientCapacity,
    Malformed,
    NotFound,
    Unprocessable,
)
from booking_core.base.tokens import sha256_hex
from booking_core.db import tables
from booking_core.db.engine import Query, Row, Tx
from booking_core.db.statements import Statement, as_json, on_postgresql, rows_from_json, rows_parameter
from booking_core.due_work.rows import DueRows

STORED_REFUSALS = (NotFound, InsufficientCapacity, Conflict, Unprocessable)
"""Errors of an executed request, which are replayed. After any other error nothing was done, and the same key may be
used again (decision I3)."""

SEALED_FOR = "idempotency"


@dataclass(frozen=True, slots=True)
class Once:
    """The caller's key, and the fingerprint of its request."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The stored part of a response."""

    status: int
    body: bytes
    replayed: bool = False


Refuse = Callable[[BookingError], Answer]
"""Returns the answer of an error, whose HTTP status only the server knows."""


def fingerprint(method: str, path: str, body: Any) -> str:
    """Return the SHA-256 over method, concrete path and canonical JSON: sorted keys, no white space (decision I1).

    Raises:
        Malformed: the body is nested too deeply to be read.
    """
    try:
        canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise Malformed("The body is nested too deeply.") from None
    return sha256_hex(b"\n".join((method.encode(), path.encode(), canonical)))


def has_lock(name: ColumnElement[str]) -> ColumnElement[bool]:
    """Select whether the transaction gets the advisory lock; true when it has the lock already, and on SQLite."""
    return on_postgresql(func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0), type_=Boolean))


_row = rows_parameter("wanted", {"organization_id": tables.Id, "id": tables.Id, "lock": Text}).c
LOCKED_KEYS = select(_row.organization_id, _row.id).where(has_lock(_row.lock)).distinct().subquery("held")
"""The keys (organization_id, id) of the rows `wanted` whose `lock`, of an idempotency key, this transaction has.

A request whose key is in use is refused at once, and does not wait for the rows that the other request locks.
"""
_lock = rows_from_json("wanted", {"i": Integer, "lock": Text}).c
_TRY_LOCKS = Statement(select(_lock.i, has_lock(_lock.lock)))
_FIND = Statement(
    select(tables.idempotency.c.fingerprint, tables.idempotency.c.status, tables.idempotency.c.body_sealed).where(
        tables.idempotency.c.organization_id == bindparam("organization_id"),
        tables.idempotency.c.key == bindparam("key"),
    )
)


def try_locks(tx: Tx, keys: Sequence[tuple[str, str]]) -> list[bool]:
    """Lock each (organization id, key), and return for each whether this transaction holds the lock.

    Read stored answers with a later statement: only its snapshot contains the commit of the former holder.
    """
    are_held: list[bool] = tx.pipeline(locks_query(keys))[0]
    return are_held


def locks_query(keys: Sequence[tuple[str, str]]) -> Query[list[bool]]:
    """Return the query of `try_locks`, for a pipeline with other queries."""

    def are_held(rows: list[Row]) -> list[bool]:
        refused = {i for i, is_held in rows if not is_held}
        return [i not in refused for i in range(len(keys))]

    locks = as_json({"i": i, "lock": lock_name(*key)} for i, key in enumerate(keys))
    return Query(_TRY_LOCKS, {"wanted": locks}, are_held, is_lock=True)


def lock_name(organization_id: str, key: str) -> str:
    """Return the name of the advisory lock of a key."""
    return f"{organization_id}:{key}"


def replay(caller: Actor, once: Once, fingerprint: str, status: int, body_sealed: str) -> Answer:
    """Return the stored answer, byte for byte.

    Raises:
        IdempotencyKeyReused: the key belongs to a different request; or the answer was sealed with a secret key that is
            no longer configured. The work is done then, so it must not be repeated, and its answer cannot be opened.
    """
    if fingerprint != once.fingerprint:
        raise IdempotencyKeyReused
    body = caller.secret_keys.open_or_none(SEALED_FOR, body_sealed, caller.organization.id, once.key)
    if body is None:
        raise IdempotencyKeyReused("This Idempotency-Key was used, and its answer can no longer be opened.")
    return Answer(status, body, replayed=True)


def find_answer(tx: Tx, actor: Actor, key: str) -> Answer | None:
    """Return the answer that is stored for a key, of any request; None if there is none, or if it was sealed with a
    secret key that is no longer configured."""
    row = tx.first(_FIND, organization_id=actor.organization.id, key=key)
    if row is None:
        return None
    _, status, body_sealed = row
    body = actor.secret_keys.open_or_none(SEALED_FOR, body_sealed, actor.organization.id, key)
    return None if body is None else Answer(status, body, replayed=True)


def keep(tx: Tx, caller: Actor, once: Once, answer: Answer, *, at: int) -> None:
    """Store the answer with the other writes of the transaction."""
    tx.insert(
        tables.idempotency,
        organization_id=caller.organization.id,
        key=once.key,
        fingerprint=once.fingerprint,
        status=answer.status,
        body_sealed=caller.secret_keys.seal(SEALED_FOR, answer.body, caller.organization.id, once.key),
        created_at=at,
    )


def execute(tx: Tx, caller: Actor, once: Once | None, act: Callable[[], Answer], refuse: Refuse) -> Answer:
    """Return the answer of `act`, or the stored answer of a key that was used before.

    A refusal that is stored writes nothing else: the rows that `act` collected before it raised are dropped.

    Raises:
        IdempotencyInProgress: a request with this key still runs.
        IdempotencyKeyReused: the key was used with a different request.
    """
    if once and (stored := _stored(tx, caller, once)):
        return stored
    try:
        with tx.discard_on_error():
            answer = act()
    except STORED_REFUSALS as error:
        if not once:
            raise
        answer = refuse(error)
    if once:
        keep(tx, caller, once, answer, at=caller.at)
    return answer


def _stored(tx: Tx, caller: Actor, once: Once) -> Answer | None:
    if not all(try_locks(tx, [(caller.organization.id, once.key)])):
        raise IdempotencyInProgress
    row = tx.first(_FIND, organization_id=caller.organization.id, key=once.key)
    return replay(caller, once, *row) if row else None


OLD = DueRows(tables.idempotency, tables.idempotency.c.created_at, tables.idempotency.c.key)
"""The stored answers, due at their creation: a purge deletes those of an earlier instant. Their keys are new again."""
