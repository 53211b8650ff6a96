"""The statements of the floors run on PostgreSQL: on the floor's own tables, and on those of the service."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import make_url

from bench import floor_sql


@pytest.fixture
def connection(fresh_database_url: str, backend: str) -> Iterator[psycopg.Connection[Any]]:
    if backend != "postgresql":
        pytest.skip("the floors run on PostgreSQL")
    address = make_url(fresh_database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(**conninfo_to_dict(address), autocommit=True) as opened:
        yield opened


def test_the_one_statement_of_a_booking_writes_it_with_its_events_and_its_answer(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("CREATE SCHEMA floor")
    connection.execute("SET search_path = floor")
    connection.execute(floor_sql.FLOOR_SCHEMA)  # type: ignore[arg-type]
    connection.execute(floor_sql.FILL_FLOOR.format(organizations=1, departures=1))  # type: ignore[arg-type]
    one, text = floor_sql.numbered_id(1), "x"
    values: dict[str, Any] = dict.fromkeys(floor_sql.BOOK_ARGUMENTS, text) | {"org": one, "departure": one}
    ids = {name: str(uuid.uuid4()) for name in ("booking", "created", "confirmed")}
    kept = connection.execute(
        floor_sql.book_psycopg(),  # type: ignore[arg-type]
        values | ids | {"seats": 2, "total": 100},
    ).fetchall()
    assert kept == [("x1x",)]
    for table, rows in (("booking", 1), ("booking_line", 1), ("event", 2), ("idempotency", 1)):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,)  # type: ignore[arg-type]


def test_the_reads_parse_on_the_tables_of_the_service(connection: psycopg.Connection[Any]) -> None:
    one = str(uuid.uuid4())
    values = {"org": one, "limit": 10, "before": 0, "id": one, "from": 0, "until": 1}
    for read in (floor_sql.BOOKINGS, floor_sql.BOOKINGS_BEFORE, floor_sql.AVAILABILITY):
        assert connection.execute("EXPLAIN " + read.sql, values).fetchall()  # type: ignore[operator]
