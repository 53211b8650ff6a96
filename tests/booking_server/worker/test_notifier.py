"""The bell between processes: heard when it is rung, rung once for many commits, and mended when a connection dies."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support import databases
from support.api import Api
from support.world import SECRET, FixedClock, make_world

from booking_core.db.engine import Database
from booking_core.settings import Settings
from booking_server.app import create_app
from booking_server.worker.notifier import CHANNEL, Ring, listening, ringing

_WITHIN_S = 60
_AT_ONCE_S = 0.01
_KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'booking bell' AND datname = "


@pytest.fixture
def belfry(fresh_database_url: str) -> Iterator[Database]:
    if databases.is_sqlite(fresh_database_url):
        pytest.skip("the worker of an SQLite file lives in the process that commits")
    opened = Database(fresh_database_url)
    yield opened
    opened.close()


def cut(database: Database) -> int:
    """Ends every connection of the bell, as a server that restarts does; gives how many there were."""
    with databases.connect(database.url.render_as_string(hide_password=False)) as connection:
        return len(connection.execute(f"{_KILL}current_database()").fetchall())


class Ear:
    """Counts what is heard."""

    def __init__(self) -> None:
        self.times = 0
        self._heard = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._heard.set()

    async def hears(self) -> None:
        """Returns when something was heard since it was asked last."""
        async with asyncio.timeout(_WITHIN_S):
            await self._heard.wait()
        self._heard.clear()


def in_the_tower(database: Database, act: Callable[[Ring, Ear], Awaitable[None]]) -> None:
    """Acts while the bell is both rung and listened to; whoever begins to listen looks once without being called."""

    async def stand() -> None:
        ear = Ear()
        async with ringing(database, again_s=_AT_ONCE_S) as ring, listening(database, ear, again_s=_AT_ONCE_S):
            await ear.hears()
            await act(ring, ear)

    asyncio.run(stand())


def test_the_bell_is_heard_when_it_is_rung(belfry: Database) -> None:
    async def act(ring: Ring, ear: Ear) -> None:
        for _ in range(3):
            ring()
            await ear.hears()

    in_the_tower(belfry, act)


def test_many_commits_ring_once(belfry: Database) -> None:
    async def act(ring: Ring, ear: Ear) -> None:
        before = ear.times
        for _ in range(1000):
            ring()
        await ear.hears()
        ring()
        await ear.hears()
        assert ear.times == before + 2

    in_the_tower(belfry, act)


def test_whoever_lost_the_connection_looks_and_listens_again(
    belfry: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(ring: Ring, ear: Ear) -> None:
        assert cut(belfry) == 1  # nothing was rung yet, so nobody connected to ring
        await ear.hears()
        ring()
        await ear.hears()

    in_the_tower(belfry, act)
    assert [record.levelname for record in caplog.records if record.name == "booking.bell"] == ["WARNING"]


def test_a_ring_that_found_no_connection_is_rung_on_the_next(belfry: Database) -> None:
    async def act(ring: Ring, ear: Ear) -> None:
        ring()
        await ear.hears()
        assert cut(belfry) == 2
        await ear.hears()
        ring()
        await ear.hears()

    in_the_tower(belfry, act)


def test_sqlite_has_no_bell(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'booking.db'}")

    async def act() -> None:
        ear = Ear()
        async with ringing(database) as ring, listening(database, ear):
            ring()
        assert ear.times == 0

    asyncio.run(act())
    database.close()


def test_a_booking_rings(belfry: Database, clock: FixedClock) -> None:
    url = belfry.url.render_as_string(hide_password=False)
    world = make_world(Database(url, clock=clock), clock)
    departure = world.departure(world.experience())
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    with (
        TestClient(create_app(settings, database=world.database)) as running,
        databases.connect(url) as connection,
    ):
        api = Api(running, world)
        connection.execute(f"LISTEN {CHANNEL}")
        assert api.book(departure).status_code == 201
        assert len(list(connection.notifies(timeout=_WITHIN_S, stop_after=1))) == 1
