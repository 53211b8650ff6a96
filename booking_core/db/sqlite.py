"""SQLite through the standard library: one file, WAL with synchronous=FULL, one writer begun IMMEDIATE."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL, Dialect

from booking_core.base import private_files
from booking_core.base.errors import Unavailable
from booking_core.db.driver import PipelineStep, fault_of, primary_code
from booking_core.db.statements import SQLITE, Compiled, Row

BUSY_TIMEOUT_S = 3.0
LOOK_S = 0.004
"""SQLite's own wait for the writer's lock, within which it looks every millisecond or two. In a long wait it looks ten
times a second, and seldom finds the lock free between two transactions of another process."""
HELD_MAX_S = 0.01
"""A process that has held the lock for longer than it left it free, by this much, leaves it free before it goes on."""
FREE_MAX_S = 0.05
"""The longest pause: a process that waits looks every few milliseconds."""
_STEPS_BETWEEN_CHECKS = 50_000
"""Steps of the virtual machine between two looks at the clock: about a millisecond. A page of a list takes fewer."""
_SUSPECT = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)


def memory_uri(path: Path) -> str:
    """Return what `sqlite3.connect` opens as the database in memory of that name, with `uri=True`."""
    return f"file:{path}?vfs=memdb"


class WriterTurns:
    """Leaves the lock of the file to other processes for as long as this one has held it.

    A process that waits for the lock can only look whether it is free, again and again. So it seldom finds it between
    two transactions of a process that begins the next one at once, such as an import or a purge.

    Args:
        clock: returns monotonic seconds.
        sleep: sleeps for the given number of seconds.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._held_s = 0.0
        """Seconds of holding the lock, less the seconds since when it was free."""
        self._since_s = clock()
        """When the lock was last taken or released."""

    def before(self) -> None:
        """Pause before a transaction if it is the turn of others."""
        with self._lock:
            self._held_s = max(0.0, self._held_s - self._elapsed_s())
            pause_s, is_due = min(self._held_s, FREE_MAX_S), self._held_s > HELD_MAX_S
            if is_due:
                self._held_s = 0.0
        if is_due:
            self._sleep(pause_s)

    def begun(self) -> None:
        """Note that the lock was taken."""
        with self._lock:
            self._elapsed_s()

    def ended(self) -> None:
        """Note that the lock was released."""
        with self._lock:
            self._held_s += self._elapsed_s()

    def _elapsed_s(self) -> float:
        """Return the seconds since the last note, and start again."""
        now_s = self._clock()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        return elapsed_s


