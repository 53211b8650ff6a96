"""The floor of booking on SQLite: the rows of a booking of the service, written with the standard library's sqlite3.

The pattern is a real booking: every row that it added, in the service's tables with all their indexes, keys and checks.
For each request, the ids, the numbers and the departure in it are replaced, and the rows are written. One thread
writes, and commits waiting bookings together, up to 32, with WAL and synchronous=FULL.
"""

import asyncio
import json
import os
import queue
import sqlite3
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

NUMBERED = {"booking_number": 1, "sequence": 2, "event_sequence": 2}
"""Columns with dense numbers, and the step for one booking."""
BATCH = 32
LONG = 200
"""Longer texts are not searched for ids: no unique value is so long."""

Waiting = tuple[str, "asyncio.Future[None]"]


@dataclass(frozen=True, slots=True)
class Table:
    """The statement for one row of the pattern, and the functions that make its values for a request."""

    statement: str
    values: list[Any]
    tokens: list[tuple[int, str]]
    """The place of a value that contains a token of the pattern."""
    numbers: list[tuple[int, int]]
    """The place of a value that is a number, and its step for one booking."""
    departures: list[int]


class Pattern:
    """A booking's rows, to be written repeatedly."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text())
        self._tokens: list[str] = raw["tokens"]
        self._departure: str = raw["departure"]
        self.answer: bytes = orjson.dumps(raw["answer"])
        self.tables = [self._table(table, row) for table, rows in raw["rows"].items() for row in rows]
        self.organization_id = next(iter(raw["rows"]["bookings"]))["organization_id"]

    def _table(self, table: str, row: dict[str, Any]) -> Table:
        values = list(row.values())
        return Table(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            values,
            [(at, token) for at, value in enumerate(values) for token in self._tokens if _holds(value, token)],
            [(at, NUMBERED[name]) for at, name in enumerate(row) if name in NUMBERED],
            [at for at, value in enumerate(values) if value == self._departure],
        )

    def rows(self, bookings: Sequence[tuple[int, str]]) -> list[list[list[Any]]]:
        """Return for each table of the pattern the values of these bookings, each with its number and its departure."""
        fresh = [{token: _like(token) for token in self._tokens} for _ in bookings]
        return [
            [_filled(table, number, departure, ids) for (number, departure), ids in zip(bookings, fresh, strict=True)]
            for table in self.tables
        ]


def _filled(table: Table, number: int, departure: str, ids: dict[str, str]) -> list[Any]:
    values = table.values.copy()
    for at, token in table.tokens:
        values[at] = values[at].replace(token, ids[token])
    for at, step in table.numbers:
        values[at] += number * step
    for at in table.departures:
        values[at] = departure
    return values


def _holds(value: Any, token: str) -> bool:
    return isinstance(value, str) and len(value) < LONG and token in value


def _like(token: str) -> str:
    return str(uuid.uuid4()) if "-" in token else uuid.uuid4().hex


class Writer:
    """The single writing thread."""

    def __init__(self, path: str, pattern: Pattern, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._pattern = pattern
        self._loop = loop
        self._written = 0
        self.waiting: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        database = sqlite3.connect(self._path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            database.execute(f"PRAGMA {pragma}")
        while True:
            taken = [self.waiting.get()]
            while len(taken) < BATCH and not self.waiting.empty():
                taken.append(self.waiting.get())
            self._write(database, [departure for departure, _ in taken])
            self._loop.call_soon_threadsafe(_resolve, [future for _, future in taken])

    def _write(self, database: sqlite3.Connection, departures: Sequence[str]) -> None:
        numbered = [(self._written + at, departure) for at, departure in enumerate(departures, 1)]
        organization_id, count = self._pattern.organization_id, len(departures)
        database.execute("BEGIN IMMEDIATE")
        database.executemany(
            "UPDATE departures SET seats_taken = seats_taken + 1 WHERE organization_id = ? AND id = ?",
            [(organization_id, departure) for departure in departures],
        )
        database.execute(
            "UPDATE counters SET last_booking_number = last_booking_number + ?,"
            " last_event_sequence = last_event_sequence + ? WHERE organization_id = ?",
            (count, 2 * count, organization_id),
        )
        for table, values in zip(self._pattern.tables, self._pattern.rows(numbered), strict=True):
            database.executemany(table.statement, values)
        database.execute("COMMIT")
        self._written += count


def _resolve(futures: Sequence["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def book() -> Starlette:
    """Create the application. Its response is the pattern's: a floor does not read its rows."""
    pattern = Pattern(Path(os.environ["BENCH_PATTERN"]))
    writers: list[Writer] = []

    async def answer(request: Request) -> Response:
        wanted, loop = orjson.loads(await request.body()), asyncio.get_running_loop()
        if not writers:
            writers.append(Writer(os.environ["BENCH_SQLITE"], pattern, loop))
        written: asyncio.Future[None] = loop.create_future()
        writers[0].waiting.put((wanted["experience_date_id"], written))
        await written
        return Response(pattern.answer, 201, media_type="application/json")

    return Starlette(routes=[Route("/bookings", answer, methods=["POST"])])
