"""The notifier between processes: one notification for many commits, and a new connection when one is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.api.api import Api
from support.databases import databases
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.app import create_app
from booking_server.worker.notifier import CHANNEL, Notify, listen, open_notifier

_WITHIN_S = 60
_AT_ONCE_S = 0.01
_KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'booking notifier' AND datname = "
)


@pytest.fixture
def database(postgresql_only: None, fresh_database: Database) -> Database:
    """A database of PostgreSQL: the worker of an SQLite file lives in the process that commits."""
    return fresh_database


def terminate(database: Database) -> int:
    """Terminate all connections of the notifier, as a server restart does, and return how many there were."""
    with databases.connect(database.url.render_as_string(hide_password=False)) as connection:
        return len(connection.execute(f"{_KILL}current_database()").fetchall())


class Listener:
    """Counts notifications."""

    def __init__(self) -> None:
        self.count = 0
        self._notified = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._notified.set()

    async def wait(self) -> None:
        """Wait for a notification since the last call."""
        async with asyncio.timeout(_WITHIN_S):
            await self._notified.wait()
        self._notified.clear()


def with_listener(database: Database, act: Callable[[Notify, Listener], Awaitable[None]]) -> None:
    """Run a function with a notifier and a listener, after the call that the listener gets when it connects."""

    async def run() -> None:
        listener = Listener()
        async with (
            open_notifier(database, reconnect_s=_AT_ONCE_S) as notify,
            listen(database, listener, reconnect_s=_AT_ONCE_S),
        ):
            await listener.wait()
            await act(notify, listener)

    asyncio.run(run())


def test_many_commits_send_one_notification(database: Database) -> None:
    async def act(notify: Notify, listener: Listener) -> None:
        before = listener.count
        for _ in range(1000):
            notify()
        await listener.wait()
        notify()
        await listener.wait()
        assert listener.count == before + 2

    with_listener(database, act)


def test_a_listener_reconnects_and_looks_again(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    async def act(notify: Notify, listener: Listener) -> None:
        assert terminate(database) == 1  # the notifier connects with its first notification
        await listener.wait()
        notify()
        await listener.wait()

    with_listener(database, act)
    assert [record.levelname for record in caplog.records if record.name == "booking.notifier"] == ["WARNING"]


def test_a_failed_notification_is_sent_on_the_next_connection(database: Database) -> None:
    async def act(notify: Notify, listener: Listener) -> None:
        notify()
        await listener.wait()
        assert terminate(database) == 2
        await listener.wait()
        notify()
        await listener.wait()

    with_listener(database, act)


def test_sqlite_has_no_notifier(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'booking.db'}")

    async def act() -> None:
        async with open_notifier(database) as notify, listen(database, Listener()):
            notify()
            assert len(asyncio.all_tasks()) == 1, "none connects or listens"

    asyncio.run(act())
    database.close()


def test_a_booking_sends_a_notification(database: Database, clock: FixedClock) -> None:
    url = database.url.render_as_string(hide_password=False)
    world = make_world(Database(url, clock=clock), clock)
    departure = world.departure(world.experience())
    settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
    with (
        TestClient(create_app(settings, database=world.database)) as running,
        databases.connect(url) as connection,
    ):
        api = Api(running, world)
        connection.execute(f"LISTEN {CHANNEL}")
        assert api.book(departure).status_code == 201
        assert len(list(connection.notifies(timeout=_WITHIN_S, stop_after=1))) == 1
