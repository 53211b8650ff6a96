"""SQLite through the standard library: one file, WAL with synchronous=FULL, one writer begun IMMEDIATE."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL, Dialect

from booking_core import private_files
from booking_core.db.faults import fault_of, primary_code
from booking_core.db.statements import SQLITE, Compiled, Row
from booking_core.errors import Unavailable

BUSY_TIMEOUT_S = 3.0
_SUSPECT = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)


class SqliteConnection:
    """One connection, with our own BEGIN and COMMIT."""

    def __init__(self, path: Path, *, writable: bool, checkpoints: bool) -> None:
        private_files.make_file(path)  # SQLite gives the log and the index beside it the same mode
        self._raw = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        self._is_suspect = False
        try:
            self._prepare(writable=writable, checkpoints=checkpoints)
        except BaseException:  # no caller has it yet that could close it
            self._raw.close()
            raise

    def _prepare(self, *, writable: bool, checkpoints: bool) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-32768"):
            self._raw.execute(f"PRAGMA {pragma}")
        if not writable:
            self._raw.execute("PRAGMA query_only=ON")
        if not checkpoints:
            self._raw.execute("PRAGMA wal_autocheckpoint=0")

    def execute(self, compiled: Compiled, parameters: dict[str, Any]) -> tuple[list[Row], int]:
        """The rows, and how many were touched."""
        try:
            cursor = self._raw.execute(compiled.text, parameters)
            return cursor.fetchall(), cursor.rowcount
        except sqlite3.Error as error:
            self._note(error)
            raise

    def _note(self, error: sqlite3.Error) -> None:
        self._is_suspect |= primary_code(error) in _SUSPECT

    def execute_together(self, steps: Sequence[tuple[Compiled, dict[str, Any]]]) -> list[list[Row]]:
        """The rows of each."""
        return [self.execute(*step)[0] for step in steps]

    def execute_many(self, compiled: Compiled, items: list[dict[str, Any]]) -> None:
        try:
            self._raw.executemany(compiled.text, items)
        except sqlite3.Error as error:
            self._note(error)
            raise

    def command(self, text: str) -> None:
        """A statement without parameters and rows, such as COMMIT."""
        try:
            self._raw.execute(text)
        except sqlite3.Error as error:
            self._note(error)
            raise

    def begin(self) -> None:
        self.command("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.command("COMMIT")

    def rollback(self) -> None:
        self.command("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    @property
    def broken(self) -> bool:
        """Whether what it has open may be the reason of an error: a file that was opened while its disk took no writes
        stays read-only on this connection for ever."""
        return self._is_suspect

    @property
    def was_left(self) -> bool:
        return False

    def unhurried(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._raw.close()


class SqliteDriver:
    """How connections to one file are made, and what its errors mean."""

    dialect: Dialect = SQLITE
    readers = 2
    writers = 1

    def __init__(self, url: URL) -> None:
        self.path = Path(url.database or "")
        self.checkpoints = False
        """Only the process that serves checkpoints: before 3.51.3 two that do so at once may corrupt the log."""

    def connect(self, writable: bool) -> SqliteConnection:
        return SqliteConnection(self.path, writable=writable, checkpoints=writable and self.checkpoints)

    def translate(self, error: Exception) -> Exception | None:
        """What a client is told; none for an error that is ours to mend."""
        fault = fault_of(error)
        if fault:
            return Unavailable(for_all=True, fault=fault)
        is_busy = isinstance(error, sqlite3.OperationalError) and _is_busy(error)
        return Unavailable(for_all=True) if is_busy else None  # there is one lock, and somebody else has it

    def worth_another_try(self, error: Exception) -> bool:
        return False  # one writer: nothing is ever in its way but time


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
