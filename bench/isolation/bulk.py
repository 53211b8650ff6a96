"""Hundreds of thousands of rows, created in the database by one INSERT ... SELECT over a series of numbers."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table
from support.databases.databases import connect, is_sqlite
from support.world.world import ADULT, World

from booking_core.base.clock import system_clock
from booking_core.db import tables
from booking_core.models.limits import API_VERSION

_tags = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression over `n`, the number of the row, in the dialect of one database."""

    text: str


def new_ids(url: str) -> Sql:
    """Return the expression of the ids of a series of rows, which no other series has."""
    tag = next(_tags)
    if is_sqlite(url):
        return Sql(f"printf('%08x-0000-4000-8000-%012x', {tag}, n)")
    return Sql(f"('{tag:08x}-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid")


def insert(url: str, table: Table, count: int, columns: Mapping[str, Any]) -> None:
    """Insert `count` rows. A value is the same in all rows unless it is an expression."""
    values = ", ".join(_literal(url, table.c[name].type, value) for name, value in columns.items())
    names = ", ".join(f'"{name}"' for name in columns)
    series = f"generate_series(1::bigint, {count}) AS s(n)"
    if is_sqlite(url):
        series = f"(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"
    with connect(url) as connection:
        connection.execute(f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {series}")


def _literal(url: str, kind: Any, value: Any) -> str:
    if isinstance(value, Sql):
        return value.text
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    text = "'" + str(value).replace("'", "''") + "'"
    return text if is_sqlite(url) or kind is not tables.Id else f"{text}::uuid"


def value(url: str, sql: str) -> Any:
    """Return the first column of the first row."""
    with connect(url) as connection:
        row = connection.execute(sql).fetchone()
    return row[0] if row else None


def analyze(url: str) -> None:
    """Update the statistics of PostgreSQL, as autovacuum does after a while."""
    if not is_sqlite(url):
        with connect(url) as connection:
            connection.execute("ANALYZE")


# Rows of an organization -----------------------------------------------------------------------------------------

_TIMES = ("created_at", "updated_at")


def bookings(url: str, world: World, departure_id: str, experience_id: str, count: int, **over: Any) -> None:
    """Insert confirmed bookings of one seat, a second apart, the newest now. They take no seats of the departure."""
    now = system_clock()
    made = Sql(f"{now} - ({count} - n) * 1000000")
    lines = f'[{{"tier_id":"adult","tier_label":"Adult","count":1,"unit_price":{_price()}}}]'
    row = {
        "organization_id": world.org,
        "id": new_ids(url),
        "status": "confirmed",
        "source": "online",
        "departure_id": departure_id,
        "experience_id": experience_id,
        "guest_name": "A guest",
        "guest_email": "guest@example.com",
        "guests": lines,
        "add_ons": "[]",
        "seats": 0,
        "currency": "NOK",
        "subtotal_minor": 89000,
        "total_minor": 89000,
        "payment_method": "card",
        "payment_source": "stripe",
        "payment_status": "paid",
        "send_confirmation_email": False,
        "notify_staff": False,
        **dict.fromkeys(_TIMES, made),
    }
    insert(url, tables.bookings, count, row | over)


def _price() -> str:
    price = ADULT["price"]
    assert isinstance(price, dict)
    return f'{{"amount_minor":{price["amount_minor"]},"currency":"{price["currency"]}"}}'


def events(url: str, world: World, count: int, *, kind: str = "booking.created") -> None:
    """Insert events at the end of the organization's log, each about a different resource."""
    now = system_clock()
    of_counter = f"FROM counters WHERE organization_id = '{world.org}'"
    last = value(url, f"SELECT last_event_sequence {of_counter}")
    with connect(url) as connection:
        connection.execute(
            f"UPDATE counters SET last_event_sequence = {last + count} WHERE organization_id = '{world.org}'"
        )
    event_id = new_ids(url)
    head = f'"type":"{kind}","created_at":"2026-11-21T13:00:00+01:00","api_version":"{API_VERSION}"'
    row = {
        "organization_id": world.org,
        "sequence": Sql(f"{last} + n"),
        "id": event_id,
        "type": kind,
        "resource_type": kind.partition(".")[0],
        "resource_id": event_id,
        "occurrence": 0,
        "body": Sql(
            f"""'{{"id":"' || {event_id.text} || '",{head},"sequence":' || ({last} + n)
                || ',"data":{{"object":{{"note":"{"x" * 700}"}}}}}}'"""
        ),
        "created_at": now,
    }
    insert(url, tables.events, count, row)


def waiting(url: str, world: World, count: int) -> None:
    """Let `count` events wait for each endpoint of the organization."""
    events(url, world, count)
