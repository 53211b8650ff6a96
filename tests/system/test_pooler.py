"""The service with PgBouncer, in transaction mode, in session mode, and as before version 1.21."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from support.api.api import Api
from support.api.client import WholeResponses
from support.databases import databases
from support.databases.cells import create
from support.databases.pooler import pgbouncer
from support.world.world import SECRET, FixedClock, make_world

from booking_cli.framework.errors import CliError
from booking_cli.operator import storage
from booking_core.base import database_urls
from booking_core.base.settings import CellAddress, Settings
from booking_core.db import tables
from booking_core.db.driver import SessionRequired
from booking_core.db.engine import Database
from booking_core.db.postgres import PostgresDriver
from booking_core.db.statements import Statement
from booking_core.upkeep import backups, cells
from booking_server.app import create_app
from booking_server.worker.notifier import listen, open_notifier

BOOKINGS = 200
_WITHIN_S = 60
_WATCH = """
CREATE TABLE seen (commits text, statement text, lock text, idle text, path text);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
    INSERT INTO seen SELECT current_setting('synchronous_commit'), current_setting('statement_timeout'),
        current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'), '';
    RETURN NULL;
END $$;
CREATE TRIGGER see AFTER INSERT ON bookings FOR EACH ROW EXECUTE FUNCTION see();
"""
_TIMEOUT = Statement(text("SELECT current_setting('statement_timeout')"))
_POLLUTE = """
SET synchronous_commit = off; SET statement_timeout = 0;
SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
"""
_INHERITED = """
SELECT name, setting FROM pg_settings WHERE source = 'session' AND name IN ('synchronous_commit', 'lock_timeout',
    'statement_timeout', 'idle_in_transaction_session_timeout', 'jit', 'random_page_cost')
"""


@pytest.fixture
def direct(new_database_url: Callable[[str], str]) -> str:
    """A PostgreSQL database of this test's own, without a pooler."""
    return new_database_url("postgresql")


@contextmanager
def served(url: str, clock: FixedClock) -> Iterator[Api]:
    """Serve an organization of that database."""
    database = Database(url, clock=clock)
    world = make_world(database, clock)
    settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
    with WholeResponses(create_app(settings, database=database)) as running:
        yield Api(running, world)


def book(api: Api, count: int) -> None:
    departure = api.world.departure(api.world.experience(), seats=count)
    assert {api.book(departure).status_code for _ in range(count)} == {201}
    assert api.get("/bookings", limit=100).status_code == 200


