"""Fills an organization with rows: a million bookings, 100,000 departures and two million events in minutes.

`python -m bench.fill --database-url URL --org SLUG --bookings 1000000 --departures 100000`, with a progress bar, into a
database at this release's schema (`booking db upgrade`) that is PostgreSQL (by COPY) or SQLite. The organization is
created if it does not exist; an organization with bookings is refused. `filling` describes the rows.
"""

import argparse
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any, Protocol

import psycopg
from psycopg.sql import SQL, Identifier
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.filling import COLUMNS, DAYS, DEPARTURES, FIRST_DAY, Amounts, Rows

__all__ = ["DAYS", "DEPARTURES", "FIRST_DAY", "Amounts", "count", "create", "created_at", "fill"]

BATCH = 5_000
"""Rows between two steps of the progress bar, and in one statement of SQLite."""

Wrote = Callable[[str, int], None]
"""Called with the number of written rows of a table."""

_ORGANIZATION = """
INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)
VALUES ({0}, {0}, 'Filled', 'Europe/Oslo', 'NOK', 0, 0)
"""
_COUNTERS = """
INSERT INTO counters (organization_id, last_booking_number, last_event_sequence) VALUES ({0}, {0}, {0})
ON CONFLICT (organization_id) DO UPDATE
SET last_booking_number = excluded.last_booking_number, last_event_sequence = excluded.last_event_sequence
"""


class Sink(Protocol):
    """A database for rows; everything is committed at the end of its block."""

    def run(self, sql: str, *arguments: Any) -> list[Any]:
        """Run a statement, with {0} for each argument."""
        ...

    def take(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]], wrote: Wrote) -> None: ...

    def settle(self) -> None:
        """Update the planner's statistics."""
        ...


def create(url: str, slug: str) -> None:
    """Create the service's tables from their definition, and an empty organization, without the service."""
    from sqlalchemy import create_engine

    from booking_core.db.tables import metadata

    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    metadata.create_all(engine)
    engine.dispose()
    with _sink(url) as sink:
        _organization(sink, slug)


def fill(url: str, slug: str, amounts: Amounts, wrote: Wrote = lambda table, rows: None) -> None:
    """Fill an organization without bookings."""
    with _sink(url) as sink:
        organization_id = _organization(sink, slug)
        if sink.run("SELECT 1 FROM bookings WHERE organization_id = {0} LIMIT 1", organization_id):
            raise SystemExit(f"{slug} has bookings already: name another organization")
        rows = Rows(organization_id, amounts)
        for table, columns in COLUMNS.items():
            sink.take(table, columns, rows.of(table), wrote)
        sink.run(_COUNTERS, organization_id, amounts.bookings, amounts.event_count)
    with _sink(url) as sink:
        sink.settle()


def count(url: str, table: str) -> int:
    """Return the number of rows of a table."""
    with _sink(url) as sink:
        return int(sink.run(f"SELECT count(*) FROM {table}")[0][0])


def created_at(url: str, slug: str, booking_id: str) -> int:
    """Return the created_at of a booking, in microseconds, the sort key of the lists."""
    with _sink(url) as sink:
        (row,) = sink.run(
            "SELECT b.created_at FROM bookings b JOIN organizations o ON o.id = b.organization_id"
            " WHERE o.slug = {0} AND b.id = {0}",
            slug,
            booking_id,
        )
    return int(row[0])


def _organization(sink: Sink, slug: str) -> str:
    if not sink.run("SELECT 1 FROM organizations WHERE slug = {0}", slug):
        sink.run(_ORGANIZATION, str(uuid.uuid4()), slug)
    return str(sink.run("SELECT id FROM organizations WHERE slug = {0}", slug)[0][0])


# Databases -------------------------------------------------------------------------------------------------------


def _sink(url: str) -> AbstractContextManager[Sink]:
    if url.startswith("sqlite:///"):
        return _sqlite(url.removeprefix("sqlite:///"))
    return _postgres(url.replace("postgresql+psycopg://", "postgresql://", 1))


@contextmanager
def _postgres(url: str) -> Iterator[Sink]:
    with psycopg.connect(url) as connection:
        yield _Postgres(connection)


class _Postgres:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, sql: str, *arguments: Any) -> list[Any]:
        cursor = self._connection.execute(sql.replace("{0}", "%s"), arguments)
        return cursor.fetchall() if cursor.description else []

    def take(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]], wrote: Wrote) -> None:
        names = SQL(", ").join(map(Identifier, columns))
        copying = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table), names)
        with self._connection.cursor() as cursor, cursor.copy(copying) as copy:
            for batch in _batches(rows):
                for row in batch:
                    copy.write_row(row)
                wrote(table, len(batch))

    def settle(self) -> None:
        self._connection.execute("ANALYZE")


@contextmanager
def _sqlite(path: str) -> Iterator[Sink]:
    connection = sqlite3.connect(path)
    try:
        with connection:
            yield _Sqlite(connection)
    finally:
        connection.close()


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *arguments: Any) -> list[Any]:
        return self._connection.execute(sql.replace("{0}", "?"), arguments).fetchall()

    def take(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]], wrote: Wrote) -> None:
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        for batch in _batches(rows):
            self._connection.executemany(statement, batch)
            wrote(table, len(batch))

    def settle(self) -> None:
        self._connection.execute("ANALYZE")


def _batches(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    waiting = iter(rows)
    while batch := list(islice(waiting, BATCH)):
        yield batch


# Command line ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Fill as the options say, and show the progress."""
    options = _options()
    amounts = Amounts(options.bookings, options.departures, options.events)
    columns = [TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        bars = {table: progress.add_task(table, total=rows) for table, rows in amounts.rows().items()}
        fill(options.database_url, options.org, amounts, lambda table, rows: progress.advance(bars[table], rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database-url", required=True, metavar="URL", help="postgresql://… or sqlite:///FILE")
    parser.add_argument("--org", default="filled", metavar="SLUG", help="the organization; made when it is missing")
    parser.add_argument("--bookings", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--departures", type=int, default=100_000, metavar="N", help="in 92 days from 2031-06-01 on")
    parser.add_argument("--events", type=int, metavar="N", help="at most two for each booking, which is the default")
    options = parser.parse_args()
    if options.bookings < 1 or options.departures < 1 or (options.events or 0) < 0:
        parser.error("numbers must be positive")
    return options


if __name__ == "__main__":
    main()
