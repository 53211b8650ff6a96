"""Databases of PostgreSQL that tests have one after the other, each time as a new one would be.

A new database costs a third of a second of a processor, most of it for catalogs that are the same in each. Here a
database is emptied after a test and lent to the next one, unless the test changed more than rows.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

_CATALOGS = (
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_constraint",
    "pg_extension",
    "pg_index",
    "pg_namespace",
    "pg_proc",
    "pg_trigger",
    "pg_type",
)
_SCHEMA = " UNION ALL ".join(
    f"SELECT '{name}', count(*), max(xmin::text::bigint) FROM pg_catalog.{name}" for name in _CATALOGS
)
"""The count of each catalog's rows, and the last transaction that wrote one: DDL changes either."""
_SETTINGS = "SELECT setrole::text, setconfig::text FROM pg_db_role_setting ORDER BY 1"
_TABLES = "SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
"""A statement of a client that was killed goes on until it is ended."""
_MAY_EMPTY = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
"""Rows are deleted in any order, whatever refers to them, which takes a superuser."""

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class _Lent:
    """A database, with its schema and its rows when it was new."""

    url: str
    schema: Rows
    rows: Mapping[str, str]
    """The rows of each table, as JSON."""


@dataclass
class EmptiedDatabases:
    """Lends databases that `make` made."""

    make: Callable[[], str]
    _idle: list[_Lent] = field(default_factory=list)

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Yield the URL of a database that is as new, and take it back at the end."""
        lent = self._idle.pop() if self._idle else _look_at(self.make())
        try:
            yield lent.url
        finally:
            if _empty(lent):
                self._idle.append(lent)


def _look_at(url: str) -> _Lent:
    with psycopg.connect(url) as connection:
        tables = [str(name) for (name,) in connection.execute(_TABLES)]
        rows = {each: f"SELECT coalesce(json_agg(t), '[]')::text FROM {each} t" for each in tables}
        found = {each: connection.execute(text).fetchall()[0][0] for each, text in rows.items()}  # type: ignore[call-overload]
        return _Lent(url, _schema_of(connection), found)


def _schema_of(connection: psycopg.Connection) -> Rows:
    return [*connection.execute(_SCHEMA), *connection.execute(_SETTINGS)]  # type: ignore[call-overload]


def _empty(lent: _Lent) -> bool:
    """Give the tables the rows that they had, and return whether the database can be lent again."""
    try:
        with psycopg.connect(lent.url) as connection:
            if connection.execute(_MAY_EMPTY).fetchone() != (True,):
                return False
            connection.execute(_END_OTHERS)
            if _schema_of(connection) != lent.schema:
                return False
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(";".join(f"DELETE FROM {each}" for each in lent.rows))  # type: ignore[call-overload]
            for table, rows in lent.rows.items():
                if rows != "[]":
                    insert = f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %s)"
                    connection.execute(insert, [rows])  # type: ignore[call-overload]
            return True
    except psycopg.OperationalError:
        return False  # the test dropped it, or closed it to others
