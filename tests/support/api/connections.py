"""Connections of the HTTP protocol class without sockets, on an event loop with a manual clock."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from booking_server.transport.protocol import UNREAD_BYTES_MAX, HttpProtocol

_TURNS = 12
"""Iterations of the loop, enough to handle one piece of bytes."""
_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time only the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0.0

    def time(self) -> float:
        return self.moved


class Transport:
    """A transport that records the written bytes and its end."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.written = bytearray()
        self.state = "open"
        """At the end "half-closed", "closed" or "aborted"."""
        self.is_reading = True
        self.unread = 0
        """The bytes of responses that the client has not read, as the test sets them."""

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == UNREAD_BYTES_MAX

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        assert self.state == "open", "written after the end"
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        assert self.state == "open"
        self.state = "half-closed"

    def close(self) -> None:
        self._lose("closed")

    def abort(self) -> None:
        self._lose("aborted")

    def _lose(self, state: str) -> None:
        if not self.is_closing():
            self.state = state
            self._connection.loop.call_soon(self._connection.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.state in ("closed", "aborted")

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True
        self._connection.loop.call_soon(self._connection.deliver)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection.peer if name == "peername" else default


@dataclass(frozen=True)
class Response:
    """A response of the connection."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """A client's side of one connection."""

    def __init__(
        self,
        loop: SteppedLoop,
        app: Any,
        *,
        peer: tuple[object, ...] | None = None,
        state: dict[str, Any] | None = None,
        proxy_headers: bool = False,
    ) -> None:
        self.loop = loop
        self.peer = peer
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            lifespan="off",
            log_config=None,
            timeout_keep_alive=75,
            proxy_headers=proxy_headers,
            forwarded_allow_ips="*",
        )
        config.load()
        self.protocol = HttpProtocol(config=config, server_state=ServerState(), app_state=state or {}, _loop=loop)
        self.transport = Transport(self)
        self._undelivered: deque[bytes] = deque()
        self.protocol.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        """Send the pieces, each in a separate iteration of the loop."""
        for piece in pieces:
            self._undelivered.append(piece)
            self.deliver()
            self.settle()

    def deliver(self) -> None:
        while self._undelivered and self.transport.is_reading and not self.transport.is_closing():
            self.protocol.data_received(self._undelivered.popleft())

    def settle(self) -> None:
        """Run the loop until nothing more is ready."""

        async def turn() -> None:
            for _ in range(_TURNS):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turn())

    def pass_time(self, seconds: float) -> None:
        self.loop.moved += seconds
        self.settle()

    @property
    def state(self) -> str:
        return self.transport.state

    @property
    def responses(self) -> list[Response]:
        """Every response except "100 Continue"."""
        return list(parsed(bytes(self.transport.written)))


def parsed(written: bytes) -> Iterator[Response]:
    """Yield the responses in the order they were written."""
    while written:
        head = _HEAD.match(written)
        assert head, written[:200]
        headers = {}
        for line in head[2].decode().splitlines():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        end = head.end() + int(headers.get("content-length", 0))
        if head[1] != b"100":
            yield Response(int(head[1]), headers, written[head.end() : end])
        written = written[end:]


@contextmanager
def stepped_loop() -> Iterator[SteppedLoop]:
    """Run an event loop for the connections of one test."""
    loop = SteppedLoop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        asyncio.set_event_loop(None)
        loop.close()


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Read the whole body, and respond with a description of the request."""
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        more = message["more_body"]
    request = {"method": scope["method"], "path": scope["path"], "query": scope["query_string"].decode("latin-1")}
    fields = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
    await respond(send, json.dumps(request | {"headers": fields, "body": body.decode("latin-1")}).encode())


async def respond(send: Any, body: bytes, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send a whole response."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
