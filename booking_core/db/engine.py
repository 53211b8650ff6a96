"""Connections and transactions, one behaviour on SQLite and on PostgreSQL.

A `Database` hands out transactions; a `Tx` runs statements. The drivers are used bare (see `statements`), in autocommit
with our own BEGIN and COMMIT, so that nothing begins a transaction by surprise.

SQLite: WAL with synchronous=FULL, one writer at a time, begun IMMEDIATE; readers have connections of their own.
PostgreSQL: READ COMMITTED, a bounded pool, and limits on waiting so that no client ever hangs on a lock.
"""

import contextlib
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Table, select
from sqlalchemy.engine import URL, Dialect, make_url

from booking_core.clock import Clock, system_clock
from booking_core.db import writes as writing
from booking_core.db.statements import POSTGRESQL, SQLITE, Statement, now_us
from booking_core.db.writes import Change, Writes
from booking_core.errors import BookingError, Unavailable

T = TypeVar("T")
Row = tuple[Any, ...]

LOCK_TIMEOUT_MS = 3_000
STATEMENT_TIMEOUT_MS = 10_000
IDLE_IN_TRANSACTION_TIMEOUT_MS = 15_000
CONNECT_TIMEOUT_S = 5
POOL_TIMEOUT_S = 5.0
_TRIES = 3

# PostgreSQL's SQLSTATE classes and codes, by what we do about them.
_TRY_AGAIN = frozenset({"40001", "40P01", "23505"})
"""Serialization, deadlock, and a unique row that another transaction wrote first: a second look sees it."""
_BUSY = frozenset({"55P03", "57014", "53300", "25P03"})
"""Lock timeout, statement timeout, too many connections, idle in transaction."""


_NOW = Statement(lambda dialect: select(now_us(dialect)))


