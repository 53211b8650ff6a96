"""Transactions, one behaviour on SQLite and on PostgreSQL.

A `Database` hands out transactions; a `Tx` runs statements. The drivers are used bare (see `statements`), in autocommit
with our own BEGIN and COMMIT, so that nothing begins a transaction by surprise.
"""

import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Table, select, text
from sqlalchemy.engine import URL, make_url

from booking_core.clock import Clock, system_clock
from booking_core.db import writes as writing
from booking_core.db.sqlite import SqliteDriver
from booking_core.db.statements import Compiled, Row, Statement, now_us
from booking_core.db.writes import Change, Writes
from booking_core.errors import BookingError, Unavailable
from booking_core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    from booking_core.db.postgres import PostgresDriver

__all__ = ["Asked", "Database", "Row", "Tx"]

T = TypeVar("T")

log = logging.getLogger("booking.database")
# A program that sets up no logging, as a command of one line does not, says by itself what failed.
logging.getLogger("booking").addHandler(logging.NullHandler())

POOL_TIMEOUT_S = 5.0
_TRIES = 3

ENDING_TIMEOUT_S = 5.0
"""How long a transaction whose connection was lost may go on in the server before nobody waits for its end any more."""
_ENDING_LOOK_S = 0.1

_NOW = Statement(lambda dialect: select(now_us(dialect)))
_NAME = Statement(text("SELECT CAST(pg_current_xact_id() AS text)"))
_ENDING = Statement(text("SELECT pg_xact_status(CAST(:name AS xid8))"))

Connection = Any
"""A `SqliteConnection` or a `PostgresConnection`: the same methods, and neither is known here, since an operator on
SQLite does not have the driver of the other."""


def _driver(url: URL) -> "SqliteDriver | PostgresDriver":
    if url.get_backend_name() == "sqlite":
        return SqliteDriver(url)
    from booking_core.db.postgres import PostgresDriver

    return PostgresDriver(url)


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """A question whose answer others do not wait for; without a statement it is answered already."""

    statement: Statement | None
    parameters: dict[str, Any]
    read: Callable[[list[Row]], T]
    """What its rows mean."""


