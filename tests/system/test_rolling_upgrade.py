"""A deployment is upgraded while clients book: the schema first, then its processes, one after the other.

BOOKING_TEST_ROLLING makes it longer: the number of bookings before and after each step.
"""

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url
from support.api.api import booking_body
from support.databases import databases
from support.serving.balancer import balanced
from support.serving.releases import (
    COLUMN,
    INDEX,
    TABLE,
    PreviousRelease,
    newer_release,
    previous_release,
    running_release,
)
from support.serving.servers import Answer, Line, Server, lines
from support.world.world import SECRET

from booking_core.db import migrate, revisions

pytestmark = pytest.mark.exhaustive

BOOKINGS = int(os.environ.get("BOOKING_TEST_ROLLING", "15"))
CLIENTS, WRITES_PER_SECOND = 5, 50
_TRIES, _PAUSE_S = 600, 0.05
_MAKE = """
import json, sys
from contextlib import closing
from booking_core.base.clock import system_clock
from booking_core.db import migrate
from booking_core.db.engine import Database
from support.world.world import FixedClock, make_world
migrate.upgrade(sys.argv[1])
with closing(Database(sys.argv[1])) as database:
    world = make_world(database, FixedClock(system_clock()))
    print(json.dumps([world.key(), world.departure(world.experience(), seats=50_000)]))
"""
"""A script of the previous release, which makes its schema and an organization."""
_BOOKED = "SELECT count(*) FROM bookings WHERE id::text = ANY(%s)"


@dataclass
class Log:
    """The answers that clients got."""

    booked: list[str] = field(default_factory=list)
    refusals: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Other answers, by status and whether they had a Retry-After."""
    cut: int = 0
    """Connections that were closed without an answer, which may have been a booking."""
    tries: list[int] = field(default_factory=list)
    """The tries of each booking."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, booking_id: str, tries: int) -> None:
        self.booked.append(booking_id)
        self.tries.append(tries)
        self._changed.set()

    async def wait_for(self, more: int) -> None:
        """Wait until so many more were booked."""
        target = len(self.booked) + more
        while len(self.booked) < target:
            self._changed.clear()
            await self._changed.wait()