class SqliteConnection:
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def __init__(
        self,
        path: Path,
        *,
        writable: bool,
        checkpoints: bool,
        in_memory: bool = False,
        statement_timeout_s: float | None = None,
        turns: WriterTurns | None = None,
    ) -> None:
        if not in_memory:
            private_files.make_file(path)  # SQLite gives the log and the index beside it the same mode
        self._raw = sqlite3.connect(
            memory_uri(path) if in_memory else path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
            uri=in_memory,
        )
        self._is_suspect = False
        self._statement_timeout_s = statement_timeout_s
        self._until_s = 0.0
        self._turns = turns
        try:
            self._prepare(writable=writable, checkpoints=checkpoints)
        except BaseException:  # no caller has the connection yet, so none could close it
            self._raw.close()
            raise

    def _prepare(self, *, writable: bool, checkpoints: bool) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-32768"):
            self._raw.execute(f"PRAGMA {pragma}")
        if not checkpoints:
            self._raw.execute("PRAGMA wal_autocheckpoint=0")
        if writable:
            self._raw.execute(f"PRAGMA busy_timeout={int(LOOK_S * 1000)}")
        else:
            self._raw.execute("PRAGMA query_only=ON")
        if self._statement_timeout_s:
            self._raw.set_progress_handler(self._is_over, _STEPS_BETWEEN_CHECKS)

    def _is_over(self) -> bool:
        """Return True if the statement is to be interrupted."""
        return time.monotonic() > self._until_s

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """Run a statement and return its rows and the number of affected rows."""
        if self._statement_timeout_s:
            self._until_s = time.monotonic() + self._statement_timeout_s
        cursor = self._run(self._raw.execute, compiled.text, parameters)
        return self._run(cursor.fetchall), cursor.rowcount

    def _run(self, run: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call of the driver, and note an error that may come from the open file."""
        try:
            return run(*arguments)
        except sqlite3.Error as error:
            self._is_suspect |= primary_code(error) in _SUSPECT
            raise

    def execute_pipeline(self, steps: Sequence[PipelineStep]) -> list[tuple[list[Row], int]]:
        """Run the statements in order, and return the rows and the number of affected rows of each."""
        return [self.execute(*step) for step in steps]

    def execute_many(self, compiled: Compiled, rows: list[dict[str, Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self._run(self._raw.executemany, compiled.text, rows)

    def command(self, text: str) -> None:
        """Run a statement without parameters and rows, such as COMMIT."""
        self._run(self._raw.execute, text)

    def begin(self) -> None:
        if self._turns:
            self._turns.before()
        until_s = time.monotonic() + BUSY_TIMEOUT_S
        while not self.in_transaction:
            try:
                self.command("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:  # another process has the lock
                if not _is_busy(error) or time.monotonic() >= until_s:
                    raise
        if self._turns:
            self._turns.begun()

    def commit(self, last: PipelineStep | None = None) -> None:
        """End the transaction, after a last statement whose rows are not read."""
        if last:
            self.execute(*last)
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, command: str) -> None:
        self.command(command)
        if self._turns:
            self._turns.ended()

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    @property
    def broken(self) -> bool:
        """Return True if an error may come from the open file: a file opened on a read-only disk stays read-only on
        this connection."""
        return self._is_suspect

    @property
    def was_closed_by_server(self) -> bool:
        return False

    @property
    def is_own_session(self) -> bool:
        return True

    def without_statement_timeout(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def allow_pauses(self) -> None:
        """Do nothing: no transaction is ended for a pause."""

    def close(self) -> None:
        self._raw.close()


class SqliteDriver:
    """Opens connections to one database and classifies its errors.

    The database is a file, or with `?vfs=memdb` in the URL one in the memory of this process, which all connections to
    its absolute path share and which ends with the last of them.
    """

    dialect: Dialect = SQLITE
    readers = 2
    """Statements that a process reads with at once: more only compete for the interpreter."""
    writers = 1

    def __init__(self, url: URL) -> None:
        self.path = Path(url.database or "")
        self._in_memory = url.query.get("vfs") == "memdb"
        self._turns = WriterTurns()
        self.checkpoints = False
        """Whether connections run checkpoints: only connections of the serving process, since before SQLite 3.51.3 two
        processes that run them at once may corrupt the log."""

    def connect(
        self, writable: bool, *, statement_timeout_s: float | None = None, lock_timeout_ms: int | None = None
    ) -> SqliteConnection:
        """Open a connection.

        Args:
            statement_timeout_s: seconds after which a statement is interrupted.
            lock_timeout_ms: not used: the one writer waits for the lock of the file alone.
        """
        return SqliteConnection(
            self.path,
            writable=writable,
            checkpoints=writable and self.checkpoints,
            in_memory=self._in_memory,
            statement_timeout_s=statement_timeout_s,
            turns=None if self.checkpoints else self._turns,  # the serving process answers clients that wait
        )

    def translate(self, error: Exception) -> Exception | None:
        """Return the error that a client gets; none for an error of the program."""
        fault = fault_of(error)
        if fault:
            return Unavailable(for_all=True, fault=fault)
        if self.is_timeout(error):
            return Unavailable()
        is_busy = isinstance(error, sqlite3.OperationalError) and _is_busy(error)
        return Unavailable(for_all=True) if is_busy else None  # another connection has the one lock

    def is_timeout(self, error: Exception) -> bool:
        """Return True if the error ended a statement that ran longer than it may."""
        return isinstance(error, sqlite3.OperationalError) and primary_code(error) == sqlite3.SQLITE_INTERRUPT

    def is_retryable(self, error: Exception) -> bool:
        return False  # with one writer there is no conflict


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