@contextmanager
def every_session(url: str, size: int) -> Iterator[list[psycopg.Connection]]:
    """Hold as many transactions as the pooler has sessions of the server."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(size)]
        for session in sessions:
            session.execute("SELECT 1")
        yield sessions


def pollute(url: str, size: int) -> None:
    """Leave settings in each session of the server, as another program with the same pooler may."""
    with every_session(url, size) as sessions:
        for session in sessions:
            session.execute(_POLLUTE)
            session.commit()


def test_each_booking_behind_a_pooler_is_durable_and_has_its_timeouts(direct: str, clock: FixedClock) -> None:
    with pgbouncer(direct, size=3) as pooled:
        databases.run(direct, _WATCH)
        pollute(pooled, 3)
        with served(pooled, clock) as api:
            book(api, BOOKINGS)
    with databases.connect(direct) as connection:
        cursor = connection.execute("SELECT commits, statement, lock, idle, count(*) FROM seen GROUP BY 1, 2, 3, 4")
        assert cursor.fetchall() == [("on", "7s", "50ms", "2s", BOOKINGS)]


def test_no_client_of_the_pooler_inherits_a_setting(direct: str, clock: FixedClock) -> None:
    with pgbouncer(direct, size=3) as pooled, served(pooled, clock) as api:
        book(api, 20)
        with every_session(pooled, 3) as sessions:
            assert [session.execute(_INHERITED).fetchall() for session in sessions] == [[], [], []]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "options", "keeps_prepared"),
    [
        ("transaction", {}, True),
        ("transaction", {"ignores_options": True}, True),
        ("transaction", {"prepared": 0}, False),
        ("session", {"size": 20}, True),
    ],
)
def test_bookings_are_made_through_every_pooler(
    direct: str, clock: FixedClock, mode: str, options: dict[str, int], keeps_prepared: bool
) -> None:
    with pgbouncer(direct, mode=mode, **options) as pooled, served(pooled, clock) as api:  # type: ignore[arg-type]
        book(api, 20)
        assert not api.world.database.has_own_sessions()
        assert isinstance(api.world.database.driver, PostgresDriver)
        assert api.world.database.driver.keeps_prepared is keeps_prepared


def test_without_a_pooler_the_settings_are_those_of_the_session(direct: str) -> None:
    with closing(Database(direct)) as database:
        assert database.has_own_sessions()
        assert database.read(lambda tx: tx.all(_TIMEOUT)) == [("7s",)]


@contextmanager
def cells_behind_one_pool(direct: str, pooled: str, clock: FixedClock) -> Iterator[dict[str, Api]]:
    """Serve two cells in schemas of one database, both as the same user of the pooler, each with an organization."""
    addresses = tuple(
        CellAddress(name, f"{pooled}?schema=booking_{name}", database_urls.with_schema(direct, f"booking_{name}"))
        for name in ("c2", "c3")
    )
    settings = Settings(database_url=pooled, secret_key=SECRET, secret_key_check="warn", cells=addresses)
    with ExitStack() as stack:
        clients = {}
        for cell in cells.every(settings)[1:]:
            create(cell)
            url = cell.settings.database_url
            database = stack.enter_context(closing(Database(url, clock=clock)))
            world = make_world(database, clock)
            of_cell = replace(cell.settings, cells=(), rate_limit=None)
            running = WholeResponses(create_app(of_cell, database=database))
            clients[cell.name] = Api(stack.enter_context(running), world)
        yield clients


@contextmanager
def without_tables(url: str) -> Iterator[None]:
    """Let the schema that a session begins with be empty while the block runs."""
    databases.run(url, "ALTER SCHEMA public RENAME TO kept", "CREATE SCHEMA public")
    try:
        yield
    finally:
        databases.run(url, "DROP SCHEMA public", "ALTER SCHEMA kept RENAME TO public")


@pytest.mark.parametrize("options", [{}, {"prepared": 0}], ids=["keeps statements", "keeps none"])
def test_cells_behind_one_pooler_never_see_each_others_rows(
    direct: str, clock: FixedClock, options: dict[str, int]
) -> None:
    """Two sessions of the server serve both cells, and another client has left a search path in them. In the schema
    that the sessions begin with are no tables: nothing may be looked up there."""
    with (
        without_tables(direct),
        pgbouncer(direct, size=2, **options) as pooled,
        cells_behind_one_pool(direct, pooled, clock) as apis,
    ):
        with every_session(pooled, 2) as sessions:
            for session in sessions:
                session.execute("SET search_path = booking_c2")
                session.commit()
        for round_of in range(3):
            for api in apis.values():
                book(api, 5 + round_of)
        for api in apis.values():
            (owner,) = {row["organization_id"] for row in api.world.rows(tables.bookings)}
            assert owner == api.world.org
            assert len(api.get("/bookings", limit=100).json()["data"]) == 5 + 6 + 7
    with databases.connect(direct) as connection:
        for name, api in apis.items():
            cursor = connection.execute(
                f"SELECT organization_id::text, count(*) FROM booking_{name}.bookings GROUP BY 1"
            )
            assert cursor.fetchall() == [(api.world.org, 5 + 6 + 7)]


def test_a_worker_that_listens_past_the_pooler_is_woken_by_each_booking(direct: str, clock: FixedClock) -> None:
    with pgbouncer(direct) as pooled:
        asyncio.run(_notified(pooled, direct, times=5))


def test_a_worker_says_that_it_cannot_listen_through_the_pooler(
    direct: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped while it ends its connection: psycopg lets other tasks run after each step here."""
    monkeypatch.setattr("psycopg.waiting.MAX_BUSY_TIME", 0)
    with pgbouncer(direct) as pooled:
        asyncio.run(_listening(pooled, lambda: "polls instead: set BOOKING_DATABASE_DIRECT_URL" in caplog.text))


async def _listening(pooled: str, is_told: Callable[[], bool]) -> None:
    """Listen through the pooler until the log says that it is no use."""
    with closing(Database(pooled)) as database:
        async with asyncio.timeout(_WITHIN_S), listen(database, lambda: pytest.fail("something was received")):
            while not is_told():
                await asyncio.sleep(0)


async def _notified(pooled: str, direct: str, times: int) -> None:
    """Notify through the pooler, and listen past it."""
    database, notified = Database(pooled), asyncio.Event()
    async with open_notifier(database) as notify, listen(database, notified.set, direct_url=direct):
        for _ in range(times + 1):  # the first call tells that it has connected
            async with asyncio.timeout(_WITHIN_S):
                await notified.wait()
            notified.clear()
            notify()
    database.close()


def test_a_backup_is_restored_past_the_pooler(new_database_url: Callable[[str], str], tmp_path: Path) -> None:
    """The schema of a backup may have to be upgraded after its data has replaced the present data."""
    direct, file = new_database_url("postgresql"), tmp_path / "tours.backup"
    settings = Settings(database_url=direct, secret_key=SECRET)
    backups.create(settings, file, advance=lambda *_: None)
    with pgbouncer(direct) as pooled:
        behind = replace(settings, database_url=pooled)
        with pytest.raises(SessionRequired, match="through a pooler"):
            backups.restore(behind, file, force=True, advance=lambda *_: None)


def test_a_schema_is_upgraded_past_the_pooler(new_database_url: Callable[[str], str]) -> None:
    direct = new_database_url("postgresql")
    with pgbouncer(direct) as pooled:
        settings = Settings(database_url=pooled)
        with pytest.raises(CliError, match="through a pooler") as refused:
            storage.upgrade(settings)
        assert refused.value.hint is not None
        assert "BOOKING_DATABASE_DIRECT_URL" in refused.value.hint
        storage.upgrade(replace(settings, database_direct_url=direct))
