"""Transactions that behave the same on SQLite and on PostgreSQL.

A `Database` opens transactions; a `Tx` runs statements and collects writes. The drivers are used without SQLAlchemy's
execution layer (see `statements`), in autocommit mode with an explicit BEGIN and COMMIT: no driver begins a transaction
automatically.
"""

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import compress
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Table, select, text
from sqlalchemy.engine import URL

from booking_core.base import database_urls
from booking_core.base.clock import Clock, system_clock
from booking_core.base.errors import BookingError, Unavailable, is_outage
from booking_core.base.repeated_log import RepeatedLog
from booking_core.db import unit_of_work
from booking_core.db.driver import Connection, Driver, PipelineStep
from booking_core.db.pool import Pool
from booking_core.db.sqlite import SqliteConnection, SqliteDriver
from booking_core.db.statements import NOW, Compiled, Row, Statement, as_json
from booking_core.db.unit_of_work import InsertFromSelect, Mark, UnitOfWork, Update

__all__ = ["Database", "Pool", "Query", "Readers", "Row", "Tx"]

T = TypeVar("T")

log = logging.getLogger("booking.database")
# A program that configures no logging reports the error itself, as the command line does.
logging.getLogger("booking").addHandler(logging.NullHandler())

_ATTEMPTS = 3

OUTCOME_TIMEOUT_S = 5.0
"""Seconds to wait for the outcome of a transaction whose connection was lost and that the server still runs."""
_OUTCOME_POLL_S = 0.1

_NOW = Statement(select(NOW))
_TRANSACTION_ID = Statement(text("SELECT CAST(pg_current_xact_id() AS text)"))
_LIMIT_LOCK_WAITS = Statement(text("SELECT set_config('lock_timeout', :timeout_ms, true)"))
_OUTCOME = Statement(text("SELECT pg_xact_status(CAST(:transaction_id AS xid8))"))


def _driver(url: URL) -> Driver:
    if url.get_backend_name() == "sqlite":
        return SqliteDriver(url)
    from booking_core.db.postgres import PostgresDriver  # psycopg is not installed where only SQLite is used

    return PostgresDriver(url)


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """A statement of a pipeline."""

    statement: Statement
    parameters: dict[str, Any]
    read: Callable[[list[Row]], T]
    """Makes the result from the rows."""
    is_lock: bool = False
    """It is about locks alone, which SQLite's one writer does not need: nothing is sent there, and there are no rows.
    """


def lock_wait_query(timeout_ms: int) -> Query[None]:
    """Return the query that limits lock waits until the transaction ends."""
    return Query(_LIMIT_LOCK_WAITS, {"timeout_ms": str(timeout_ms)}, lambda _: None, is_lock=True)


