"""Upgrades beside a service: locks, retries, and processes of the release before (decision 0003)."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient
from support.api.api import booking_body
from support.databases import databases
from support.serving.releases import COLUMN, INDEX, TABLE, Release
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.base.tokens import new_id
from booking_core.db import migrate, revisions
from booking_core.db.engine import Database
from booking_core.db.tables import metadata
from booking_server.app import create_app

BASE = "0001"
"""The first schema. The revisions after it run beside a service."""
BLOCKING = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock"}
"""A plain CREATE INDEX and a foreign key, which keep writers out for as long as the table is read."""


@pytest.fixture
def url(new_database_url: Callable[[str], str]) -> str:
    return new_database_url("postgresql")


def state(url: str) -> revisions.SchemaState:
    with closing(Database(url)) as database:
        return database.read(revisions.state)


def test_the_names_of_the_files_say_what_alembic_finds() -> None:
    scripts = ScriptDirectory.from_config(migrate._config())
    assert revisions.known() == [script.revision for script in scripts.walk_revisions()][::-1]
    assert revisions.head() == scripts.get_current_head()


def test_only_additions_make_a_newer_schema_usable(url: str, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state(url) is revisions.SchemaState.CURRENT
    before, own_head = revisions.folders, revisions.head()
    release(COLUMN, INDEX)
    assert state(url) is revisions.SchemaState.OLDER
    migrate.upgrade(url)
    assert state(url) is revisions.SchemaState.CURRENT
    monkeypatch.setattr(revisions, "folders", before)
    assert state(url) is revisions.SchemaState.NEWER
    settings = Settings(database_url=url, secret_key=SECRET)
    create_app(settings).state.service.close()
    release('op.drop_column("bookings", "colour")', additive=False)
    databases.run(url, f"UPDATE alembic_version SET version_num = '{own_head}'")
    migrate.upgrade(url)
    monkeypatch.setattr(revisions, "folders", before)
    assert state(url) is revisions.SchemaState.TOO_NEW
    with pytest.raises(Exception, match="the schema of a newer release"):
        create_app(settings)


def test_nothing_to_upgrade_takes_no_lock(url: str) -> None:
    with databases.connect(url) as other:
        other.execute(f"SELECT pg_advisory_lock({migrate._LOCK})")
        migrate.upgrade(url)  # would never end
        assert revisions.current(url) == revisions.head()


def test_a_table_in_use_is_retried_and_earlier_revisions_stay(
    url: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(TABLE, COLUMN)
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_MS", 20)
    pauses: list[float] = []
    with databases.connect(url) as other:
        other.autocommit = False
        other.execute("SELECT count(*) FROM bookings")

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            assert revisions.current(url) == "9001"
            if len(pauses) == 2:
                other.rollback()

        migrate.upgrade(url, pause=pause)
    assert len(pauses) == 2
    assert revisions.current(url) == "9002"
    with databases.connect(url) as other:
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


def test_a_table_that_stays_in_use_ends_the_upgrade(
    url: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_head = revisions.head()
    release(COLUMN)
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_MS", 1)
    monkeypatch.setattr(migrate, "_ATTEMPTS", 3)
    with databases.connect(url) as other:
        other.autocommit = False
        other.execute("SELECT count(*) FROM bookings")
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate.upgrade(url, pause=lambda _: None)
    assert revisions.current(url) == own_head


def test_an_upgrade_of_sqlite_that_fails_changes_nothing(
    new_database_url: Callable[[str], str], release: Release
) -> None:
    url, own_head = new_database_url("sqlite"), revisions.head()
    release(TABLE, "raise ZeroDivisionError")
    with pytest.raises(ZeroDivisionError):
        migrate.upgrade(url)
    assert (revisions.current(url), migrate.differences(url)) == (own_head, [])


def test_bookings_go_on_while_the_schema_is_upgraded(url: str, release: Release) -> None:
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    clock = FixedClock(system_clock())
    with closing(Database(url, clock=clock)) as database, TestClient(create_app(settings)) as client:
        world = make_world(database, clock)
        departure = world.departure(world.experience(), seats=10_000)
        head = {"Authorization": f"Bearer {world.key()}"}
        answers: list[Any] = []
        is_over = threading.Event()

        def book() -> None:
            while not is_over.is_set() and len(answers) < 2_000:
                sent = {**head, "Idempotency-Key": new_id()}
                answers.append(client.post("/api/v1/bookings", json=booking_body(departure), headers=sent))

        thread = threading.Thread(target=book, daemon=True)
        thread.start()
        release(COLUMN, INDEX, TABLE)
        migrate.upgrade(url)
        is_over.set()
        thread.join()
    assert revisions.current(url) == "9003"
    assert {answer.status_code for answer in answers} <= {201, 503}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)
    acknowledged = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    with databases.connect(url) as connection:
        stored = {str(row[0]) for row in connection.execute("SELECT id FROM bookings").fetchall()}
    assert acknowledged <= stored
    assert acknowledged


def _problems(url: str, revision: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run one revision and return its changes of an existing table."""
    tables = "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    with databases.connect(url) as connection:
        before = dict(connection.execute(tables).fetchall())
        problems: list[str] = []

        def look(*, ctx: Any, **options: Any) -> None:
            locks = "SELECT c.relname, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
            rows = ctx.connection.exec_driver_sql(f"{locks} WHERE l.pid = pg_backend_pid() AND l.granted").all()
            locked = {name for name, mode in rows if name in before and mode == "AccessExclusiveLock"}
            problems.extend(f"{mode} on {name}" for name, mode in rows if name in before and mode in BLOCKING)
            if len(locked) > 1:
                problems.append(f"locks several tables: {sorted(locked)}")
            note(ctx=ctx, **options)

        note = migrate._note_oldest_usable
        with monkeypatch.context() as patched:
            patched.setattr(migrate, "_note_oldest_usable", look)
            migrate.upgrade(url, revision)
        after = dict(connection.execute(tables).fetchall())
        problems.extend(f"rewrites {name}" for name in before if after.get(name, before[name]) != before[name])
    return problems