class Client:
    """Books at its share of the rate, on one connection; a booking without an answer is sent again with its key."""

    def __init__(self, port: int, key: str, body: Mapping[str, Any], log: Log) -> None:
        self._port, self._key, self._body, self._log = port, key, body, log
        self._connection = AsyncExitStack()
        self._line: Line | None = None

    async def book_until(self, is_over: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        async with self._connection:
            due_s = clock()
            while not is_over.is_set():
                await self._book()
                due_s = max(clock(), due_s + CLIENTS / WRITES_PER_SECOND)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(is_over.wait(), due_s - clock())

    async def _book(self) -> None:
        name = str(uuid.uuid4())
        for tries in range(1, _TRIES + 1):
            answer = await self._try(name)
            if answer is not None and answer.status == 201:
                return self._log.add(answer.json()["id"], tries)
            if answer is not None:
                self._log.refusals[answer.status, "retry-after" in answer.headers] += 1
            await asyncio.sleep(_PAUSE_S)
        raise AssertionError(f"no booking after {_TRIES} tries: {self._log}")

    async def _try(self, name: str) -> Answer | None:
        """Send the request once; no answer: the connection was closed, and the next one will be another."""
        if self._line is None:
            (self._line,) = await self._connection.enter_async_context(lines([self._port], self._key, 1))
        answer = await self._line.try_post("/bookings", self._body, name)
        if answer is None:
            self._log.cut += 1
        if answer is None or answer.headers.get("connection") == "close":
            await self._connection.aclose()
            self._line = None
        return answer


class Deployment:
    """Two processes of the previous release."""

    def __init__(self, previous: PreviousRelease, url: str, log: Path) -> None:
        self._settings = {"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET, "BOOKING_RATE_LIMIT": "off"}
        self._log = log
        former = previous.environment(**self._settings)
        with log.open("ab") as file:
            self.servers = [Server(former, file, tests=previous.tests) for _ in range(2)]

    def wait_until_ready(self) -> None:
        for server in self.servers:
            server.wait_until_ready()

    def replace(self, place: int) -> None:
        """End a process, and start one of this release on its port."""
        former = self.servers[place]
        former.end(signal.SIGTERM)
        with self._log.open("ab") as file:
            self.servers[place] = Server({**os.environ, **self._settings}, file, port=former.port)
        self.servers[place].wait_until_ready()

    def stop(self) -> None:
        for server in self.servers:
            if server.process.poll() is None:
                server.end(signal.SIGTERM)


async def upgrade_under_load(deployment: Deployment, url: str, key: str, departure: str) -> Log:
    """Upgrade the schema and replace both processes while clients book."""
    log, is_over = Log(), asyncio.Event()
    async with balanced([server.port for server in deployment.servers]) as balancer:
        clients = [Client(balancer.port, key, booking_body(departure), log) for _ in range(CLIENTS)]
        booking = [asyncio.create_task(client.book_until(is_over)) for client in clients]
        try:
            await log.wait_for(BOOKINGS)
            await asyncio.to_thread(migrate.upgrade, url)
            await log.wait_for(BOOKINGS)
            for place in range(2):
                await asyncio.to_thread(deployment.replace, place)
                await log.wait_for(BOOKINGS)
        finally:
            is_over.set()
        await asyncio.gather(*booking)
    return log


def test_no_booking_is_lost_while_a_deployment_is_upgraded(
    new_database_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous, url = running_release(tmp_path), new_database_url("postgresql")
    databases.run(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    process = previous.run("-c", _MAKE, url)
    assert process.returncode == 0, process.stderr
    key, departure = json.loads(process.stdout)
    deployment = Deployment(previous, url, tmp_path / "processes.log")
    with ExitStack() as stack:
        stack.callback(deployment.stop)
        deployment.wait_until_ready()
        (revisions := tmp_path / "revisions").mkdir()
        newer_release(revisions, monkeypatch)(COLUMN, INDEX, TABLE)
        log = asyncio.run(upgrade_under_load(deployment, url, key, departure))
    print(f"{len(log.booked)} booked, refused {dict(log.refusals)}, cut {log.cut}, tries {Counter(log.tries)}")
    assert len(set(log.booked)) == len(log.booked) >= 4 * BOOKINGS
    with databases.connect(url) as connection:
        assert connection.execute(_BOOKED, (log.booked,)).fetchone() == (len(log.booked),)
        assert connection.execute("SELECT count(*) FROM bookings").fetchone() == (len(log.booked),)
    assert set(log.refusals) <= {(503, True)}


# The previous release ------------------------------------------------------------------------------------------------


SUITE = ("tests/contract/test_bookings.py", "tests/contract/test_webhooks.py", "tests/contract/test_lists.py")
CHOSEN = "postgresql and (not test_lists or events) and not 20_000 and not pages_of_one"
"""The contract of bookings, webhooks and the feed, without the tests of many rows. SQLite has one process, which
upgrades its file before it serves it."""
PLUGIN = '''
import psycopg
from sqlalchemy.engine import make_url
from booking_core.db import migrate

def copy_upgraded(url, *_):
    """Make the database a copy of the one that the newer release has upgraded."""
    name = make_url(url).database
    with psycopg.connect("{server}", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {{name}}")
        connection.execute(f"CREATE DATABASE {{name}} TEMPLATE {template}")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("{head}",)]

migrate.upgrade = copy_upgraded
'''


def test_the_suite_of_the_previous_release_passes_on_a_newer_schema(
    new_database_url: Callable[[str], str], postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer schema is this release's schema with the additive revisions of the test."""
    (previous_folder := tmp_path / "previous").mkdir()
    (newer_folder := tmp_path / "newer").mkdir()
    previous, url = previous_release(previous_folder), new_database_url("postgresql")
    newer_release(newer_folder, monkeypatch)(COLUMN, INDEX, TABLE)
    migrate.upgrade(url)
    text = PLUGIN.format(server=postgres_server, template=make_url(url).database, head=revisions.head())
    (previous_folder / "newer_schema.py").write_text(text)
    options = ("-p", "newer_schema", "-p", "no:cacheprovider", "-q", "-x", "-k", CHOSEN)
    process = previous.run("-m", "pytest", *options, *SUITE, BOOKING_TEST_DATABASE_URL=postgres_server)
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
    assert int(process.stdout.rpartition(" passed")[0].split()[-1]) > 60, process.stdout[-500:]
