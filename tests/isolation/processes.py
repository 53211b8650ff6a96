"""Processes of the harness: the service, crowds of clients, and burners of processor time.

All are forked from one process that has imported the service: each starts within a tenth of a second. A test may plant
defects in the service before it starts.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvicorn

from booking_cli.operator.server_app import end_with_parent
from booking_core.base.settings import Settings
from booking_server.app import create_app

HOST = "127.0.0.1"
FRESH = b"{fresh}"
"""A placeholder in a rendered request for 32 hexadecimal digits that are new in each request."""
SLICE_S = 0.001
"""The time slice of a burner, about as long as a request of the service holds the interpreter."""
_READY_S = 60.0
_BACKLOG = 2048
_KEEP_ALIVE_S = 75

_context = multiprocessing.get_context("forkserver")
# Only installed packages: the fork server does not have the test folder on its path.
_context.set_forkserver_preload(
    [
        "booking_server.app",
        "booking_server.http.protocol",
        "booking_server.adapters.stripe",
        "booking_cli.operator.server_app",
        "psycopg",
        "uvicorn.lifespan.on",
        "uvloop",
    ]
)

Plant = Callable[[], None]
"""Changes the service's code within its process, before the application is created."""


def started(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Start a process; return it, and the connection whose other end is the last argument of the target."""
    own, other = _context.Pipe()
    process = _context.Process(target=target, args=(*arguments, other), daemon=True)
    process.start()
    other.close()
    return process, own


def stop(process: Any, connection: Connection) -> None:
    """Kill the process, as a power cut would: no test waits for its work."""
    process.kill()
    process.join()
    process.close()
    connection.close()


# The service -----------------------------------------------------------------------------------------------------


class ServiceProcess:
    """The service with its worker, as `booking serve` runs it, in one process."""

    def __init__(self, settings: Settings, log: Path, plants: Sequence[Plant] = ()) -> None:
        self._process, self._control = started(_serve, settings, str(log), tuple(plants))
        assert self._control.poll(_READY_S), f"the service did not start: {log.read_text()[-2000:]}"
        self.port = int(self._control.recv())
        self.pid = int(self._process.pid or 0)

    def burn(self, share: float, seconds: float) -> None:
        """Let a thread of the service use that share of a processor, with the interpreter held as requests hold it."""
        self._control.send((share, seconds))

    def kill(self) -> None:
        """End the process."""
        stop(self._process, self._control)


def _serve(settings: Settings, log: str, plants: Sequence[Plant], control: Connection) -> None:
    end_with_parent()
    logging.basicConfig(filename=log, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    for plant in plants:
        plant()
    config = uvicorn.Config(
        create_app(settings, worker=True),
        loop="uvloop",
        http="booking_server.http.protocol:HttpProtocol",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
    threading.Thread(target=_obey, args=(control,), daemon=True).start()
    control.send(listener.getsockname()[1])
    uvicorn.Server(config).run(sockets=[listener])


def _obey(control: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            share, seconds = control.recv()
            threading.Thread(target=burn, args=(share, seconds), daemon=True).start()


# Burners ---------------------------------------------------------------------------------------------------------


def burn(share: float, seconds: float) -> None:
    """Use that share of a processor for some seconds, in slices, and let other threads run between them."""
    share = min(share, 1.0)
    until = time.perf_counter() + seconds
    while (now := time.perf_counter()) < until:
        while time.perf_counter() < now + SLICE_S:
            pass
        time.sleep(SLICE_S * (1 - share) / share)


def _burn_in_process(share: float, connection: Connection) -> None:
    end_with_parent()
    connection.send(None)
    burn(share, math.inf)


@contextmanager
def burners(share: float) -> Iterator[None]:
    """Run processes that together use that share of a processor, which may be more than one."""
    count = math.ceil(share)
    running = [started(_burn_in_process, share / count) for _ in range(count)]
    try:
        for _, connection in running:
            connection.recv()
        yield
    finally:
        for process, connection in running:
            stop(process, connection)


# Crowds ----------------------------------------------------------------------------------------------------------


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Crowd:
    """Clients of the offender, each with one request at a time on its own connection.

    `requests` are rendered; client number n begins with the n-th. `times` bounds the requests of each client.
    """

    requests: Sequence[bytes]
    clients: int
    pause_s: float = 0.0
    times: int | None = None
    addresses: int = 1
    """The number of addresses that the clients come from, from 127.0.0.1 on."""


def request(method: str, path: str, key: str | None, body: bytes | None = None) -> bytes:
    """Return a rendered request; a body comes with a fresh Idempotency-Key."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    if body is not None:
        length = len(body) + body.count(FRESH) * (32 - len(FRESH))
        lines += [f"Idempotency-Key: {FRESH.decode()}", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


@contextmanager
def crowd(port: int, plan: Crowd) -> Iterator["Counter[str]"]:
    """Let a crowd call the service while the body runs. The body begins when each client has sent its first request.

    Afterwards the counter has the statuses of the responses.
    """
    process, connection = started(_run_crowd, port, plan)
    statuses: Counter[str] = Counter()
    try:
        assert connection.poll(_READY_S), "the crowd did not connect"
        connection.recv()
        yield statuses
        connection.send(None)
        if connection.poll(_READY_S):
            statuses.update(connection.recv())
    finally:
        stop(process, connection)


def _run_crowd(port: int, plan: Crowd, connection: Connection) -> None:
    end_with_parent()
    asyncio.run(_crowd(port, plan, connection))


async def _crowd(port: int, plan: Crowd, connection: Connection) -> None:
    statuses: Counter[str] = Counter()
    start = asyncio.Event()
    streams = await asyncio.gather(*(_connected(number, port, plan) for number in range(plan.clients)))
    clients = [
        asyncio.create_task(_client(number, port, plan, each, start, statuses)) for number, each in enumerate(streams)
    ]
    start.set()
    for _ in range(3):
        await asyncio.sleep(0)  # each client sends its first request
    connection.send(None)
    with contextlib.suppress(EOFError, OSError):
        await asyncio.to_thread(connection.recv)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    connection.send(dict(statuses))
    os._exit(0)


async def _connected(number: int, port: int, plan: Crowd) -> Streams:
    source = (f"127.0.0.{1 + number % plan.addresses}", 0)
    return await asyncio.open_connection(HOST, port, local_addr=source)


async def _client(
    number: int, port: int, plan: Crowd, streams: Streams | None, start: asyncio.Event, statuses: "Counter[str]"
) -> None:
    await start.wait()
    done = 0
    while plan.times is None or done < plan.times:
        asked = plan.requests[(number + done) % len(plan.requests)]
        try:
            streams = streams or await _connected(number, port, plan)
            statuses[await _asked(*streams, asked)] += 1
        except (OSError, asyncio.IncompleteReadError):
            statuses["cut"] += 1
            streams = None
        done += 1
        await asyncio.sleep(plan.pause_s)


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes) -> str:
    writer.write(asked.replace(FRESH, uuid.uuid4().hex.encode()))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    return head[9:12].decode()


# Other processes of the offender ---------------------------------------------------------------------------------


def _run_command(argv: Sequence[str], environment: dict[str, str], log: str, connection: Connection) -> None:
    end_with_parent()
    os.environ.update(environment)
    with Path(log).open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    import sys

    from booking_cli.main import main

    sys.argv = ["booking", *argv]
    connection.send(None)
    sys.exit(main())


@contextmanager
def command(argv: Sequence[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run `booking` with these arguments in a separate process while the body runs."""
    process, connection = started(_run_command, tuple(argv), environment, str(log))
    try:
        connection.recv()
        yield
    finally:
        stop(process, connection)


# The noise of the machine ----------------------------------------------------------------------------------------


class Lateness:
    """The lateness of the wake-ups of a sleeping process in seconds: the worst since the last call.

    It measures the noise of other programs on the machine, which no organization of the service causes.
    """

    def __init__(self) -> None:
        self._process, self._connection = started(_sleep_and_look)

    def worst_s(self) -> float:
        """Return the worst lateness since the last call."""
        self._connection.send(None)
        return float(self._connection.recv())

    def close(self) -> None:
        """End the process."""
        stop(self._process, self._connection)


def _sleep_and_look(connection: Connection) -> None:
    end_with_parent()
    pause, worst = 0.002, 0.0
    while True:
        before = time.perf_counter()
        time.sleep(pause)
        worst = max(worst, time.perf_counter() - before - pause)
        if connection.poll():
            connection.recv()
            connection.send(worst)
            worst = 0.0
