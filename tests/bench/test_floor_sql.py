"""The statements of the floors run on PostgreSQL: on the floor's own tables and on the service's tables."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from support.api import Api
from support.databases import connect
from support.world import DAY

from bench import floor_sql

pytestmark = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)

FAR = 20_000 * DAY
"""Late enough for both clocks: the floor uses the database's clock, and the service of the tests a fixed one."""


@pytest.fixture
def connection(fresh_database_url: str) -> Iterator[Any]:
    with connect(fresh_database_url) as opened:
        yield opened


def test_one_statement_writes_a_booking_with_its_events_and_its_answer(connection: Any) -> None:
    connection.execute("CREATE SCHEMA floor")
    connection.execute("SET search_path = floor")
    connection.execute(floor_sql.FLOOR_SCHEMA)
    connection.execute(floor_sql.FILL_FLOOR.format(organizations=1, departures=1))
    one, text = floor_sql.numbered_id(1), "x"
    values: dict[str, Any] = dict.fromkeys(floor_sql.BOOK_ARGUMENTS, text) | {"org": one, "departure": one}
    ids = {name: str(uuid.uuid4()) for name in ("booking", "created", "confirmed")}
    kept = connection.execute(floor_sql.book_psycopg(), values | ids | {"seats": 2, "total": 100}).fetchall()
    assert kept == [("x1x",)]
    for table, rows in (("booking", 1), ("booking_line", 1), ("event", 2), ("idempotency", 1)):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,)


def test_the_reads_parse_on_the_tables_of_the_service(connection: Any) -> None:
    one = str(uuid.uuid4())
    values = {"org": one, "limit": 10, "before": 0, "id": one, "from": 0, "until": 1}
    for read in (floor_sql.BOOKINGS, floor_sql.BOOKINGS_BEFORE, floor_sql.AVAILABILITY):
        assert connection.execute("EXPLAIN " + read.sql, values).fetchall()


def test_the_floors_answer_as_the_service(api: Api, shared_database_url: str) -> None:
    world, begin = api.world, api.world.clock() + FAR
    plain = world.experience(price_from_minor=89000)
    tiers = world.experience(price_tiers="[]")
    for day, experience, price in ((30, plain, None), (31, plain, 1), (32, tiers, None), (33, tiers, 50000)):
        starts_at = begin + day * DAY
        departure = world.departure(experience, starts_at=starts_at, price_minor=price)
        if experience == plain:
            assert api.book(departure).status_code == 201
    zone, first = world.organization.timezone, datetime.fromtimestamp(begin / 1_000_000, UTC).date()
    arguments = {"org": world.org, "limit": 10, "from": begin, "until": begin + 90 * DAY}
    with connect(shared_database_url) as opened:
        bookings = opened.execute(floor_sql.BOOKINGS.sql, arguments).fetchall()
        departures = opened.execute(floor_sql.AVAILABILITY.sql, arguments).fetchall()
    listed = [booking | {"manage_url": None} for booking in api.get("/bookings", limit=10).json()["data"]]
    assert orjson.loads(floor_sql.BOOKINGS.page(bookings, zone, 10))["data"] == listed
    dates = {"from": first.isoformat(), "to": (first + timedelta(days=90)).isoformat()}
    shown = api.get("/availability", **dates).json()["data"]
    assert orjson.loads(floor_sql.AVAILABILITY.page(departures, zone))["data"] == shown
