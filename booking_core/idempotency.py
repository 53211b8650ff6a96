"""One execution for each key, whatever is retried or killed when (decisions I1 to I7).

The stored answer commits with the work it tells of. While a request runs its key is held by an advisory lock of the
transaction on PostgreSQL, which dies with the process; on SQLite the single writer is the lock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import BigInteger, Boolean, ColumnElement, Integer, Text, bindparam, delete, func, select, tuple_
from sqlalchemy.engine import Dialect

from booking_core.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Query, Tx
from booking_core.db.statements import Statement, as_json, materialized, rows_from_json
from booking_core.errors import (
    BookingError,
    Conflict,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    InsufficientCapacity,
    Malformed,
    NotFound,
    Unprocessable,
)
from booking_core.tokens import sha256_hex

STORED_REFUSALS = (NotFound, InsufficientCapacity, Conflict, Unprocessable)
"""Outcomes that were reached by executing, and so are replayed. With any other nothing was done, and the same key may
be used again (decision I3)."""

SEALED_FOR = "idempotency"


@dataclass(frozen=True, slots=True)
class Once:
    """The caller's key, and the fingerprint of the request it was sent with."""

    key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent, and sent again."""

    status: int
    body: bytes
    replayed: bool = False


Refuse = Callable[[BookingError], Answer]
"""How a refusal is answered; the status of an error is the server's to know."""


def fingerprint(method: str, path: str, body: Any) -> str:
    """SHA-256 over method, concrete path and canonical JSON: sorted keys, no white space (decision I1).

    Raises:
        Malformed: the body is nested too deeply to be read.
    """
    try:
        canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        raise Malformed("The body is nested too deeply.") from None
    return sha256_hex(b"\n".join((method.encode(), path.encode(), canonical)))


def has_lock(name: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether the transaction has that advisory lock now; true again when it had it before."""
    return func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0), type_=Boolean)


def _try_locks(dialect: Dialect) -> Any:
    wanted = rows_from_json(dialect, "wanted", {"i": Integer, "lock": Text}).c
    return select(wanted.i, has_lock(wanted.lock))


_TRY_LOCKS = Statement(_try_locks)
_FIND = Statement(
    select(tables.idempotency.c.fingerprint, tables.idempotency.c.status, tables.idempotency.c.body_sealed).where(
        tables.idempotency.c.organization_id == bindparam("organization_id"),
        tables.idempotency.c.key == bindparam("key"),
    )
)


def try_locks(tx: Tx, wanted: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether each (organization id, key) is now held by this transaction, or else by another one that runs.

    The answers that were stored must be read by a later statement: only its snapshot sees what the former holder
    committed.
    """
    held: list[bool] = tx.pipeline(locks_query(tx.dialect, wanted))[0]
    return held


def locks_query(dialect: Dialect, wanted: Sequence[tuple[str, str]]) -> Query[list[bool]]:
    """The same, to be asked together with what follows."""
    if dialect.name == "sqlite":
        return Query(None, {}, lambda _: [True] * len(wanted))
    locks = as_json({"i": i, "lock": lock_name(*each)} for i, each in enumerate(wanted))
    return Query(_TRY_LOCKS, {"wanted": locks}, lambda found: [is_held for _, is_held in sorted(found)])


def lock_name(organization_id: str, key: str) -> str:
    """What the advisory lock of a key is made from."""
    return f"{organization_id}:{key}"


def replay(caller: Actor, once: Once, fingerprint: str, status: int, body_sealed: str) -> Answer:
    """The stored answer, byte for byte.

    Raises:
        IdempotencyKeyReused: it belongs to a different request; or it was sealed with a secret key that was taken out
            of rotation since. The work is done then, so it must not be done again, and its answer cannot be told.
    """
    if fingerprint != once.fingerprint:
        raise IdempotencyKeyReused
    try:
        body = caller.secret_keys.open(SEALED_FOR, body_sealed, caller.organization.id, once.key)
    except ValueError:
        raise IdempotencyKeyReused("This Idempotency-Key was used, and its answer can no longer be opened.") from None
    return Answer(status, body, replayed=True)


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


_OLD = (
    select(tables.idempotency.c.organization_id, tables.idempotency.c.key)
    .where(tables.idempotency.c.created_at < bindparam("before", type_=BigInteger))
    .order_by(tables.idempotency.c.created_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)
_KEY = tuple_(tables.idempotency.c.organization_id, tables.idempotency.c.key)
_PURGE = Statement(lambda dialect: delete(tables.idempotency).where(_KEY.in_(materialized(dialect, _OLD))))


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Forgets answers stored before that instant, the oldest first, and gives how many; their keys are new again."""
    return tx.run(_PURGE, before=before, limit=limit)
