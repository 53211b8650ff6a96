"""The interface of the two drivers, and the faults that they report.

It imports neither driver, since psycopg is not installed where only SQLite is used.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy.engine import Dialect

from booking_core.db.statements import Compiled, Row

PipelineStep = tuple[Compiled, dict[str, Any]]
"""A compiled statement and its parameters."""


class Connection(Protocol):
    """A connection in autocommit mode, with an explicit BEGIN and COMMIT."""

    def execute(self, compiled: Compiled, parameters: dict[str, Any], /) -> tuple[list[Row], int]: ...
    def execute_pipeline(self, steps: Sequence[PipelineStep], /) -> list[tuple[list[Row], int]]: ...
    def command(self, text: str, /) -> None: ...
    def begin(self) -> None: ...
    def commit(self, last: PipelineStep | None = None, /) -> None: ...
    def rollback(self) -> None: ...
    @property
    def in_transaction(self) -> bool: ...
    @property
    def broken(self) -> bool: ...
    @property
    def was_closed_by_server(self) -> bool: ...
    @property
    def is_own_session(self) -> bool: ...
    def without_statement_timeout(self) -> AbstractContextManager[None]: ...
    def allow_pauses(self) -> None: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """Opens connections to one database and classifies its errors."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def readers(self) -> int: ...
    @property
    def writers(self) -> int: ...
    def connect(
        self, writable: bool, /, *, statement_timeout_s: float | None = None, lock_timeout_ms: int | None = None
    ) -> Connection: ...
    def translate(self, error: Exception, /) -> Exception | None: ...
    def is_timeout(self, error: Exception, /) -> bool: ...
    def is_retryable(self, error: Exception, /) -> bool: ...


class DriverFault(StrEnum):
    """A fault below a database, such as a full disk, as log lines and the command line name it: neither a retry nor a
    change of the request helps."""

    FULL = "the disk is full"
    READ_ONLY = "the database takes no writes"
    DISK = "the disk cannot be read or written"
    DAMAGED = "the database is damaged"
    NOT_OPENED = "the database file cannot be opened"
    EXHAUSTED = "the database server is out of memory or of connections"


_OF_SQLITE: Mapping[int, DriverFault] = {
    sqlite3.SQLITE_FULL: DriverFault.FULL,
    sqlite3.SQLITE_READONLY: DriverFault.READ_ONLY,
    sqlite3.SQLITE_IOERR: DriverFault.DISK,
    sqlite3.SQLITE_CORRUPT: DriverFault.DAMAGED,
    sqlite3.SQLITE_NOTADB: DriverFault.DAMAGED,
    sqlite3.SQLITE_CANTOPEN: DriverFault.NOT_OPENED,
    sqlite3.SQLITE_PERM: DriverFault.NOT_OPENED,
}
_OF_SQLSTATE: Mapping[str, DriverFault] = {
    "53100": DriverFault.FULL,
    "25006": DriverFault.READ_ONLY,
    "XX001": DriverFault.DAMAGED,
    "XX002": DriverFault.DAMAGED,
}
_OF_CLASS: Mapping[str, DriverFault] = {"53": DriverFault.EXHAUSTED, "58": DriverFault.DISK}


class EncodingRequired(Exception):
    """The PostgreSQL database keeps text in another encoding than UTF-8.

    Without a locale, as on a minimal Debian, `createdb` makes one in SQL_ASCII: clients get its texts as bytes, and the
    server counts bytes where limits count characters.
    """

    code = "wrong_encoding"
    hint = "create a new database: createdb --encoding UTF8 --template template0 NAME"

    def __init__(self, encoding: str) -> None:
        super().__init__(f"The database has the encoding {encoding}, and the service needs UTF8.")


class SessionRequired(Exception):
    """A schema cannot be upgraded through a pooler: the lock of upgrades would stay in a session that others use."""

    code = "pooler"
    hint = "set BOOKING_DATABASE_DIRECT_URL to a URL that leads past it"

    def __init__(self) -> None:
        super().__init__("The database cannot be upgraded through a pooler.")


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code: the low byte of an extended one, such as SQLITE_BUSY_SNAPSHOT."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def of_sqlstate(state: str | None) -> DriverFault | None:
    """Return the fault that PostgreSQL reports with that state."""
    return _OF_SQLSTATE.get(state or "") or _OF_CLASS.get((state or "")[:2])


def fault_of(error: BaseException) -> DriverFault | None:
    """Return the fault that a driver's error reports, none for any other error."""
    if isinstance(error, sqlite3.Error):
        return _OF_SQLITE.get(primary_code(error))
    return of_sqlstate(getattr(error, "sqlstate", None))
