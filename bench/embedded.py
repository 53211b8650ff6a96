"""Booking on SQLite, compared with writing the rows of a booking with the standard library's sqlite3."""

import json
import sqlite3
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from bench import embedded_floor, floors
from bench.asking import answer, answers
from bench.creates import CREATED, ENDPOINTS
from bench.kinds import Workload
from bench.load import FRESH, Request
from bench.measure import HttpSide
from bench.processes import Server
from bench.service import Service, Shop, booking_body
from bench.stage import Stage

DEPARTURES = 256


def build(stage: Stage, stack: ExitStack) -> Sequence[HttpSide]:
    """Return the service on one file, and the floor on a copy of it, made after every guest had booked once."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sqlite-")))
    ours, theirs = folder / "booking.db", folder / "floor.db"
    service = Service(f"sqlite:///{ours}")
    (shop,) = service.open_shops(1, DEPARTURES)
    service.listen([shop], [service.NOWHERE] * ENDPOINTS)
    server = stack.enter_context(service.serve())
    answers(server, shop.bookings())
    pattern = folder / "pattern.json"
    pattern.write_text(json.dumps(_pattern(server, shop, ours, theirs)))
    settings = {"BENCH_SQLITE": str(theirs), "BENCH_PATTERN": str(pattern)}
    floor = stack.enter_context(floors.serve("book", module=embedded_floor.__name__, env=settings))
    return [
        stage.side("service", server, shop.bookings(), CREATED, database=False),
        stage.side("stdlib sqlite3, what waits together", floor, _bookings(shop), CREATED, database=False),
    ]


def _bookings(shop: Shop) -> list[Request]:
    return [replace(request, path="/bookings", headers={"Idempotency-Key": FRESH}) for request in shop.bookings()]


def _pattern(server: Server, shop: Shop, ours: Path, theirs: Path) -> dict[str, object]:
    """Return the rows that one more booking of a known customer writes; `theirs` is the database before it."""
    request, key = shop.bookings()[0], uuid.uuid4().hex
    _copy(ours, theirs)
    body = json.dumps(booking_body(shop.departures[0], 0))
    made = answer(server, replace(request, headers=request.headers | {"Idempotency-Key": key}, body=body))
    after = theirs.with_suffix(".after")
    _copy(ours, after)
    with closing(sqlite3.connect(after)) as database:
        database.execute("ATTACH ? AS before", (str(theirs),))
        rows = {table: _new_rows(database, table) for table in _tables(database)}
    known = {shop.departures[0], made["departure"]["id"], made["experience"]["id"]}
    rows = {table: new for table, new in rows.items() if new}
    with closing(sqlite3.connect(theirs)) as database:
        known |= _ids(database)
    found = {value for new in rows.values() for row in new for value in row.values() if isinstance(value, str)}
    return {
        "rows": rows,
        "tokens": [key, *sorted(filter(_is_id, found - known))],
        "departure": shop.departures[0],
        "answer": made,
    }


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as database, closing(sqlite3.connect(target)) as copy:
        database.backup(copy)


def _tables(database: sqlite3.Connection) -> list[str]:
    """Return the tables in the order of their creation, parents before children."""
    named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    return [name for (name,) in database.execute(named)]


def _new_rows(database: sqlite3.Connection, table: str) -> list[dict[str, object]]:
    """Return the rows whose primary key is new."""
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    key = ", ".join(row[1] for row in columns if row[5])
    found = database.execute(f"SELECT * FROM {table} WHERE ({key}) NOT IN (SELECT {key} FROM before.{table})")
    return [dict(zip((row[1] for row in columns), values, strict=True)) for values in found]


def _ids(database: sqlite3.Connection) -> set[str]:
    """Return every id of the database."""
    found: set[str] = set()
    for table in _tables(database):
        if any(row[1] == "id" for row in database.execute(f"PRAGMA table_info({table})")):
            found |= {str(value) for (value,) in database.execute(f"SELECT id FROM {table}")}
    return found


def _is_id(value: str) -> bool:
    return len(value) == 36 and value.count("-") == 4


ENTRIES = (
    Workload(
        "create-sqlite",
        "POST /bookings on SQLite, 1 process",
        "the same rows by stdlib sqlite3 behind Starlette, WAL and synchronous=FULL, one writer",
        1.0,
        build,
    ),
)