class Tx:
    """A transaction, or for reads a connection on which each statement sees the newest commit."""

    def __init__(self, database: "Database", connection: Any) -> None:
        self._database = database
        self._connection = connection
        self._last: tuple[Compiled, dict[str, Any]] | None = None
        self.dialect = database.dialect

    def _run(self, statement: Statement, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        self.flush()
        compiled, parameters = self._ready(statement, parameters)
        result: tuple[list[Row], int] = self._connection.execute(compiled, parameters)
        return result

    def _ready(self, statement: Statement, parameters: dict[str, Any]) -> tuple[Compiled, dict[str, Any]]:
        """The statement as the driver takes it, with every parameter."""
        compiled = statement.compiled(self.dialect)
        if compiled.constants:
            parameters = compiled.constants | parameters
        if compiled.wants_now and "now" not in parameters:
            parameters["now"] = self._database.now_parameter()
        if self._database.observer:
            self._database.observer(compiled.text)
        return compiled, parameters

    def all(self, statement: Statement, **parameters: Any) -> list[Row]:
        """Every row."""
        return self._run(statement, parameters)[0]

    def together(self, *asked: Asked[Any]) -> list[Any]:
        """What each of them means, asked one after the other: on PostgreSQL at once, as one round trip. Each sees what
        was committed when its turn came, so also what was waited for by those before it."""
        self.flush()
        steps = [self._ready(each.statement, each.parameters) for each in asked if each.statement]
        found = iter(self._connection.execute_together(steps))
        return [each.read(next(found) if each.statement else []) for each in asked]

    def first(self, statement: Statement, **parameters: Any) -> Row | None:
        """The first row, or none."""
        found = self._run(statement, parameters)[0]
        return found[0] if found else None

    def run(self, statement: Statement, **parameters: Any) -> int:
        """How many rows were touched."""
        return self._run(statement, parameters)[1]

    def write(self, pending: Writes) -> None:
        """Writes all that was collected: one statement on PostgreSQL, one for each table on SQLite.

        On PostgreSQL it is sent when the transaction goes on or ends: then with the COMMIT, and an error in it is
        raised there.
        """
        if not pending.rows:
            return
        if self.dialect.name == "postgresql":
            self.flush()
            statement = writing.as_one_statement(writing.shape(pending))
            self._last = self._ready(statement, writing.as_parameters(pending))
            return
        for target, items in pending.rows.items():
            if isinstance(target, writing.Derived):
                self._run(writing.as_given_statement(target), {target.name: writing.as_json(items)})
            else:
                self._run_many(target, items)

    def flush(self) -> None:
        """Sends what was written last, for whoever will not wait for the end of the transaction."""
        last, self._last = self._last, None
        if last:
            self._connection.execute(*last)

    def commit(self) -> None:
        """Ends the transaction; what was written last goes with it."""
        if self._last:
            self._connection.commit(self._last)
        else:
            self._connection.commit()

    def _run_many(self, target: Table | Change, items: list[writing.Row]) -> None:
        compiled = writing.as_row_statement(target, tuple(items[0])).compiled(self.dialect)
        if isinstance(target, Change):
            items = [{f"_{key}": value for key, value in item.items()} for item in items]
        if self._database.observer:
            self._database.observer(compiled.text)
        self._connection.execute_many(compiled, items)

    def now(self) -> int:
        """The instant it is, by the clock that this database's processes share."""
        row = self.first(_NOW)
        assert row is not None
        return int(row[0])

    def name(self) -> str:
        """What PostgreSQL calls the transaction, and later tells by how it ended."""
        row = self.first(_NAME)
        assert row is not None
        return str(row[0])

    @property
    def is_open(self) -> bool:
        """Whether the transaction still stands."""
        return bool(self._connection.in_transaction)

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Inside, a statement may take as long as it does: on PostgreSQL that of a request is ended after seconds."""
        with self._connection.unhurried():
            yield

    def in_savepoint(self, fn: Callable[["Tx"], T]) -> T:
        """What `fn` gives; when it raises, what it did is undone and the transaction goes on."""
        self._connection.command("SAVEPOINT one_of_many")
        try:
            result = fn(self)
        except BaseException:
            if self.is_open:
                self._connection.command("ROLLBACK TO SAVEPOINT one_of_many")
                self._connection.command("RELEASE SAVEPOINT one_of_many")
            raise
        self._connection.command("RELEASE SAVEPOINT one_of_many")
        return result


class Pool:
    """Connections that are lent out, the last returned first; made when needed, up to a bound."""

    def __init__(self, size: int, connect: Callable[[], Connection]) -> None:
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._connect = connect
        self._room = threading.BoundedSemaphore(size)
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Any]:
        """A connection, for the time being.

        Raises:
            Unavailable: none came free in time.
        """
        if not self._room.acquire(timeout=POOL_TIMEOUT_S):
            raise Unavailable(for_all=True)
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._room.release()

    def _take(self) -> Any:
        """One that is alive. A server that was restarted has left all that were idle: who asks first, be it hours
        later, must not be told that it is away."""
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return self._connect()
            if not (connection.broken or connection.was_left):
                return connection
            _throw_away(connection)

    def _give_back(self, connection: Any) -> None:
        if connection.broken:
            _throw_away(connection)
            return
        self._idle.put(connection)
        if self._closed:  # perhaps just now
            self.close()

    def close(self) -> None:
        self._closed = True
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


def _throw_away(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # whatever is the matter with it  # noqa: BLE001, RUF100
        connection.close()


class _Rehearsed(Exception):
    """Ends a transaction that is to be undone."""


class Database:
    """The way into one database: reads, and writes that are tried again when another transaction was in the way."""

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.url = make_url(url)
        self.driver = _driver(self.url)
        self.dialect = self.driver.dialect
        self.observer: Callable[[str], None] | None = None
        """Sees the text of every statement; for tests that count them."""
        self.faults = RepeatedLog(log)
        """What is the matter below the database, for every request, job and command that runs into it."""
        self._clock = clock
        # One more than the readers: the API's look-up of keys never waits for their statements.
        self._readers = Pool(self.driver.readers + 1, lambda: self.driver.connect(False))
        self._writers = Pool(self.driver.writers, lambda: self.driver.connect(True))

    def now_parameter(self) -> int | None:
        """What `now` means: a clock that was passed in, else none on PostgreSQL, whose own clock then decides."""
        if self._clock:
            return self._clock()
        return system_clock() if self.is_sqlite else None

    def clock(self) -> int:
        """The instant it is, by this process; for what no other process compares."""
        return self._clock() if self._clock else system_clock()

    @property
    def is_sqlite(self) -> bool:
        return self.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Tx]:
        """A connection for reads; each statement sees the newest commit."""
        with self.translated(), self._readers.lend() as connection:
            yield Tx(self, connection)

    @contextmanager
    def writing(self) -> Iterator[Tx]:
        """One transaction: committed at the end, rolled back when anything is raised."""
        with self.translated(), self._transaction() as tx:
            yield tx

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except BookingError:
            raise
        except Exception as error:  # every driver's error is looked at; what is not ours goes on as it is
            translated = self.driver.translate(error)
            if translated is None:
                raise
            if isinstance(translated, Unavailable) and translated.fault:
                text = str(error).partition("\n")[0]
                self.faults.note(logging.ERROR, translated.fault, f"503 for now, {translated.fault}: {text}")
            raise translated from error

    @contextmanager
    def _transaction(self) -> Iterator[Tx]:
        with self._writers.lend() as connection:
            connection.begin()
            tx = Tx(self, connection)
            try:
                yield tx
                tx.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # the first error is the one to tell
                    connection.rollback()
                raise

    def read(self, fn: Callable[[Tx], T]) -> T:
        """What `fn` gives from a reading connection."""
        with self.reading() as tx:
            return fn(tx)

    def write(self, fn: Callable[[Tx], T]) -> T:
        """What `fn` gives from a transaction of its own; run again when another transaction was in its way.

        `fn` may run more than once, each time on a transaction that knows nothing of the one before; also when the
        connection was lost at the COMMIT, and so perhaps after it. It must find then what it did, by an idempotency
        key or by the row that it changes. What would be done twice is for `write_once`.

        Raises:
            Unavailable: the database is away or too busy.
        """
        return self._tried(fn)

    def write_once(self, fn: Callable[[Tx], T]) -> T:
        """The same for what a second run would do a second time: seats are held, a key is made.

        A connection that is lost at the COMMIT leaves open whether it was done. PostgreSQL remembers how each of its
        transactions ended, so it is asked, which costs each of these transactions a statement more.

        Raises:
            Unavailable: the database is away or too busy; or it cannot be learnt whether the work was done.
        """
        return self._tried(fn, is_named=not self.is_sqlite)  # SQLite has no connection to be lost

    def _tried(self, fn: Callable[[Tx], T], *, is_named: bool = False) -> T:
        """Up to three times. With `is_named` it is asked how a transaction ended whose COMMIT nobody answered."""
        with self.translated():
            for again in range(_TRIES):
                name: str | None = None
                done: list[T] = []
                try:
                    with self._transaction() as tx:
                        name = tx.name() if is_named else None
                        done.append(fn(tx))
                    return done[0]
                except Exception as error:  # only what a second look can settle is tried again
                    is_worth_it = self.driver.worth_another_try(error)
                    is_open = is_worth_it or isinstance(error, Unavailable)  # the server fell silent
                    if name and done and is_open and self._has_committed(name):
                        return done[0]
                    if again == _TRIES - 1 or not is_worth_it:
                        raise
                    time.sleep(random.uniform(0.001, 0.02) * (again + 1))
        raise Unavailable

    def _has_committed(self, name: str) -> bool:
        """How the transaction of that name ended."""
        until = time.monotonic() + ENDING_TIMEOUT_S
        while time.monotonic() < until:
            with contextlib.suppress(Unavailable):  # it may be on its way up again
                row = self.write(lambda tx: tx.first(_ENDING, name=name))
                if row is not None and row[0] in ("committed", "aborted"):
                    return bool(row[0] == "committed")
            time.sleep(_ENDING_LOOK_S)  # the server has not noticed yet that nobody is there
        raise Unavailable("The connection was lost, perhaps after it was done: look before you try again.")

    def rehearse(self, fn: Callable[[Tx], T]) -> T:
        """Return what `fn` gives from a transaction that is undone: every check is made, and nothing stays.

        Raises:
            Unavailable: as `write`.
        """
        results: list[T] = []

        def attempt(tx: Tx) -> None:
            results.append(fn(tx))
            tx.flush()  # what the database itself refuses is refused now
            raise _Rehearsed

        with contextlib.suppress(_Rehearsed):
            self.write(attempt)
        return results[-1]

    def write_each(self, fns: Sequence[Callable[[Tx], T]], *, once: Sequence[bool] = ()) -> list[T | Exception]:
        """What each of them gives, or raises.

        On SQLite they share one transaction and one fsync, each in a savepoint, so that one that fails undoes only
        itself; on PostgreSQL each has its own.

        Args:
            once: which of them a second run would do a second time (`write_once`); none unless said.
        """
        if len(fns) > 1 and self.is_sqlite:
            try:
                with self.translated():
                    return self._write_together(fns)
            except Exception as error:  # noqa: BLE001 - nothing is done, and each is tried by itself
                if isinstance(error, Unavailable) and error.for_all:  # one after the other would wait as long, in vain
                    return [error] * len(fns)
        ways = [self.write_once if is_once else self.write for is_once in once or [False] * len(fns)]
        return [self._outcome(way, fn) for way, fn in zip(ways, fns, strict=True)]

    def _write_together(self, fns: Sequence[Callable[[Tx], T]]) -> list[T | Exception]:
        with self._transaction() as tx:
            outcomes = []
            for fn in fns:
                outcome = self._outcome(tx.in_savepoint, fn)
                if not tx.is_open:  # a full disk ends the whole transaction, and with it what the others did
                    raise outcome if isinstance(outcome, Unavailable) else Unavailable()
                outcomes.append(outcome)
            return outcomes

    def _outcome(self, run: Callable[[Callable[[Tx], T]], T], fn: Callable[[Tx], T]) -> T | Exception:
        try:
            with self.translated():
                return run(fn)
        except Exception as error:  # noqa: BLE001 - given to the one caller it belongs to
            return error

    def close(self) -> None:
        """Closes every idle connection; one that is lent out is closed when it comes back."""
        self._readers.close()
        self._writers.close()
