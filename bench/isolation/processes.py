"""Processes of the harness: the service, and crowds of clients.

All are forked from one process that has imported the service: each starts within a tenth of a second.
"""

import asyncio
import itertools
import logging
import multiprocessing
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
_READY_S = 60.0
_BACKLOG = 2048
_KEEP_ALIVE_S = 75

_context = multiprocessing.get_context("forkserver")
# Only installed packages: the fork server does not have the test folder on its path.
_context.set_forkserver_preload(
    [
        "booking_server.app",
        "booking_server.transport.protocol",
        "booking_server.adapters.stripe",
        "booking_cli.operator.server_app",
        "psycopg",
        "uvicorn.lifespan.on",
        "uvloop",
    ]
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def started(target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """Start a process; return it, and the connection whose other end is the last argument of the target."""
    own, other = _context.Pipe()
    process = _context.Process(target=target, args=(*arguments, other), daemon=True)
    process.start()
    other.close()
    return process, own


def stop(process: Any, connection: Connection) -> None:
    """Kill the process, as a power cut would: nothing waits for its work."""
    process.kill()
    process.join()
    process.close()
    connection.close()


# The service -----------------------------------------------------------------------------------------------------


class ServiceProcess:
    """The service with its worker, as `booking serve` runs it, in one process."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._process, self._control = started(_serve, settings, str(log))
        assert self._control.poll(_READY_S), f"the service did not start: {log.read_text()[-2000:]}"
        self.port = int(self._control.recv())

    def kill(self) -> None:
        """End the process."""
        stop(self._process, self._control)


def _serve(settings: Settings, log: str, control: Connection) -> None:
    end_with_parent()
    logging.basicConfig(filename=log, level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    config = uvicorn.Config(
        create_app(settings, worker=True),
        loop="uvloop",
        http="booking_server.transport.protocol:HttpProtocol",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    listener = socket.create_server((HOST, 0), backlog=_BACKLOG)
    control.send(listener.getsockname()[1])
    uvicorn.Server(config).run(sockets=[listener])


# Crowds ----------------------------------------------------------------------------------------------------------


def request(method: str, path: str, key: str, body: bytes | None = None) -> bytes:
    """Return a rendered request; a body comes with a fresh Idempotency-Key."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}", f"Authorization: Bearer {key}"]
    if body is not None:
        length = len(body) + body.count(FRESH) * (32 - len(FRESH))
        lines += [f"Idempotency-Key: {FRESH.decode()}", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


@contextmanager
def crowd(port: int, requests: Sequence[bytes], clients: int) -> Iterator[None]:
    """Let clients call the service while the body runs, each with one request at a time on its own connection.

    Client number n begins with the n-th request. The body begins when each client has sent its first request.
    """
    process, connection = started(_run_crowd, port, tuple(requests), clients)
    try:
        assert connection.poll(_READY_S), "the crowd did not connect"
        connection.recv()
        yield
    finally:
        stop(process, connection)


def _run_crowd(port: int, requests: Sequence[bytes], clients: int, connection: Connection) -> None:
    end_with_parent()
    asyncio.run(_crowd(port, requests, clients, connection))


async def _crowd(port: int, requests: Sequence[bytes], clients: int, connection: Connection) -> None:
    connections = await asyncio.gather(*(asyncio.open_connection(HOST, port) for _ in range(clients)))
    tasks = []
    for number, streams in enumerate(connections):
        first = number % len(requests)
        tasks.append(asyncio.create_task(_client(port, streams, (*requests[first:], *requests[:first]))))
    await asyncio.sleep(0)  # each client sends its first request
    connection.send(None)
    await asyncio.gather(*tasks)


async def _client(port: int, streams: Streams, requests: Sequence[bytes]) -> None:
    for rendered in itertools.cycle(requests):
        try:
            await _exchange(*streams, rendered)
        except (OSError, asyncio.IncompleteReadError):
            streams = await asyncio.open_connection(HOST, port)


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rendered: bytes) -> None:
    writer.write(rendered.replace(FRESH, uuid.uuid4().hex.encode()))
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
