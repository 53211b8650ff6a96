"""Faults below a database, such as a full disk: neither a retry nor a change of the request helps."""

import sqlite3
from collections.abc import Mapping
from enum import StrEnum


class Fault(StrEnum):
    """A fault, in the words of log lines and of the command line."""

    FULL = "the disk is full"
    READ_ONLY = "the database takes no writes"
    DISK = "the disk cannot be read or written"
    DAMAGED = "the database is damaged"
    NOT_OPENED = "the database file cannot be opened"
    EXHAUSTED = "the database server is out of memory or of connections"


_OF_SQLITE: Mapping[int, Fault] = {
    sqlite3.SQLITE_FULL: Fault.FULL,
    sqlite3.SQLITE_READONLY: Fault.READ_ONLY,
    sqlite3.SQLITE_IOERR: Fault.DISK,
    sqlite3.SQLITE_CORRUPT: Fault.DAMAGED,
    sqlite3.SQLITE_NOTADB: Fault.DAMAGED,
    sqlite3.SQLITE_CANTOPEN: Fault.NOT_OPENED,
    sqlite3.SQLITE_PERM: Fault.NOT_OPENED,
}
_OF_SQLSTATE: Mapping[str, Fault] = {
    "53100": Fault.FULL,
    "25006": Fault.READ_ONLY,
    "XX001": Fault.DAMAGED,
    "XX002": Fault.DAMAGED,
}
_OF_CLASS: Mapping[str, Fault] = {"53": Fault.EXHAUSTED, "58": Fault.DISK}


class EncodingRequired(Exception):
    """The PostgreSQL database keeps text in another encoding than UTF-8.

    Without a locale, as on a minimal Debian, `createdb` makes one in SQL_ASCII: clients get its texts as bytes, and the
    server counts bytes where limits count characters.
    """

    code = "wrong_encoding"
    hint = "create a new database: createdb --encoding UTF8 --template template0 NAME"

    def __init__(self, found: str) -> None:
        super().__init__(f"The database has the encoding {found}, and the service needs UTF8.")


class SessionRequired(Exception):
    """A schema cannot be upgraded through a pooler: the lock of upgrades would stay in a session that others use."""

    code = "pooler"
    hint = "set BOOKING_DATABASE_DIRECT_URL to a URL that leads past it"

    def __init__(self) -> None:
        super().__init__("The database cannot be upgraded through a pooler.")


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code: the low byte of an extended one, such as SQLITE_BUSY_SNAPSHOT."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def of_sqlstate(state: str | None) -> Fault | None:
    """Return the fault that PostgreSQL reports with that state."""
    return _OF_SQLSTATE.get(state or "") or _OF_CLASS.get((state or "")[:2])


def fault_of(error: BaseException) -> Fault | None:
    """Return the fault that a driver's error reports, none for any other error."""
    if isinstance(error, sqlite3.Error):
        return _OF_SQLITE.get(primary_code(error))
    return of_sqlstate(getattr(error, "sqlstate", None))
