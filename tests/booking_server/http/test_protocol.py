"""The coalescing transport sends the head and the body of a response together."""

import asyncio
import socket
from typing import Any

import uvicorn

from booking_server.http.protocol import CoalescingTransport, HttpProtocol


class RecordingTransport:
    """A transport that records its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("closed")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


def recorded(*actions: Any) -> list[object]:
    """Run each action in a turn of the loop of its own, and return the calls of the underlying transport."""

    async def run() -> list[object]:
        underlying = RecordingTransport()
        transport = CoalescingTransport(underlying, asyncio.get_running_loop(), underlying.close)
        for action in actions:
            action(transport)
            await asyncio.sleep(0)
        return underlying.calls

    return asyncio.run(run())


def test_writes_of_one_turn_are_sent_together() -> None:
    def respond(transport: CoalescingTransport) -> None:
        transport.write(b"head ")
        transport.write(b"body")

    assert recorded(respond, respond) == [b"head body", b"head body"]


def test_close_sends_the_buffered_writes_first() -> None:
    def respond_and_close(transport: CoalescingTransport) -> None:
        transport.write(b"the last response")
        transport.close()

    assert recorded(respond_and_close, lambda transport: None) == [b"the last response", "closed"]


def test_nothing_is_written_to_a_lost_connection() -> None:
    def respond_and_lose(transport: CoalescingTransport) -> None:
        transport.write(b"too late")
        transport._transport.closing = True

    assert recorded(respond_and_lose) == []


def test_other_attributes_are_the_underlying_transports() -> None:
    seen = []
    recorded(lambda transport: seen.append(transport.get_extra_info("peername")))
    assert seen == ["the peername"]


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    body = b"hello " * (50_000 if scope["path"] == "/long" else 1)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def test_a_client_receives_short_and_long_responses_completely() -> None:
    async def ask() -> tuple[bytes, bytes]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(_hello, http=HttpProtocol, lifespan="off", log_level="warning"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
            short = await reader.read(65_536)
            writer.write(b"GET /long HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            long = await reader.read()
            writer.close()
            server.should_exit = True
            await serving
        return short, long

    short, long = asyncio.run(ask())
    assert short.endswith(b"\r\n\r\nhello ")
    assert long.partition(b"\r\n\r\n")[2] == b"hello " * 50_000
