"""Fills an organization with rows: a million bookings and 100,000 departures in minutes.

`python -m bench.fill --database-url URL --org SLUG --bookings 1000000 --departures 100000` writes by COPY into a
PostgreSQL database at this release's schema (`booking db upgrade`). The organization is created if it does not exist;
an organization with bookings is refused. `filling` describes the rows.
"""

import argparse
import uuid
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from bench import postgres
from bench.filling import COLUMNS, Amounts, Rows

_ORGANIZATION = """
INSERT INTO organizations (id, slug, name, timezone, default_currency, created_at, updated_at)
VALUES (%s, %s, 'Filled', 'Europe/Oslo', 'NOK', 0, 0)
"""
_COUNTERS = """
INSERT INTO counters (organization_id, last_booking_number, last_event_sequence) VALUES (%s, %s, %s)
ON CONFLICT (organization_id) DO UPDATE
SET last_booking_number = excluded.last_booking_number, last_event_sequence = excluded.last_event_sequence
"""


def fill(url: str, slug: str, amounts: Amounts) -> None:
    """Fill an organization without bookings, and update the planner's statistics."""
    with psycopg.connect(url) as connection:
        organization_id = _organization(connection, slug)
        if connection.execute(
            "SELECT 1 FROM bookings WHERE organization_id = %s LIMIT 1", [organization_id]
        ).fetchone():
            raise SystemExit(f"{slug} has bookings already: name another organization")
        rows = Rows(organization_id, amounts)
        for table, columns in COLUMNS.items():
            names = SQL(", ").join(map(Identifier, columns))
            copying = SQL("COPY {} ({}) FROM STDIN").format(Identifier(table), names)
            with connection.cursor() as cursor, cursor.copy(copying) as copy:
                for row in rows.of(table):
                    copy.write_row(row)
        connection.execute(_COUNTERS, [organization_id, amounts.bookings, amounts.events])
    postgres.settle(url)


def created_at(url: str, slug: str, booking_id: str) -> int:
    """Return the created_at of a booking, in microseconds, the sort key of the lists."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT b.created_at FROM bookings b JOIN organizations o ON o.id = b.organization_id"
            " WHERE o.slug = %s AND b.id = %s",
            [slug, booking_id],
        ).fetchone()
    assert row is not None
    return int(row[0])


def _organization(connection: psycopg.Connection[Any], slug: str) -> str:
    """Return the id of an organization, which is created if it does not exist."""
    row = connection.execute("SELECT id FROM organizations WHERE slug = %s", [slug]).fetchone()
    if row:
        return str(row[0])
    created = str(uuid.uuid4())
    connection.execute(_ORGANIZATION, [created, slug])
    return created


def main() -> None:
    """Fill as the options say."""
    parser = argparse.ArgumentParser(prog="python -m bench.fill", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database-url", required=True, metavar="URL", help="postgresql://…")
    parser.add_argument("--org", default="filled", metavar="SLUG", help="the organization; made when it is missing")
    parser.add_argument("--bookings", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--departures", type=int, default=100_000, metavar="N", help="in 92 days from 2031-06-01 on")
    options = parser.parse_args()
    if options.bookings < 1 or options.departures < 1:
        parser.error("numbers must be positive")
    fill(options.database_url, options.org, Amounts(options.bookings, options.departures))


if __name__ == "__main__":
    main()
