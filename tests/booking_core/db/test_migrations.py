"""The revisions make the tables of `booking_core.db.tables`."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from support.databases import databases

from booking_core.db import migrate
from booking_core.db.tables import metadata


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


def _keys_and_indexes(url: str) -> set[str]:
    """Return every index and every constraint from the database's catalogue."""
    if databases.is_sqlite(url):
        objects = _rows(url, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name <> 'alembic_version'")
        lines = (line.strip(" \t,") for (sql,) in objects for line in sql.splitlines())
        return {line for line in lines if line.startswith(("CONSTRAINT", "CREATE INDEX", "CREATE UNIQUE"))}
    of_tables = "conrelid::regclass::text || ' ' || conname || ' ' || pg_get_constraintdef(oid)"
    constraints = f"SELECT {of_tables} FROM pg_constraint WHERE conrelid <> 0 AND contype <> 'n'"
    found = _rows(url, f"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL {constraints}")
    return {sql for (sql,) in found if "alembic_version" not in sql}


def test_migrations_make_the_keys_checks_and_indexes_of_the_tables(empty_database_url: str) -> None:
    url = make_url(empty_database_url)
    engine = create_engine(url if databases.is_sqlite(empty_database_url) else url.set(drivername="postgresql+psycopg"))
    metadata.create_all(engine)
    wanted = _keys_and_indexes(empty_database_url)
    assert any("lease_until IS NOT NULL" in each for each in wanted)
    metadata.drop_all(engine)
    engine.dispose()
    migrate.upgrade(empty_database_url)
    assert _keys_and_indexes(empty_database_url) == wanted
    assert migrate.differences(empty_database_url) == []
