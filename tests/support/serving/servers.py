"""The service as processes on real sockets, and clients that keep their connections.

A test can kill a process and start it again, and two processes can serve one database. The only wait is for a process
to be ready, with a bounded number of polls.
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import orjson
import uvicorn

from booking_core.base.clock import system_clock
from booking_core.base.settings import Settings
from booking_core.db import postgres
from booking_core.db.engine import Database
from booking_server.app import create_app
from booking_server.execution import creations
from support.serving import forking
from support.world.world import SECRET, FixedClock, World, make_world

T = TypeVar("T")

_HOST = "127.0.0.1"
_READY_TRIES = 1200
_READY_PAUSE_S = 0.05
_TESTS = Path(__file__).parents[2]

REAL = "booking_server.app:create_app"
MUTE = "support.serving.servers:create_mute_app"
PATIENT = "support.serving.servers:create_patient_app"
COMMITTED = "committed"
"""The output of the mute application when a response is ready."""


# Processes -------------------------------------------------------------------------------------------------------


class Server:
    """A process of the service.

    Args:
        port: by default a free one.
        tests: the folder of the tests of another release, whose code the environment names.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log: IO[bytes],
        app: str = REAL,
        *,
        port: int | None = None,
        tests: Path = _TESTS,
    ) -> None:
        self.port = port or free_port()
        command = ["uvicorn", app, "--factory", "--host", _HOST, "--port", str(self.port), "--app-dir", "."]
        quiet = ["--no-access-log", "--log-level", "warning"]
        self.process = forking.start([*command, *quiet], env=environment, cwd=tests, stdout=subprocess.PIPE, stderr=log)

    def wait_until_ready(self) -> None:
        """Wait until the process accepts connections."""
        for _ in range(_READY_TRIES):
            assert self.process.poll() is None, f"the server ended with {self.process.returncode} instead of serving"
            try:
                socket.create_connection((_HOST, self.port)).close()
            except ConnectionRefusedError:
                time.sleep(_READY_PAUSE_S)
            else:
                return
        raise AssertionError("the server does not listen")

    def printed(self) -> str:
        """Wait for the next line that the process prints, and return it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def end(self, how: signal.Signals) -> None:
        """Send the signal, and wait for the end of the process."""
        self.process.send_signal(how)
        self.process.wait(timeout=60)
        if self.process.stdout:
            self.process.stdout.close()


def free_port() -> int:
    """Return a free port, reserved while this process lives."""
    # Bound but not listening: a server can bind this port, and the system gives it to nobody else.
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((_HOST, 0))
    port = int(reservation.getsockname()[1])
    reservation.detach()  # open until the end of the process
    return port


class Service:
    """The processes that serve one database: one process on SQLite, which has one writer, and two on PostgreSQL."""

    def __init__(self, url: str, log: Path, **settings: str) -> None:
        self.url = url
        self._log = log
        variables = {"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET, "BOOKING_RATE_LIMIT": "off", **settings}
        self._environment = {**os.environ, **variables}
        self.servers: list[Server] = []

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def start(self, app: str = REAL) -> "Service":
        with self._log.open("ab") as log:
            self.servers = [Server(self._environment, log, app) for _ in range(1 if self.is_sqlite else 2)]
        for server in self.servers:
            server.wait_until_ready()
        return self

    def kill(self) -> None:
        """Kill every process, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask every process to finish its work and to end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        for server in self.servers:
            server.process.send_signal(how)  # to all processes first: they end almost at once
        for server in self.servers:
            server.end(how)
        self.servers = []

    def complaints(self) -> str:
        """Return the log of the processes, which is empty without errors."""
        return self._log.read_text()


@contextmanager
def new_world(url: str, **columns: Any) -> Iterator[World]:
    """Make an organization directly in the database, as an operator's command does."""
    database = Database(url)
    try:
        yield make_world(database, FixedClock(system_clock()), **columns)
    finally:
        database.close()


def create_mute_app() -> Any:
    """Create a service that commits the work of a POST but never sends the response.

    It prints a line for each response that it withholds.
    """
    app = create_app()

    async def mute(scope: Any, receive: Any, send: Any) -> None:
        async def keep_back(message: Any) -> None:
            if scope.get("method") == "POST":
                print(COMMITTED, flush=True)
                await asyncio.Event().wait()
            await send(message)

        await app(scope, receive, keep_back)

    return mute


def create_patient_app() -> Any:
    """Create a service that waits up to ten minutes for a lock."""
    postgres.STATEMENT_TIMEOUT_MS = 600_000
    postgres.LOCK_TIMEOUT_MS = 600_000
    postgres.RESPONSE_TIMEOUT_S = 610
    creations.LOCK_WAIT_S = 600
    return create_app()


@contextmanager
def served_in_process(url: str) -> Iterator[int]:
    """Run the service in a thread of this process, where a test can patch it, and yield its port."""
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), log_config=None, access_log=False))
    listener = socket.create_server((_HOST, 0), backlog=512)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


# Clients ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """A response and its time by the clock of the test's process."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_at: float
    answered_at: float

    @property
    def replayed(self) -> bool:
        return "idempotent-replayed" in self.headers

    def json(self) -> Any:
        return orjson.loads(self.body)


class Line:
    """A keep-alive connection for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key

    async def get(self, path: str) -> Answer:
        answer = await self._ask("GET", path, b"", "")
        assert answer is not None, "the server closed the connection"
        return answer

    async def delete(self, path: str) -> Answer:
        answer = await self._ask("DELETE", path, b"", "")
        assert answer is not None, "the server closed the connection"
        return answer

    async def post(self, path: str, body: Any, key: str) -> Answer:
        answer = await self.try_post(path, body, key)
        assert answer is not None, "the server closed the connection"
        return answer

    async def try_post(self, path: str, body: Any, key: str) -> Answer | None:
        """Return the response, or None if the connection was cut before its end."""
        return await self._ask("POST", path, orjson.dumps(body), f"Idempotency-Key: {key}\r\n")

    async def _ask(self, method: str, path: str, body: bytes, extra: str) -> Answer | None:
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: {_HOST}\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        )
        sent_at = time.perf_counter()
        try:
            self._writer.write(head.encode() + body)
            status_line, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            content = await self._reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, OSError):
            return None
        return Answer(int(status_line.split(" ")[1]), headers, content, sent_at, time.perf_counter())

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the other side disconnected first


@asynccontextmanager
async def lines(ports: Sequence[int], key: str, count: int) -> AsyncIterator[list[Line]]:
    """Open connections, distributed evenly over the ports."""
    opened = [
        Line(*await asyncio.open_connection(_HOST, ports[number % len(ports)]), key=key) for number in range(count)
    ]
    try:
        yield opened
    finally:
        for line in opened:
            await line.close()


def posting(path: str, body: Any, key: str) -> Callable[[Line], Awaitable[Answer]]:
    """Return the function that sends a POST on a connection."""
    return lambda line: line.post(path, body, key)


def at_once(ports: Sequence[int], key: str, asks: Sequence[Callable[[Line], Awaitable[T]]]) -> list[T]:
    """Call the functions at the same moment, each with its own connection, and return their results."""

    async def one(line: Line, ask: Callable[[Line], Awaitable[T]], start: asyncio.Barrier) -> T:
        await start.wait()
        return await ask(line)

    async def all_of_them() -> list[T]:
        start = asyncio.Barrier(len(asks))
        async with lines(ports, key, len(asks)) as opened:
            return await asyncio.gather(*(one(line, ask, start) for line, ask in zip(opened, asks, strict=True)))

    return asyncio.run(all_of_them())
