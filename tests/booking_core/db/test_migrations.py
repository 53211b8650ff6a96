"""A migration keeps what it finds."""

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support import databases

from booking_core.db import migrate

ORG = "018f0000-0000-7000-8000-000000000001"
BOOKING = "018f0000-0000-7000-8000-000000000002"
CUSTOMER = "018f0000-0000-7000-8000-000000000003"


@pytest.fixture
def empty_database_url(fresh_database_url: str) -> str:
    """A database without any table."""
    if databases.is_sqlite(fresh_database_url):
        Path(str(make_url(fresh_database_url).database)).unlink()
    else:
        databases.run(fresh_database_url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return fresh_database_url


def _rows(url: str, query: str) -> list[tuple[str, ...]]:
    with databases.connect(url) as connection:
        return [tuple(map(str, row)) for row in connection.execute(query).fetchall()]


def test_what_was_owed_and_noted_before_0002_is_still_there(empty_database_url: str) -> None:
    migrate.upgrade(empty_database_url, "0001")
    databases.run(
        empty_database_url,
        "INSERT INTO effects (organization_id, id, key, kind, subject_id, payload, status, due_at, created_at)"
        f" VALUES ('{ORG}', '{BOOKING}', 'staff_booking_mail:{BOOKING}', 'staff_booking_mail', '{BOOKING}', '{{}}',"
        " 'queued', 5, 5)",
        "INSERT INTO timeline (organization_id, id, customer_id, booking_id, kind, data, created_at)"
        f" VALUES ('{ORG}', '{BOOKING}', '{CUSTOMER}', '{BOOKING}', 'booking_created', '{{}}', 7),"
        f" ('{ORG}', '{CUSTOMER}', NULL, '{BOOKING}', 'booking_created', '{{}}', 7)",
    )
    migrate.upgrade(empty_database_url)
    assert migrate.differences(empty_database_url) == []
    assert _rows(empty_database_url, "SELECT key, status, due_at FROM effects") == [
        (f"staff_booking_mail:{BOOKING}", "queued", "5")
    ]
    # An entry of nobody could be found by nobody.
    assert _rows(empty_database_url, "SELECT customer_id, booking_id, created_at FROM timeline") == [
        (CUSTOMER, BOOKING, "7")
    ]
