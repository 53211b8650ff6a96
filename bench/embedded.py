"""Booking on SQLite, compared with writing the rows of a booking with the standard library's sqlite3."""

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from bench import embedded_floor, floors
from bench.creates import CREATED
from bench.measure import RATE, Entry, Goal, HttpSide
from bench.service import Service, answers
from bench.stage import ENDPOINTS, Stage

DEPARTURES = 256


def build(stage: Stage, stack: ExitStack) -> Sequence[HttpSide]:
    """Start the service on one file, and the floor on a copy of it, made after every guest had booked twice."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sqlite-")))
    ours, theirs = folder / "booking.db", folder / "floor.db"
    service = Service(f"sqlite:///{ours}")
    (shop,) = service.open_shops(1, DEPARTURES, urls=[service.NOWHERE] * ENDPOINTS)
    server = stack.enter_context(service.serve())
    answers(server, shop.bookings() * 2)
    with closing(sqlite3.connect(ours)) as database, closing(sqlite3.connect(theirs)) as copy:
        database.backup(copy)
    floor = stack.enter_context(floors.serve("book", module=embedded_floor.__name__, env={"BENCH_SQLITE": str(theirs)}))
    bookings = [replace(request, path="/bookings") for request in shop.bookings()]
    return [
        HttpSide.of("service", server, shop.bookings(), CREATED),
        HttpSide.of("stdlib sqlite3", floor, bookings, CREATED),
    ]


ENTRIES = (
    Entry(
        "create-sqlite",
        "POST /bookings on SQLite",
        "the same rows by stdlib sqlite3 behind Starlette, WAL and synchronous=FULL, one writer",
        (Goal(RATE, 1.0),),
        build,
    ),
)
