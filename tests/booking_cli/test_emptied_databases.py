"""A database that a test has after another one is as a new one."""

from collections.abc import Callable

import psycopg
import pytest
from support.emptied_databases import EmptiedDatabases
from support.world import FixedClock, make_world

from booking_core.db.engine import Database


@pytest.fixture
def databases(new_database_url: Callable[[str], str]) -> EmptiedDatabases:
    return EmptiedDatabases(lambda: new_database_url("postgresql"))


def content(url: str) -> dict[str, int]:
    """Return the number of rows of each table that has any."""
    with psycopg.connect(url) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        counts = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables}  # type: ignore[call-overload]
    return {name: count for name, count in counts.items() if count}


def test_the_next_test_finds_the_rows_of_a_new_database(databases: EmptiedDatabases) -> None:
    with databases.lend() as url:
        new = content(url)
        database = Database(url, clock=FixedClock())
        world = make_world(database, FixedClock())
        world.departure(world.experience())
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM alembic_version")
        assert content(url).keys() - new.keys() >= {"organizations", "experiences", "departures"}
    with databases.lend() as again:
        assert again == url
        assert content(url) == new
    database.close()


def test_a_client_that_was_left_behind_writes_no_more(databases: EmptiedDatabases) -> None:
    with databases.lend() as url:
        left = psycopg.connect(url)
        left.execute("LOCK TABLE organizations")
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()


@pytest.mark.parametrize(
    "change",
    [
        "DROP INDEX ix_departure_touches_due",
        "ALTER TABLE organizations ADD COLUMN colour text",
        "ALTER TABLE organizations DISABLE TRIGGER ALL",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
    ],
)
def test_a_database_with_another_schema_is_lent_to_nobody(databases: EmptiedDatabases, change: str) -> None:
    with databases.lend() as url, psycopg.connect(url) as connection:
        connection.execute(change)  # type: ignore[call-overload]
    with databases.lend() as other:
        assert other != url
