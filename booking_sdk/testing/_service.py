"""The service in this process: one application for all doubles, and a database in memory for each double.

The application runs on an event loop in its own thread: tests can use it without an event loop, and from any kind of
event loop. It serves one request at a time.
"""

import asyncio
import contextlib
import secrets
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx
from fastapi import FastAPI

from booking_core import organizations
from booking_core.base.clock import SECOND
from booking_core.base.context import Actor
from booking_core.base.settings import Settings
from booking_core.db import migrate
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import memory_uri
from booking_sdk.response import Response
from booking_sdk.testing.clock import ManualClock
from booking_server.adapters.webhook_client import Sent
from booking_server.app import create_app
from booking_server.execution.service import Service
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.process import Worker

T = TypeVar("T")

BASE_URL = "https://fake.example.com"
SLUG = "fake"
_SANDBOX = "/api/v1/sandbox/"
_one_at_a_time = threading.RLock()


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="booking-double", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _event_loop()).result()


@cache
def _template() -> sqlite3.Connection:
    """Return a database in memory with the tables of the service."""
    template = sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        migrate.upgrade(f"sqlite:///{path}")
        with contextlib.closing(sqlite3.connect(path)) as migrated:
            migrated.execute("PRAGMA journal_mode=DELETE")  # a database in memory has no write-ahead log
            migrated.backup(template)
    return template


@cache
def _settings() -> Settings:
    return Settings(
        database_url=_database_url(),
        secret_key=secrets.token_urlsafe(32),
        public_url=BASE_URL,
        rate_limit=None,
        request_log=None,
    )


def _database_url() -> str:
    return f"sqlite:////booking-{uuid4().hex}?vfs=memdb"


def _open_copy(clock: Callable[[], int] | None = None) -> Database:
    """Return a database in memory with the tables of the service. Closing its last connection deletes it."""
    database = Database(_database_url(), clock=clock)
    with contextlib.closing(sqlite3.connect(memory_uri(Path(str(database.url.database))), uri=True)) as copy:
        _template().backup(copy)
        database.read(Tx.now)  # opens a connection, which the database keeps
    return database


@cache
def _application() -> FastAPI:
    """Return the application. It is not started: its worker runs when a double needs it."""
    return create_app(_settings(), database=_open_copy())


class SandboxTime:
    """The clock of the double's database: the test's clock less the offset of the sandbox."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.offset = 0
        """The microseconds that the API has moved the sandbox's clock ahead."""

    def __call__(self) -> int:
        return round(self.clock.wall() * SECOND) - self.offset

    def follow(self, offset: int) -> None:
        """Move the test's clock together with the sandbox's."""
        moved, self.offset = offset - self.offset, offset
        self.clock.advance(moved / SECOND)


class _AcceptingReceiver:
    """A sender of webhooks that sends nothing: every delivery is accepted."""

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        return Sent(200, None, None, 0)

    async def close(self) -> None:
        """Do nothing: there is no connection."""


class InProcessService:
    """The service with one sandbox."""

    def __init__(self, clock: ManualClock, *, name: str, timezone: str, currency: str) -> None:
        _application()
        self._time = SandboxTime(clock)
        self._database = _open_copy(self._time)
        self._service = Service(_settings(), self._database)
        self._service.is_public_address = lambda url: True  # tests make no DNS queries
        self._transport = httpx.ASGITransport(_application())
        self._worked_at = clock.now
        self._has_changed = False
        """Something was written since the worker ran."""
        weakref.finalize(self, self._service.close)
        fields = {"slug": SLUG, "name": name, "timezone": timezone, "currency": currency}
        self._database.write_once(lambda tx: organizations.create(tx, **fields, now=tx.now(), is_sandbox=True))

    def act(self, verb: Callable[[Tx, Actor], T]) -> T:
        """Call a function of the core as staff, and return its result."""

        def work(tx: Tx) -> T:
            organization = organizations.get(tx, slug=SLUG)
            at = organizations.now(tx, organization)
            return verb(tx, Actor(installation=self._service.installation, organization=organization, at=at))

        with _one_at_a_time:
            self._has_changed = True
            return self._database.write_once(work)

    def respond(self, request: httpx.Request) -> Response:
        """Return the response to a request."""
        with _one_at_a_time:
            is_look = request.method == "GET" or request.url.path.startswith(_SANDBOX)
            self.catch_up(has_changed=is_look and self._has_changed)
            _application().state.service = self._service
            response = _run(self._send(request))
            self._has_changed |= request.method != "GET"
            self._time.follow(self._database.read(_offset))
            return response

    async def _send(self, request: httpx.Request) -> Response:
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        response = await self._transport.handle_async_request(copy)
        return Response(response.status_code, response.headers.raw, await response.aread())

    def catch_up(self, *, has_changed: bool = True) -> None:
        """Run the work of the worker that is due. Without a later clock and without changes there is none."""
        with _one_at_a_time:
            has_moved = self._time.clock.now != self._worked_at
            if has_moved or has_changed:
                _run(self._work(with_deliveries=has_moved))
                self._worked_at, self._has_changed = self._time.clock.now, False

    async def _work(self, *, with_deliveries: bool) -> None:
        installation = self._service.installation
        jobs = periodic_jobs(_settings(), self._database, installation)
        if with_deliveries:
            await Worker(_settings(), self._database, installation, _AcceptingReceiver(), jobs).run_once()
        else:
            for job in jobs:
                await job.run_once()


def _offset(tx: Tx) -> int:
    return organizations.get(tx, slug=SLUG).clock_offset or 0
