"""Booking under load on both databases."""

import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from bench import floors, sqlite_floor
from bench.floor_sql import numbered_id
from bench.measure import CREATED, RATE, Entry, Goal, Sides, entry, under_load
from bench.service import Service, Shop, answers, bookings_of
from bench.stage import DEPARTURES, ENDPOINTS, Stage

DEPARTURES_SQLITE = 256


def creating(name: str, organizations: int, ratio: float) -> Entry:
    """Make the entry of bookings on PostgreSQL, beside one statement for each in threads of one process."""
    departures = tuple(map(numbered_id, range(1, DEPARTURES // organizations + 1)))

    @entry(name, f"POST /bookings, organizations: {organizations}", Goal(RATE, ratio))
    def build(stage: Stage, stack: ExitStack) -> Sides:
        service, shops = stage.shops(organizations)
        # A key of the floor is the organization's id.
        bare_shops = [Shop(key, key, departures) for key in map(numbered_id, range(1, organizations + 1))]
        server = stack.enter_context(service.serve())
        floor = stack.enter_context(floors.serve("book", stage.floor(organizations)))
        return {
            "service": under_load(server, bookings_of(shops), CREATED, stage.postgres),
            "one statement": under_load(floor, bookings_of(bare_shops), CREATED, stage.postgres),
        }

    return build


@entry("create-sqlite", "POST /bookings on SQLite", Goal(RATE, 1.0))
def create_sqlite(stage: Stage, stack: ExitStack) -> Sides:
    """Start the service on one file, and the floor on a copy of it, made after every guest had booked twice."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sqlite-")))
    service_file, floor_file = folder / "booking.db", folder / "floor.db"
    service = Service(f"sqlite:///{service_file}")
    shop = service.open_shop(DEPARTURES_SQLITE, urls=[service.NOWHERE] * ENDPOINTS)
    server = stack.enter_context(service.serve())
    answers(server, shop.bookings() * 2)
    with closing(sqlite3.connect(service_file)) as database, closing(sqlite3.connect(floor_file)) as copy:
        database.backup(copy)
    floor = stack.enter_context(floors.serve("book", str(floor_file), module=sqlite_floor.__name__))
    return {
        "service": under_load(server, shop.bookings(), CREATED),
        "stdlib sqlite3": under_load(floor, shop.bookings(), CREATED),
    }


ENTRIES = (creating("create-64", 64, 0.6), creating("create-1", 1, 1.0), create_sqlite)
