"""Transactions on the thread of an event loop: a statement that reads and locks, a decision, a statement that writes.

A thread that runs a transaction competes with a busy loop for Python's interpreter: after each wait for the database it
gets it late, and each callback of the loop that ends meanwhile wakes it for nothing. The loop itself does the same work
for less, and waits for the database as for any socket (decisions/0068).
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from booking_core.db.driver import Connection, LoopConnection, Step
from booking_core.db.engine import Database, Pool, Query, Tx
from booking_core.db.statements import Row
from booking_core.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class NotOnLoop(Exception):
    """The loop cannot make a transaction without a wait: it is to be made in a thread. Nothing was done, unless the
    connection was lost at the COMMIT."""


class _StatementNeeded(Exception):
    """Ends a transaction on the loop that needs another statement: it begins again in a thread."""


class _NoStatements:
    """The connection of a transaction that only collects writes."""

    def __getattr__(self, name: str) -> Any:
        raise _StatementNeeded(name)


class _CollectingTx(Tx):
    """A transaction whose statements are sent by the loop."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, cast(Connection, _NoStatements()))

    def first_steps(self, queries: Sequence[Query[Any]]) -> list[Step]:
        return [self._ready(query.statement, query.parameters) for query in queries if query.statement]

    def last_step(self) -> Step | None:
        return self._last_step()

    def note_committed(self) -> None:
        self._note_committed()


async def write(database: Database, query: Query[T], decide: Callable[[Tx, T], R]) -> R:
    """Return what `decide` makes of the query's result, in a transaction with what `decide` has collected.

    It runs in a thread, or begins again there, where the loop would have to wait: no connection is open and idle,
    `decide` runs a statement, the transaction was in conflict with another one. So both may run more than once, as in
    `Database.write`. On SQLite, which has no server to wait for, and where statements are traced, it always does.

    A caller that is cancelled does not learn the outcome: a COMMIT that was sent, or that the thread makes, is not
    taken back, and may be done after this has ended.

    Raises:
        Unavailable: as `Database.write`.
    """
    with contextlib.suppress(NotOnLoop):
        return await write_on_loop(database, (query,), lambda tx, found: decide(tx, found[0]))
    return await asyncio.to_thread(database.write, lambda tx: decide(tx, tx.pipeline(query)[0]))


async def write_on_loop(
    database: Database,
    queries: Sequence[Query[Any]],
    decide: Callable[[Tx, list[Any]], R],
    *,
    lane: Pool | None = None,
) -> R:
    """Return what `decide` makes of the results of the queries, as `write` does, but never in a thread.

    Args:
        queries: are run in order, each sees what was committed when it begins.
        lane: as for `Database.write`.

    Raises:
        NotOnLoop: the transaction is to be made in a thread.
        Unavailable: as `Database.write`.
    """
    if not is_possible(database):
        raise NotOnLoop
    with database.translating_errors(), database.idle_writer(lane) as connection:
        if connection is None:
            raise NotOnLoop
        try:
            return await _on_loop(database, cast(LoopConnection, connection), queries, decide)
        except Exception as error:
            if isinstance(error, _StatementNeeded) or database.driver.is_retryable(error):
                raise NotOnLoop from error
            raise


def is_possible(database: Database) -> bool:
    """Return whether a loop can make transactions of the database at all."""
    # The loop of Windows waits for no socket that is not its own.
    return not database.is_sqlite and database.tracer is None and sys.platform != "win32"


async def _on_loop(
    database: Database,
    connection: LoopConnection,
    queries: Sequence[Query[Any]],
    decide: Callable[[Tx, list[Any]], R],
) -> R:
    tx = _CollectingTx(database)
    connection.begin()
    try:
        connection.send_first(*tx.first_steps(queries))
        found = iter(await _arrived(connection))
        result = decide(tx, [query.read(next(found) if query.statement else []) for query in queries])
        connection.send_last(tx.last_step())
        await _arrived(connection)
    except BaseException:
        with contextlib.suppress(
            Exception
        ):  # the first error is the one to report; a lost connection is not used again
            await asyncio.to_thread(connection.rollback)
        raise
    tx.note_committed()
    return result


async def _arrived(connection: LoopConnection) -> list[list[Row]]:
    """Return the rows of each statement that was sent, once they have arrived.

    Raises:
        Unavailable: there was no response in time, or the server is frozen.
    """
    loop = asyncio.get_running_loop()
    rows: asyncio.Future[list[list[Row]]] = loop.create_future()
    socket = connection.socket

    def advance() -> None:
        try:
            found = connection.arrived()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            loop.remove_reader(socket)
            loop.remove_writer(socket)
            if not rows.done():
                rows.set_exception(error)
            return
        if not connection.is_sending:
            loop.remove_writer(socket)
        if found is not None and not rows.done():
            loop.remove_reader(socket)
            rows.set_result(found)

    loop.add_reader(socket, advance)
    if connection.is_sending:
        loop.add_writer(socket, advance)
    try:
        await _in_time(connection, rows)
    finally:
        loop.remove_reader(socket)
        loop.remove_writer(socket)
    return rows.result()


async def _in_time(connection: LoopConnection, rows: "asyncio.Future[list[list[Row]]]") -> None:
    waited_s = 0.0
    while not (await asyncio.wait((rows,), timeout=connection.silence_s))[0]:
        waited_s += connection.silence_s
        if await asyncio.to_thread(connection.is_lost, waited_s):
            raise Unavailable(for_all=True)