def test_no_revision_keeps_writers_from_a_table_while_it_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    databases.run(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    migrate.upgrade(url, BASE)
    later = [revision for revision in revisions.known() if revision > BASE]
    assert {revision: problems for revision in later if (problems := _problems(url, revision, monkeypatch))} == {}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('op.create_index("ix_x", "bookings", ["updated_at"])', "ShareLock on bookings"),
        ('op.alter_column("bookings", "seats", type_=sa.BigInteger())', "rewrites bookings"),
        (f'{COLUMN}; op.add_column("events", sa.Column("x", sa.Text()))', "locks several tables"),
        (COLUMN, ""),
        (INDEX.replace("colour", "updated_at"), ""),
    ],
    ids=["index under a lock", "rewrite", "two tables", "column", "index built concurrently"],
)
def test_the_rule_finds_a_revision_that_blocks(
    url: str, release: Release, monkeypatch: pytest.MonkeyPatch, body: str, problem: str
) -> None:
    release(body)
    problems = "; ".join(_problems(url, "9001", monkeypatch))
    assert (problem in problems) if problem else problems == ""


# Revisions -----------------------------------------------------------------------------------------------------------


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
    rows = _rows(url, f"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL {constraints}")
    return {sql for (sql,) in rows if "alembic_version" not in sql}


def test_migrations_make_the_keys_checks_and_indexes_of_the_tables(empty_database_url: str) -> None:
    url = make_url(empty_database_url)
    engine = create_engine(url if databases.is_sqlite(empty_database_url) else url.set(drivername="postgresql+psycopg"))
    metadata.create_all(engine)
    expected = _keys_and_indexes(empty_database_url)
    assert any("lease_until IS NOT NULL" in definition for definition in expected)
    metadata.drop_all(engine)
    engine.dispose()
    migrate.upgrade(empty_database_url)
    assert _keys_and_indexes(empty_database_url) == expected
    assert migrate.differences(empty_database_url) == []
