"""A server that answers every request with canned bytes, so only the client's cost is measured.

`python -m bench.canned PORT` with a JSON object of paths and bodies in BENCH_CANNED. Any other path gets an empty 204,
so it is also the sink for webhooks. `GET /-/count` returns the number of requests since the previous count, and the
time of the first one, on the monotonic clock that all processes of a machine share.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import httptools

from bench.processes import HOST, Server, free_port, serving

_COUNT = "/-/count"


@contextmanager
def served(bodies: Mapping[str, str]) -> Iterator[Server]:
    """Run a canned server in a separate process."""
    port = free_port()
    command = [sys.executable, "-m", "bench.canned", str(port)]
    with serving(command, port=port, env={"BENCH_CANNED": json.dumps(bodies)}) as server:
        yield server


class _Seen:
    """The requests that arrived."""

    def __init__(self) -> None:
        self.count = 0
        self.first_at = 0.0

    def add(self) -> None:
        self.first_at = self.first_at or time.monotonic()
        self.count += 1

    def rendered(self) -> bytes:
        found = json.dumps({"count": self.count, "first_at": self.first_at}).encode()
        self.count, self.first_at = 0, 0.0
        return _response("200 OK", found)


class _Connection(asyncio.Protocol):
    """Requests on one connection, each answered when it is complete."""

    def __init__(self, seen: _Seen, answers: Mapping[str, bytes]) -> None:
        self._seen = seen
        self._answers = answers
        self._path = ""
        self._parser: Any = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url.split(b"?")[0].decode()

    def on_message_complete(self) -> None:
        if self._path == _COUNT:
            self._transport.write(self._seen.rendered())
            return
        self._seen.add()
        self._transport.write(self._answers.get(self._path, _NOTHING))


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_NOTHING = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


async def _serve(port: int, bodies: Mapping[str, str]) -> None:
    seen, answers = _Seen(), {path: _response("200 OK", body.encode()) for path, body in bodies.items()}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(seen, answers), HOST, port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1]), json.loads(os.environ["BENCH_CANNED"])))