class SqliteDriver:
    """One file, one writer."""

    dialect: Dialect = SQLITE
    readers = 8
    writers = 1

    def __init__(self, url: URL) -> None:
        self.path = Path(url.database or "")
        self.checkpoints = False
        """Only the process that serves checkpoints (SQLite before 3.51.3 may corrupt the WAL when two do at once)."""

    def connect(self, writable: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=LOCK_TIMEOUT_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-32768")
        if not writable:
            connection.execute("PRAGMA query_only=ON")
        if not (writable and self.checkpoints):
            connection.execute("PRAGMA wal_autocheckpoint=0")
        return connection

    def begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def broken(self, connection: sqlite3.Connection) -> bool:
        return False

    def translate(self, error: Exception) -> Exception | None:
        return Unavailable() if isinstance(error, sqlite3.OperationalError) and _is_busy(error) else None

    def worth_another_try(self, error: Exception) -> bool:
        return False


def _is_busy(error: sqlite3.OperationalError) -> bool:
    # The low byte is the primary code; SQLITE_BUSY_SNAPSHOT and the like carry more above it.
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class PostgresDriver:
    """Any number of processes."""

    dialect: Dialect = POSTGRESQL
    readers = 8
    writers = 8

    def __init__(self, url: URL) -> None:
        import psycopg  # imported here: an operator on SQLite does not have it

        self._psycopg = psycopg
        self._conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.session = (
            f"SET lock_timeout = {LOCK_TIMEOUT_MS}; SET statement_timeout = {STATEMENT_TIMEOUT_MS};"
            f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_TIMEOUT_MS}; SET jit = off;"
            "SET TIME ZONE 'UTC'"
        )

    def connect(self, writable: bool) -> Any:
        from psycopg.types.string import TextLoader

        connection = self._psycopg.connect(self._conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
        connection.adapters.register_loader("uuid", TextLoader)
        connection.prepare_threshold = 2
        connection.execute(self.session)
        return connection

    def begin(self, connection: Any) -> None:
        connection.execute("BEGIN")

    def broken(self, connection: Any) -> bool:
        return bool(connection.closed or connection.broken)

    def translate(self, error: Exception) -> Exception | None:
        if not isinstance(error, self._psycopg.Error):
            return None
        state = error.sqlstate or ""
        lost = isinstance(error, self._psycopg.OperationalError) and not state
        if lost or state in _BUSY or state in _TRY_AGAIN or state[:2] in ("08", "57"):
            return Unavailable()
        return None

    def worth_another_try(self, error: Exception) -> bool:
        if not isinstance(error, self._psycopg.Error):
            return False
        state = error.sqlstate or ""
        # A connection that died leaves the outcome open; every write of ours may be run again (idempotency, unique
        # e-mail), so running it again is how the outcome is learnt.
        lost = isinstance(error, self._psycopg.OperationalError) and not state
        return state in _TRY_AGAIN or lost or (state[:2] == "57" and state != "57014")


class Tx:
    """A transaction, or for reads a connection on which each statement sees the newest commit."""

    def __init__(self, database: "Database", connection: Any) -> None:
        self._database = database
        self._connection = connection
        self.dialect = database.dialect

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> Any:
        text, constants, wants_now = statement.compiled(self.dialect)
        if constants:
            parameters = constants | parameters
        if wants_now and "now" not in parameters:
            parameters["now"] = self._database.now_parameter()
        if self._database.observer:
            self._database.observer(text)
        return self._connection.execute(text, parameters)

    def all(self, statement: Statement, **parameters: Any) -> list[Row]:
        """Every row."""
        found: list[Row] = self._run(statement, parameters).fetchall()
        return found

    def first(self, statement: Statement, **parameters: Any) -> Row | None:
        """The first row, or none."""
        row: Row | None = self._run(statement, parameters).fetchone()
        return row

    def run(self, statement: Statement, **parameters: Any) -> int:
        """How many rows were touched."""
        count: int = self._run(statement, parameters).rowcount
        return count

    def write(self, pending: Writes) -> None:
        """Writes all that was collected: one statement on PostgreSQL, one for each table on SQLite."""
        if not pending.rows:
            return
        if self.dialect.name == "postgresql":
            statement = writing.as_one_statement(writing.shape(pending))
            self._run(statement, {target.name: writing.as_json(items) for target, items in pending.rows.items()})
            return
        for target, items in pending.rows.items():
            if isinstance(target, writing.Derived):
                self._run(writing.as_given_statement(target), {target.name: writing.as_json(items)})
            else:
                self._run_many(target, items)

    def _run_many(self, target: Table | Change, items: list[writing.Row]) -> None:
        text = writing.as_row_statement(target, tuple(items[0])).compiled(self.dialect).text
        if isinstance(target, Change):
            items = [{f"_{key}": value for key, value in item.items()} for item in items]
        if self._database.observer:
            self._database.observer(text)
        self._connection.executemany(text, items)

    def now(self) -> int:
        """The instant it is, by the clock that this database's processes share."""
        row = self.first(_NOW)
        assert row is not None
        return int(row[0])

    @property
    def is_open(self) -> bool:
        """Whether the transaction still stands."""
        return bool(self._connection.in_transaction) if self.dialect.name == "sqlite" else True

    def in_savepoint(self, fn: Callable[["Tx"], T]) -> T:
        """What `fn` gives; when it raises, what it did is undone and the transaction goes on."""
        self._connection.execute("SAVEPOINT one_of_many")
        try:
            result = fn(self)
        except BaseException:
            if self.is_open:
                self._connection.execute("ROLLBACK TO SAVEPOINT one_of_many")
                self._connection.execute("RELEASE SAVEPOINT one_of_many")
            raise
        self._connection.execute("RELEASE SAVEPOINT one_of_many")
        return result


class Pool:
    """Connections that are lent out, the last returned first; made when needed, up to a bound."""

    def __init__(self, size: int, connect: Callable[[], Any], broken: Callable[[Any], bool]) -> None:
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._connect = connect
        self._broken = broken
        self._room = threading.BoundedSemaphore(size)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Any]:
        """A connection, for the time being.

        Raises:
            Unavailable: none came free in time.
        """
        if not self._room.acquire(timeout=POOL_TIMEOUT_S):
            raise Unavailable
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._room.release()

    def _take(self) -> Any:
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return self._connect()
            if not self._broken(connection):
                return connection

    def _give_back(self, connection: Any) -> None:
        if self._closed or self._broken(connection):
            with contextlib.suppress(Exception):  # it is being thrown away  # noqa: BLE001, RUF100
                connection.close()
        else:
            self._idle.put(connection)

    def close(self) -> None:
        self._closed = True
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


