"""Head and body of an answer leave in one piece."""

import asyncio
import socket
from typing import Any

import uvicorn

from booking_server.protocol import HttpProtocol, OnePiece


class Wire:
    """A transport that remembers what it was told."""

    def __init__(self) -> None:
        self.did: list[object] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.did.append(data)

    def close(self) -> None:
        self.did.append("closed")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


def told(*acts: Any) -> list[object]:
    """What reaches the wire when these are done in one turn of the loop each."""

    async def run() -> list[object]:
        wire = Wire()
        transport = OnePiece(wire, asyncio.get_running_loop(), wire.close)
        for act in acts:
            act(transport)
            await asyncio.sleep(0)
        return wire.did

    return asyncio.run(run())


def test_what_one_turn_writes_is_sent_together() -> None:
    def answer(transport: OnePiece) -> None:
        transport.write(b"head ")
        transport.write(b"body")

    assert told(answer, answer) == [b"head body", b"head body"]


def test_closing_sends_what_is_left_first() -> None:
    def answer_and_close(transport: OnePiece) -> None:
        transport.write(b"the last answer")
        transport.close()

    assert told(answer_and_close, lambda transport: None) == [b"the last answer", "closed"]


def test_nothing_is_written_to_a_connection_that_was_lost_meanwhile() -> None:
    def answer_and_lose(transport: OnePiece) -> None:
        transport.write(b"too late")
        transport._transport.closing = True

    assert told(answer_and_lose) == []


def test_everything_else_is_the_transports_own() -> None:
    seen = []
    told(lambda transport: seen.append(transport.get_extra_info("peername")))
    assert seen == ["the peername"]


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    body = b"hello " * (50_000 if scope["path"] == "/long" else 1)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def test_a_client_gets_a_short_answer_at_once_and_a_long_one_whole() -> None:
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