class Tx:
    """A transaction. For reads: a connection whose statements each see the newest commit.

    `insert`, `update` and `insert_from_select` collect rows. They are sent before the next statement that reads or runs
    (autoflush) and at the commit: as one statement on PostgreSQL, which travels with the COMMIT; as one statement for
    each table on SQLite. An error in a collected row is raised when it is sent.
    """

    def __init__(self, database: "Database", connection: Connection, *, is_read_only: bool = False) -> None:
        self._database = database
        self._connection = connection
        self._is_read_only = is_read_only
        self._work = UnitOfWork()
        self._scopes: list[_Scope] = []
        self._autoflush = True
        self._tallies: list[tuple[str, str, int]] = []
        self.traceparent: str | None = None
        """The trace context (W3C) of the request that publishes the next events."""
        self.changes = 0
        """The number of rows that were collected, or changed by a statement, so far."""
        self.instant: int | None = None
        """The present instant for the statements that follow, if it is a sandbox's and not the database's."""
        self.dialect = database.dialect

    # Collected writes --------------------------------------------------------------------------------------------

    def insert(self, table: Table, **row: object) -> None:
        """Collect a row to insert."""
        self._refuse_read_only()
        self.changes += 1
        if not self._work.accepts_insert(table, row):
            self.flush()
        self._work.insert(table, row)

    def update(self, target: Table | Update, **row: object) -> None:
        """Collect an update of one row: its primary key and the columns to set, or as an `Update` says."""
        self._refuse_read_only()
        self.changes += 1
        if isinstance(target, Table):
            target = unit_of_work.update_of(target, tuple(row))
        if not self._work.accepts_update(target, row):
            self.flush()
        self._work.update(target, row)

    def insert_from_select(self, target: InsertFromSelect, rows: Sequence[dict[str, Any]]) -> None:
        """Collect rows; the database derives the rows of the target from them."""
        self._refuse_read_only()
        self.changes += len(rows)
        self._work.insert_from_select(target, rows)

    def tally(self, name: str, organization: str, amount: int = 1) -> None:
        """Count something for metrics, once the transaction is committed.

        Args:
            organization: its slug.
        """
        self._tallies.append((name, organization, amount))

    @property
    def trace_columns(self) -> dict[str, str | None]:
        """Return the columns of an event with the trace context: none where nothing is traced."""
        return {"traceparent": self.traceparent} if self._database.is_traced else {}

    def _refuse_read_only(self) -> None:
        if self._is_read_only:
            raise RuntimeError("This connection is read-only: collect writes in Database.write or Database.writing.")

    def flush(self) -> None:
        """Send the collected rows."""
        work = self._taken()
        if work is None:
            return
        if self.dialect.name == "postgresql":
            self._connection.execute(*self._as_step(work))
            return
        for target, rows in work.in_order():
            if isinstance(target, InsertFromSelect):
                statement = unit_of_work.as_rows_statement(target)
                self._connection.execute(*self._ready(statement, {target.name: as_json(rows)}))
            else:
                self._run_many(target, rows)

    def _taken(self) -> UnitOfWork | None:
        """Return the collected rows, to be sent now; none when there are none."""
        work = self._work
        if not work.rows:
            return None
        for scope in self._scopes:
            scope.was_sent |= work.has_grown(scope.mark)
            scope.mark = {}
        self._work = UnitOfWork()
        return work

    def _as_step(self, work: UnitOfWork) -> PipelineStep:
        statement = unit_of_work.as_one_statement(unit_of_work.shape(work))
        return self._ready(statement, unit_of_work.as_parameters(work))

    def _run_many(self, target: Table | Update, rows: list[unit_of_work.ColumnValues]) -> None:
        compiled = unit_of_work.as_row_statement(target, tuple(rows[0])).compiled(self.dialect)
        if isinstance(target, Update):
            rows = [{f"_{key}": value for key, value in row.items()} for row in rows]
        self._observe(compiled)
        cast(SqliteConnection, self._connection).execute_many(compiled, rows)

    @contextmanager
    def discard_on_error(self) -> Iterator[None]:
        """Drop the rows that are collected inside when an exception leaves the block, and keep the rows from before.

        For work that may be refused while the transaction goes on. It only reaches rows that were not sent: a refusal
        has to come before the first read that follows a write, or the work belongs in a savepoint.

        Raises:
            RuntimeError: rows that were collected inside were sent before the exception.
        """
        scope = _Scope(self._work.mark())
        self._scopes.append(scope)
        try:
            yield
        except BaseException as error:
            if scope.was_sent and isinstance(error, Exception):
                message = "Collected writes were sent before they were refused: refuse first, or use a savepoint."
                raise RuntimeError(message) from error
            self._work.discard(scope.mark)
            raise
        finally:
            self._scopes.pop()

    # Statements --------------------------------------------------------------------------------------------------

    def all(self, statement: Statement, **parameters: Any) -> list[Row]:
        """Return every row."""
        return self._run(statement, parameters)[0]

    def first(self, statement: Statement, **parameters: Any) -> Row | None:
        """Return the first row; none when there is none."""
        rows = self.all(statement, **parameters)
        return rows[0] if rows else None

    def first_as(self, make: Callable[[Row], T], statement: Statement, **parameters: Any) -> T | None:
        """Return the first row as `make` presents it; none when there is none."""
        row = self.first(statement, **parameters)
        return make(row) if row else None

    def run(self, statement: Statement, **parameters: Any) -> int:
        """Run a statement and return the number of affected rows."""
        return self._run(statement, parameters)[1]

    def pipeline(self, *queries: Query[Any]) -> list[Any]:
        """Run the queries in order and return their results: in one round trip on PostgreSQL. Each query sees all
        commits from before its start, so also rows that an earlier query waited for."""
        self.flush()
        is_sent = [not (query.is_lock and self.dialect.name == "sqlite") for query in queries]
        steps = [self._ready(query.statement, query.parameters) for query in compress(queries, is_sent)]
        results = self._connection.execute_pipeline(steps)
        self.changes += sum(count for step, (_, count) in zip(steps, results, strict=True) if step[0].changes_rows)
        rows_of = (rows for rows, _ in results)
        return [query.read(next(rows_of) if sent else []) for query, sent in zip(queries, is_sent, strict=True)]

    @contextmanager
    def no_autoflush(self) -> Iterator[None]:
        """Inside, statements do not send the collected rows. Only for statements that read none of their tables."""
        self._autoflush = False
        try:
            yield
        finally:
            self._autoflush = True

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        if self._autoflush:
            self.flush()
        compiled, parameters = self._ready(statement, parameters)
        result: tuple[list[Row], int] = self._connection.execute(compiled, parameters)
        if compiled.changes_rows:
            self.changes += result[1]
        return result

    def _ready(self, statement: Statement, parameters: dict[str, Any]) -> tuple[Compiled, dict[str, Any]]:
        """Return the compiled statement and all its parameters, constants and `now` included."""
        compiled = statement.compiled(self.dialect)
        if compiled.constants:
            parameters = compiled.constants | parameters
        if compiled.wants_now and "now" not in parameters:
            parameters["now"] = self._database.now_parameter() if self.instant is None else self.instant
        self._observe(compiled)
        return compiled, parameters

    def _observe(self, compiled: Compiled) -> None:
        if self._database.observer:
            self._database.observer(compiled.text)

    def now(self) -> int:
        """Return the present instant: `instant` where it is set, else by the clock that all processes of this database
        share."""
        with self.no_autoflush():
            ((now,),) = self.all(_NOW)
        return int(now)

    def transaction_id(self) -> str:
        """Return PostgreSQL's id of the transaction, to query its outcome later."""
        ((transaction_id,),) = self.all(_TRANSACTION_ID)
        return str(transaction_id)

    # The transaction itself --------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Send the collected rows and end the transaction: one round trip on PostgreSQL."""
        if self.dialect.name == "postgresql":
            work = self._taken()
            self._connection.commit(self._as_step(work) if work else None)
        else:
            self.flush()
            self._connection.commit()
        for name, organization, amount in self._tallies:
            self._database.on_tally(name, organization, amount)

    @property
    def is_open(self) -> bool:
        """Return True if the transaction can continue: a full disk ends it on SQLite."""
        return bool(self._connection.in_transaction)

    def allow_pauses(self) -> None:
        """Let this transaction pause between two statements, for operators' work that decides about many rows.

        PostgreSQL ends any other transaction after a short pause, since its process may be frozen with locks."""
        if not self._is_read_only:
            self.flush()
            self._connection.allow_pauses()

    def limit_lock_waits(self, timeout_ms: int) -> None:
        """Limit the wait of each statement of the transaction for a lock."""
        self.pipeline(lock_wait_query(timeout_ms))

    @contextmanager
    def without_statement_timeout(self) -> Iterator[None]:
        """Lift PostgreSQL's statement timeout inside the block, for statements of operators that read whole tables."""
        with self._connection.without_statement_timeout():
            yield

    def in_savepoint(self, fn: Callable[["Tx"], T]) -> T:
        """Return the result of `fn`. When it raises, its writes are undone and the transaction goes on."""
        self.flush()
        self._connection.command("SAVEPOINT one_of_many")
        tallied = len(self._tallies)
        try:
            result = fn(self)
            self.flush()
        except BaseException:
            self._work = UnitOfWork()
            del self._tallies[tallied:]
            if self.is_open:
                self._connection.command("ROLLBACK TO SAVEPOINT one_of_many")
                self._connection.command("RELEASE SAVEPOINT one_of_many")
            raise
        self._connection.command("RELEASE SAVEPOINT one_of_many")
        return result