class Database:
    """The way into one database: reads, and writes that are tried again when another transaction was in the way."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.url = make_url(url)
        self.driver: SqliteDriver | PostgresDriver = (
            SqliteDriver(self.url) if self.url.get_backend_name() == "sqlite" else PostgresDriver(self.url)
        )
        self.dialect = self.driver.dialect
        self.observer: Callable[[str], None] | None = None
        """Sees the text of every statement; for tests that count them."""
        self._clock = clock
        self._pid = os.getpid()
        self._readers = Pool(self.driver.readers, lambda: self.driver.connect(False), self.driver.broken)
        self._writers = Pool(self.driver.writers, lambda: self.driver.connect(True), self.driver.broken)

    def now_parameter(self) -> int | None:
        """What `now` means: a clock that was passed in, else none on PostgreSQL, whose own clock then decides."""
        if self._clock:
            return self._clock()
        return system_clock() if self.is_sqlite else None

    @property
    def is_sqlite(self) -> bool:
        return self.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Tx]:
        """A connection for reads; each statement sees the newest commit."""
        with self._translated(), self._readers.lend() as connection:
            yield Tx(self, connection)

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """One transaction: committed at the end, rolled back when anything is raised."""
        with self._translated(), self._transaction() as tx:
            yield tx

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BookingError:
            raise
        except Exception as error:  # every driver's error is looked at; what is not ours goes on as it is
            translated = self.driver.translate(error)
            if translated is None:
                raise
            raise translated from error

    @contextmanager
    def _transaction(self) -> Iterator[Tx]:
        with self._writers.lend() as connection:
            self.driver.begin(connection)
            try:
                yield Tx(self, connection)
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    connection.execute("ROLLBACK")
                raise
            try:
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(Exception):
                    connection.execute("ROLLBACK")
                raise

    def read(self, fn: Callable[[Tx], T]) -> T:
        """What `fn` gives from a reading connection."""
        with self.reading() as tx:
            return fn(tx)

    def write(self, fn: Callable[[Tx], T]) -> T:
        """What `fn` gives from a transaction of its own; run again when another transaction was in its way.

        `fn` may run more than once, each time on a transaction that knows nothing of the one before.

        Raises:
            Unavailable: the database is away or too busy.
        """
        with self._translated():
            for again in range(_TRIES):
                try:
                    with self._transaction() as tx:
                        return fn(tx)
                except Exception as error:  # only what a second look can settle is tried again
                    if again == _TRIES - 1 or not self.driver.worth_another_try(error):
                        raise
                    time.sleep(random.uniform(0.001, 0.02) * (again + 1))
        raise Unavailable

    def write_each(self, fns: Sequence[Callable[[Tx], T]]) -> list[T | Exception]:
        """What each of them gives, or raises.

        On SQLite they share one transaction and one fsync, each in a savepoint, so that one that fails undoes only
        itself; on PostgreSQL each has its own.
        """
        if len(fns) > 1 and self.is_sqlite:
            try:
                return self._write_together(fns)
            except Exception:  # noqa: BLE001 - the shared commit failed: nothing is done, each is tried by itself
                return [self._outcome(self.write, fn) for fn in fns]
        return [self._outcome(self.write, fn) for fn in fns]

    def _write_together(self, fns: Sequence[Callable[[Tx], T]]) -> list[T | Exception]:
        with self._transaction() as tx:
            outcomes = []
            for fn in fns:
                outcomes.append(self._outcome(tx.in_savepoint, fn))
                if not tx.is_open:  # a full disk ends the whole transaction, and with it what the others did
                    raise Unavailable
            return outcomes

    def _outcome(self, run: Callable[[Callable[[Tx], T]], T], fn: Callable[[Tx], T]) -> T | Exception:
        try:
            with self._translated():
                return run(fn)
        except Exception as error:  # noqa: BLE001 - given to the one caller it belongs to
            return error

    def close(self) -> None:
        """Closes every idle connection; one that is lent out is closed when it comes back."""
        self._readers.close()
        self._writers.close()
