"""The floors give the service's answers, and their statements run on PostgreSQL."""

import json
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import orjson
import pytest
from support.api.api import Api
from support.databases.databases import connect
from support.world.creating import create, created
from support.world.world import DAY, FixedClock, make_world

from bench import floor_sql, sqlite_floor
from bench.fill import DEPARTURES_PER_DAY, FIRST_DAY, ZONE, fill, midnight
from bench.reads import compare
from booking_core.db.engine import Database
from booking_core.records.idempotency import Answer

on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)


@pytest.fixture
def connection(fresh_database_url: str) -> Iterator[Any]:
    with connect(fresh_database_url) as opened:
        yield opened


@on_postgresql
def test_one_statement_writes_a_booking_with_its_events_and_its_answer(connection: Any) -> None:
    connection.execute("CREATE SCHEMA floor")
    connection.execute("SET search_path = floor")
    connection.execute(floor_sql.FLOOR_SCHEMA)
    connection.execute(floor_sql.FILL_FLOOR.format(organizations=1, departures=1))
    one = floor_sql.numbered_id(1)
    ids = {name: str(uuid.uuid4()) for name in ("booking", "created", "confirmed")}
    texts = dict.fromkeys(("name", "email", "head", "tail", "key", "fingerprint"), "x")
    arguments = texts | ids | {"org": one, "departure": one, "seats": 2, "total": 100}
    assert connection.execute(floor_sql.BOOK, arguments).fetchall() == [("x1x",)]
    for table, rows in (("booking", 1), ("booking_line", 1), ("event", 2), ("idempotency", 1)):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,)


@on_postgresql
def test_the_floors_answer_as_the_service_in_a_filled_organization(api: Api, shared_database_url: str) -> None:
    fill(api.world, bookings=60)
    first, last = FIRST_DAY, FIRST_DAY + timedelta(1)
    window = {"from": midnight(first), "until": midnight(last + timedelta(1))}
    arguments = {"org": api.world.org, "limit": 25} | window
    with connect(shared_database_url) as opened:
        bookings = opened.execute(floor_sql.BOOKINGS.sql, arguments).fetchall()
        departures = opened.execute(floor_sql.AVAILABILITY.sql, arguments).fetchall()
    listed = [booking | {"manage_url": None} for booking in api.get("/bookings", limit=25).json()["data"]]
    assert len(listed) == 25
    compare(listed, orjson.loads(floor_sql.BOOKINGS.page(bookings, ZONE, 25))["data"])
    available = api.get("/availability", **{"from": str(first), "to": str(last)}).json()["data"]
    assert len(available) == 2 * DEPARTURES_PER_DAY
    compare(available, orjson.loads(floor_sql.AVAILABILITY.page(departures, ZONE))["data"])


def test_a_floor_with_another_answer_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"in row 1, \['b'\]"):
        compare([{"a": 1}, {"a": 1, "b": 2}], [{"a": 1}, {"a": 1, "b": 3}])
    with pytest.raises(RuntimeError, match="in row 0"):
        compare([], [{"a": 1}])


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_the_floor_of_sqlite_writes_the_rows_of_the_last_booking(fresh_database_url: str, clock: FixedClock) -> None:
    with closing(Database(fresh_database_url, clock=clock)) as service:
        world = make_world(service, clock)
        experience = world.experience()
        departures = [world.departure(experience, starts_at=clock() + days * DAY) for days in (2, 3)]
        for key in ("first-key", "second-key", "third-key"):
            (answer,) = created(service, [create(world, departures[0], key)])
            assert isinstance(answer, Answer)
    with closing(sqlite_floor.opened(fresh_database_url.removeprefix("sqlite:///"))) as database:
        floor = sqlite_floor.Pattern(database)
        floor.write(departures[1:] * 2)
        bookings = database.execute("SELECT booking_number, departure_id FROM bookings ORDER BY 1").fetchall()
        written = dict(database.execute("SELECT type, count(*) FROM events GROUP BY type").fetchall())
        keys = database.execute("SELECT count(DISTINCT key) FROM idempotency").fetchone()
    assert bookings == [(number, departures[number > 3]) for number in (1, 2, 3, 4, 5)]
    assert written == {"booking.created": 5, "booking.confirmed": 5, "customer.created": 1}
    assert keys == (5,)
    assert json.loads(floor.answer)["data"]["object"]["booking_number"] == 3
