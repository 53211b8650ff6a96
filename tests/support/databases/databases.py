"""Direct access to a database: fill tables fast, drop constraints, hold locks."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

from sqlalchemy import Table
from sqlalchemy.engine import make_url

from booking_core.db.tables import metadata
from support.receivers.receivers import wait_until

_CACHE_KIB = 256 * 1024
"""SQLite's default cache is smaller than the indexes: rows with random ids would write each page many times."""
_BUSY_S = 60
"""The seconds that a test waits for a service that writes to the same file."""


def is_sqlite(url: str) -> bool:
    return make_url(url).get_backend_name() == "sqlite"


def connect(url: str) -> Any:
    """Open a connection of the driver, in autocommit, with no foreign keys on SQLite."""
    if is_sqlite(url):
        return closing(sqlite3.connect(str(make_url(url).database), isolation_level=None, timeout=_BUSY_S))
    import psycopg

    parsed = make_url(url).set(drivername="postgresql")
    schema = parsed.query.get("schema", "public")
    plain = parsed.difference_update_query(["schema"]).render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True, options=f"-c search_path={schema}")


def run(url: str, *statements: str) -> None:
    """Run statements without parameters, each in its own transaction."""
    with connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def fill(url: str, table: Table, rows: Iterable[Mapping[str, object]]) -> None:
    """Insert many rows at once. All rows have the columns of the first."""
    iterator = iter(rows)
    first = next(iterator)
    columns = list(first)
    values = (tuple(row[name] for name in columns) for row in (first, *iterator))
    with connect(url) as connection:
        if is_sqlite(url):
            holes = ", ".join("?" * len(columns))
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("BEGIN")
            connection.executemany(f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({holes})", values)
            connection.execute("COMMIT")
            return
        with connection.cursor().copy(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)


def analyze(url: str) -> None:
    """Update the planner's statistics of the tables."""
    run(url, "ANALYZE" if is_sqlite(url) else "VACUUM ANALYZE")


def unbind(url: str) -> None:
    """Drop all constraints of all tables, but keep the rows: a test can then write invalid rows."""
    for table in metadata.tables:
        if is_sqlite(url):
            run(
                url,
                "PRAGMA legacy_alter_table=ON",
                f"CREATE TABLE unbound AS SELECT * FROM {table}",
                f"DROP TABLE {table}",
                f"ALTER TABLE unbound RENAME TO {table}",
            )
            continue
        with connect(url) as connection:
            query = (
                "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype IN ('c', 'f', 'p', 'u')"
            )
            for (name,) in connection.execute(query, (table,)).fetchall():
                connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name} CASCADE")
            unique = "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = %s::regclass AND indisunique"
            for (name,) in connection.execute(unique, [table]).fetchall():
                connection.execute(f"DROP INDEX {name}")


def departure_held(url: str, departure_id: str) -> AbstractContextManager[None]:
    """Hold the lock that a booking of the departure needs: its row on PostgreSQL, the only writer on SQLite."""
    return rows_held(url, "SELECT id FROM departures WHERE id = %s FOR UPDATE", departure_id)


def numbers_held(url: str, organization_id: str) -> AbstractContextManager[None]:
    """Hold the organization's booking numbers and event sequences, or on SQLite the only writer."""
    return rows_held(url, "SELECT 1 FROM counters WHERE organization_id = %s FOR UPDATE", organization_id)


@contextmanager
def rows_held(url: str, locking: str, *parameters: object) -> Iterator[None]:
    """Hold the locks of a statement such as `SELECT ... FOR UPDATE` in another transaction, or on SQLite the only
    writer."""
    with connect(url) as connection:
        if is_sqlite(url):
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection.autocommit = False
            connection.execute(locking, parameters)
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def wait_for_lock(url: str) -> None:
    """Wait until a transaction of this PostgreSQL database waits for a lock."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with connect(url) as connection:
        wait_until(lambda: connection.execute(waiting).fetchall(), "a transaction waits for a lock")
