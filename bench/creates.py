"""Booking under load on both databases."""

import json
import sqlite3
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from bench import floor_sql, floors, sqlite_floor
from bench.load import FRESH, Request
from bench.measure import CREATED, RATE, Entry, Goal, Sides, entry, under_load
from bench.service import Service, answers, booking_body
from bench.stage import DEPARTURES, ENDPOINTS, Stage

DEPARTURES_SQLITE = 256


def creating(name: str, organizations: int, ratio: float) -> Entry:
    """Make the entry of bookings on PostgreSQL, beside one statement for each in threads of one process."""
    measures, floor_name = f"POST /bookings, organizations: {organizations}", "one CTE statement, psycopg in threads"

    @entry(name, measures, Goal(RATE, ratio), floor=floor_name)
    def build(stage: Stage, stack: ExitStack) -> Sides:
        service, shops = stage.shops(organizations)
        requests = [request for shop in shops for request in shop.bookings()]
        server = stack.enter_context(service.serve())
        floor = stack.enter_context(floors.serve("book", database_url=stage.floor(organizations)))
        return {
            "service": under_load(server, requests, CREATED, stage.postgres),
            "one statement": under_load(floor, _floor_requests(organizations), CREATED, stage.postgres),
        }

    return build


def _floor_requests(organizations: int) -> list[Request]:
    """Return the service's bodies, with the organization's id instead of a key."""
    return [
        Request(
            "POST",
            "/bookings",
            {"x-org": floor_sql.numbered_id(organization), "Idempotency-Key": FRESH},
            json.dumps(booking_body(floor_sql.numbered_id(departure), departure)),
        )
        for organization in range(1, organizations + 1)
        for departure in range(1, DEPARTURES // organizations + 1)
    ]


@entry(
    "create-sqlite",
    "POST /bookings on SQLite",
    Goal(RATE, 1.0),
    floor="the same rows by stdlib sqlite3 behind Starlette, WAL and synchronous=FULL, one writer",
)
def create_sqlite(stage: Stage, stack: ExitStack) -> Sides:
    """Start the service on one file, and the floor on a copy of it, made after every guest had booked twice."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sqlite-")))
    ours, theirs = folder / "booking.db", folder / "floor.db"
    service = Service(f"sqlite:///{ours}")
    (shop,) = service.open_shops(1, DEPARTURES_SQLITE, urls=[service.NOWHERE] * ENDPOINTS)
    server = stack.enter_context(service.serve())
    answers(server, shop.bookings() * 2)
    with closing(sqlite3.connect(ours)) as database, closing(sqlite3.connect(theirs)) as copy:
        database.backup(copy)
    floor = stack.enter_context(floors.serve("book", module=sqlite_floor.__name__, env={"BENCH_SQLITE": str(theirs)}))
    return {
        "service": under_load(server, shop.bookings(), CREATED),
        "stdlib sqlite3": under_load(
            floor, [replace(request, path="/bookings") for request in shop.bookings()], CREATED
        ),
    }


ENTRIES = (creating("create-64", 64, 0.6), creating("create-1", 1, 1.0), create_sqlite)