@dataclass(slots=True)
class _Scope:
    """A block of `Tx.discard_on_error`."""

    mark: Mark
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class Readers:
    """Connections for reads with one purpose: no other purpose can use them up."""

    database: "Database"
    pool: Pool

    @contextmanager
    def reading(self) -> Iterator[Tx]:
        """Lend a connection for reads; each statement sees the newest commit."""
        with self.database.translating_errors(), self.pool.connection() as connection:
            yield Tx(self.database, connection, is_read_only=True)


class _DryRun(Exception):
    """Rolls back the transaction of a dry run."""


class Database:
    """A database: connections for reads, and transactions that are run again after a conflict with another one."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.url = database_urls.parse(url)
        self.driver = _driver(self.url)
        self.dialect = self.driver.dialect
        self.is_traced = False
        """Events keep the trace context of their request."""
        self.observer: Callable[[str], None] | None = None
        """Called with the text of every statement, by tests that count them."""
        self.faults = RepeatedLog(log)
        """The log of faults below the database, such as a full disk: once for all requests that meet the same fault."""
        self._clock = clock
        self.on_tally: Callable[[str, str, int], None] = lambda name, organization, amount: None
        """Called in any thread with each count of committed work: its name, the slug of an organization, the amount."""
        self.retries: Counter[str] = Counter()
        """Transactions that were run again, by the SQLSTATE of the error; `lost` for a lost connection."""
        self._retries_lock = threading.Lock()
        self._readers = Pool("readers", self.driver.readers + 1, lambda: self.driver.connect(False))
        self._writers = Pool("writers", self.driver.writers, lambda: self.driver.connect(True))
        self.pools = [self._readers, self._writers]
        """The pools of connections, each with its name, size and connections in use."""
        self._busy_at_s = float("-inf")
        """When a transaction last could not begin, since another process kept SQLite's one lock."""

    def now_parameter(self) -> int | None:
        """Return the parameter `now`: the injected clock's value; else none on PostgreSQL, which uses its own."""
        if self._clock:
            return self._clock()
        return system_clock() if self.is_sqlite else None

    def clock(self) -> int:
        """Return the present instant by this process's clock, for values that no other process compares."""
        return self._clock() if self._clock else system_clock()

    @property
    def is_sqlite(self) -> bool:
        return self.dialect.name == "sqlite"

    def open_readers(self, size: int, *, name: str, statement_timeout_s: float | None = None) -> Readers:
        """Return at most so many connections for reads, opened when needed and closed with the database.

        Args:
            name: of the pool, for metrics.
            statement_timeout_s: seconds after which a statement is ended; by default as for every connection.
        """
        pool = self.open_pool(name, size, lambda: self.driver.connect(False, statement_timeout_s=statement_timeout_s))
        return Readers(self, pool)

    def open_pool(self, name: str, size: int, connect: Callable[[], Connection]) -> Pool:
        """Return at most so many connections, opened by `connect` when needed and closed with the database."""
        pool = Pool(name, size, connect)
        self.pools.append(pool)
        return pool

    def has_own_sessions(self) -> bool:
        """Return whether a connection of the pool is the only client of its session: no pooler is between."""
        with self.translating_errors(), self._readers.connection() as connection:
            return connection.is_own_session

    def reading(self) -> AbstractContextManager[Tx]:
        """Lend a connection for reads; each statement sees the newest commit."""
        return Readers(self, self._readers).reading()

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """Open a transaction, committed at the end of the block and rolled back when an exception leaves it."""
        with self.translating_errors(), self._transaction() as tx:
            yield tx

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn a driver's error into the error that clients get, and log a fault below the database."""
        try:
            yield
        except BookingError:
            raise
        except Exception as error:
            translated = self.driver.translate(error)
            if translated is None:
                raise
            if isinstance(translated, Unavailable) and translated.fault:
                text = str(error).partition("\n")[0]
                self.faults.note(logging.ERROR, translated.fault, f"503 for now, {translated.fault}: {text}")
            raise translated from error

    @contextmanager
    def _transaction(self, writers: Pool | None = None) -> Iterator[Tx]:
        asked_s, pool = time.monotonic(), writers or self._writers
        with pool.connection() as connection:
            self._begin(connection, asked_s)
            tx = Tx(self, connection)
            try:
                yield tx
                tx.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to report
                    connection.rollback()
                raise

    def _begin(self, connection: Connection, asked_s: float) -> None:
        """Begin a transaction. Transactions that wait for SQLite's lock are refused together: if each waited its full
        time after the other, they would be refused later and later."""
        if self._busy_at_s > asked_s:
            raise Unavailable(for_all=True)
        try:
            connection.begin()
        except Exception as error:
            if is_outage(self.driver.translate(error) or error):
                self._busy_at_s = time.monotonic()
            raise

    def open_lane(self, size: int, *, name: str, lock_timeout_ms: int | None = None) -> Pool:
        """Return connections for some writes alone: other writes that wait for locks cannot hold all of them.

        SQLite has one writer: there it is the connection of all writes.

        Args:
            name: of the pool, for metrics.
            lock_timeout_ms: how long a statement on these connections waits for a lock, on PostgreSQL.
        """
        if self.is_sqlite:
            return self._writers
        return self.open_pool(name, size, lambda: self.driver.connect(True, lock_timeout_ms=lock_timeout_ms))

    def read(self, fn: Callable[[Tx], T]) -> T:
        """Return the result of `fn`, run with a connection for reads."""
        with self.reading() as tx:
            return fn(tx)

    def write(self, fn: Callable[[Tx], T], *, lane: Pool | None = None) -> T:
        """Return the result of `fn`, run in a separate transaction; run again after a conflict with another
        transaction.

        `fn` may run more than once, each time in a new transaction with nothing collected; also when the connection was
        lost at the COMMIT, and so perhaps after it. It must then find its own former changes, by an idempotency key or
        by the row that it changes. Work that a second run would do twice belongs in `write_once`.

        Args:
            lane: connections of `open_lane`; by default the connections of all other writes.

        Raises:
            Unavailable: the database cannot be reached or is too busy, or a lock was kept for too long.
        """
        return self._with_retries(fn, lane=lane)

    def write_once(self, fn: Callable[[Tx], T]) -> T:
        """Run `work` as `write` does, but never twice: for seats that are held, or a key that is created.

        A connection that is lost at the COMMIT leaves the outcome unknown. PostgreSQL remembers the outcome of each
        transaction, so it is queried by the transaction's id, which costs one statement more.

        Raises:
            Unavailable: the database cannot be reached or is too busy; or the outcome cannot be learnt.
        """
        return self._with_retries(fn, with_id=not self.is_sqlite)  # SQLite has no connection to be lost

    def _with_retries(self, fn: Callable[[Tx], T], *, with_id: bool = False, lane: Pool | None = None) -> T:
        """Run a transaction up to three times. With `with_id` a COMMIT without an answer is looked up, not repeated."""
        with self.translating_errors():
            for attempt in range(_ATTEMPTS):
                transaction_id: str | None = None
                results: list[T] = []
                try:
                    with self._transaction(lane) as tx:
                        transaction_id = tx.transaction_id() if with_id else None
                        results.append(fn(tx))
                    return results[0]
                except Exception as error:  # raised again unless another attempt can succeed
                    is_retryable = self.driver.is_retryable(error)
                    is_unknown = is_retryable or isinstance(error, Unavailable)  # the server did not respond
                    if transaction_id and results and is_unknown and self._has_committed(transaction_id):
                        return results[0]
                    if attempt == _ATTEMPTS - 1 or not is_retryable:
                        raise
                    with self._retries_lock:
                        self.retries[getattr(error, "sqlstate", None) or "lost"] += 1
                    time.sleep(random.uniform(0.001, 0.02) * (attempt + 1))
        raise Unavailable

    def _has_committed(self, transaction_id: str) -> bool:
        """Return whether the transaction of that id was committed, once it has ended."""
        until = time.monotonic() + OUTCOME_TIMEOUT_S
        while time.monotonic() < until:
            with contextlib.suppress(Unavailable):  # the server may be restarting
                row = self.write(lambda tx: tx.first(_OUTCOME, transaction_id=transaction_id))
                if row is not None and row[0] in ("committed", "aborted"):
                    return bool(row[0] == "committed")
            time.sleep(_OUTCOME_POLL_S)  # the server still runs it, since it has not noticed the lost connection
        raise Unavailable("The connection was lost, perhaps after it was done: look before you try again.")

    def dry_run(self, fn: Callable[[Tx], T]) -> T:
        """Return the result of `fn` from a transaction that is rolled back: every check is made and nothing is kept.

        Raises:
            Unavailable: as `write`.
        """
        results: list[T] = []

        def attempt(tx: Tx) -> None:
            results.append(fn(tx))
            tx.flush()  # constraints of the database are checked now
            raise _DryRun

        with contextlib.suppress(_DryRun):
            self.write(attempt)
        return results[-1]

    def write_each(self, fns: Sequence[Callable[[Tx], T]], *, once: Sequence[bool] = ()) -> list[T | Exception]:
        """Return the result of each function, or its error.

        On SQLite they share one transaction and one fsync, each in a savepoint: a failure undoes only its own writes.
        On PostgreSQL each has a separate transaction.

        Args:
            once: true for each function that `write_once` has to run; false for all by default.
        """
        if len(fns) > 1 and self.is_sqlite:
            try:
                with self.translating_errors(), self._transaction() as tx:
                    return [self._write_in_savepoint(tx, fn) for fn in fns]
            except Exception as error:  # noqa: BLE001 - all of it was rolled back, and each is run alone
                if is_outage(error):  # each would wait as long, and fail too
                    return [error] * len(fns)
        ways = [self.write_once if is_once else self.write for is_once in once or [False] * len(fns)]
        return [self._outcome(way, fn) for way, fn in zip(ways, fns, strict=True)]

    def _write_in_savepoint(self, tx: Tx, fn: Callable[[Tx], T]) -> T | Exception:
        outcome = self._outcome(tx.in_savepoint, fn)
        if not tx.is_open:  # a full disk has ended the whole transaction, with the writes of the others
            raise outcome if isinstance(outcome, Unavailable) else Unavailable()
        return outcome

    def _outcome(self, run: Callable[[Callable[[Tx], T]], T], fn: Callable[[Tx], T]) -> T | Exception:
        try:
            with self.translating_errors():
                return run(fn)
        except Exception as error:  # noqa: BLE001 - returned to the caller of that function
            return error

    def close(self) -> None:
        """Close every idle connection; a lent one is closed when it is returned."""
        for pool in self.pools:
            pool.close()
