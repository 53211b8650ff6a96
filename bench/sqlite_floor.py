"""The floor of booking on SQLite: the rows of a booking of the service, written with the standard library's sqlite3.

The pattern is the last booking in a database of the service: every row that it added, in tables with all their indexes,
keys and checks. For each request, the ids, the numbers and the departure in it are replaced, and the rows are written.
One thread writes, and commits waiting bookings together, up to 32, with WAL and synchronous=FULL.
"""

import asyncio
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.floors import DATABASE

NUMBERED = {"booking_number": 1, "sequence": 2, "event_sequence": 2}
"""Columns with dense numbers, and the step for one booking."""
BATCH = 32
PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON")


class Pattern:
    """A booking's rows, to be written repeatedly."""

    def __init__(self, database: sqlite3.Connection) -> None:
        rows = _last_rows(database)
        self._database, self._written = database, 0
        self._text = orjson.dumps(rows).decode()
        self._unique = [row[name] for table in rows.values() for row in table for name in ("id", "key") if name in row]
        self._statements = [_insert(table, row) for table, table_rows in rows.items() for row in table_rows]
        (booking,) = rows["bookings"]
        self._organization_id, self._departure = booking["organization_id"], booking["departure_id"]
        self.answer: bytes = rows["events"][0]["body"].encode()

    def _rows(self, number: int, departure: str) -> list[dict[str, Any]]:
        """Return the rows of one booking, in the order of the statements."""
        text = self._text.replace(self._departure, departure)
        for unique in self._unique:
            text = text.replace(unique, str(uuid.uuid4()))
        rows = [row for rows in orjson.loads(text).values() for row in rows]
        for row in rows:
            for column, step in NUMBERED.items():
                if column in row:
                    row[column] += number * step
        return rows

    def write(self, departures: Sequence[str]) -> None:
        """Write a booking of each departure in one transaction."""
        execute, organization_id, count = self._database.execute, self._organization_id, len(departures)
        bookings = [self._rows(self._written + at, departure) for at, departure in enumerate(departures, 1)]
        execute("BEGIN IMMEDIATE")
        self._database.executemany(
            "UPDATE departures SET seats_taken = seats_taken + 1 WHERE organization_id = ? AND id = ?",
            [(organization_id, departure) for departure in departures],
        )
        execute(
            "UPDATE counters SET last_booking_number = last_booking_number + ?,"
            " last_event_sequence = last_event_sequence + ? WHERE organization_id = ?",
            (count, 2 * count, organization_id),
        )
        for statement, rows in zip(self._statements, zip(*bookings, strict=True), strict=True):
            self._database.executemany(statement, rows)
        execute("COMMIT")
        self._written += count


def _last_rows(database: sqlite3.Connection) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the last booking: as many of each table as there are for one booking."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    counts = {
        table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for (table,) in database.execute(tables).fetchall()
    }
    rows_by_table = {}
    for table, count in counts.items():
        if of_booking := count // counts["bookings"]:
            rows = database.execute(f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT {of_booking}")
            columns = [column for column, *_ in rows.description]
            rows_by_table[table] = [dict(zip(columns, row, strict=True)) for row in rows]
    return rows_by_table


def _insert(table: str, row: dict[str, Any]) -> str:
    return f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{column}' for column in row)})"


def opened(path: str) -> sqlite3.Connection:
    """Open a database, for any thread; transactions begin and end by statements."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in PRAGMAS:
        database.execute(f"PRAGMA {pragma}")
    return database


def book() -> Starlette:
    """Create the application. Its response is the body of an event of the pattern, which contains the booking."""
    pattern = Pattern(opened(os.environ[DATABASE]))
    waiting: asyncio.Queue[tuple[str, asyncio.Future[None]]] = asyncio.Queue()

    async def create(request: Request) -> Response:
        booking, written = orjson.loads(await request.body()), asyncio.get_running_loop().create_future()
        waiting.put_nowait((booking["experience_date_id"], written))
        await written
        return Response(pattern.answer, 201, media_type="application/json")

    async def write() -> None:
        thread = ThreadPoolExecutor(1)
        while True:
            batch = [await waiting.get()]
            while len(batch) < BATCH and not waiting.empty():
                batch.append(waiting.get_nowait())
            departures = [departure for departure, _ in batch]
            await asyncio.get_running_loop().run_in_executor(thread, pattern.write, departures)
            for _, written in batch:
                written.set_result(None)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        writing = asyncio.create_task(write())
        yield
        writing.cancel()

    return Starlette(routes=[Route("/api/v1/bookings", create, methods=["POST"])], lifespan=lifespan)
