"""Responses over real sockets, complete for clients that read them, and ended for clients that do not."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
import uvloop

from booking_server.transport.protocol import Deadlines, HttpProtocol


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    body = b"hello " * (50_000 if scope["path"] == "/long" else 1)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(_hello, http=HttpProtocol, lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            await serving


def test_a_client_receives_short_and_long_responses_completely() -> None:
    async def ask() -> tuple[bytes, bytes]:
        async with served() as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
            short = b""
            while not short.endswith(b"hello "):
                short += await reader.read(65_536)
            writer.write(b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            long = await reader.read()
            writer.close()
        return short, long

    short, long = asyncio.run(ask())
    assert short.endswith(b"\r\n\r\nhello ")
    assert long.partition(b"\r\n\r\n")[2] == b"hello " * 50_000


def test_two_hundred_clients_that_read_nothing_are_gone_after_the_write_deadline(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(HttpProtocol, "deadlines", Deadlines(write_s=0.2))

    async def ask() -> list[bool]:
        async with served() as address:
            clients = []
            for _ in range(200):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, address)
                client.send(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n" * 40)
                clients.append(client)
            while not all(map(is_reset, clients)):
                await asyncio.sleep(0.05)
            for client in clients:
                client.close()
        return [True]

    assert uvloop.run(asyncio.wait_for(ask(), 60))
    assert caplog.records == []


def is_reset(client: socket.socket) -> bool:
    """Return whether the server has aborted the connection, without reading from it."""
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0 or state_of(client) != "established"


def state_of(client: socket.socket) -> str:
    """Return whether a TCP connection is established."""
    return "established" if client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1 else "ended"
