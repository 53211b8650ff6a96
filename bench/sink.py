"""A minimal server: it reads the bytes of a request, and writes an answer.

`python -m bench.sink PORT`. It does not parse the bytes, so each request has to arrive in one piece, like the requests
of the load client and of the worker. Its CPU time next to a service is the minimum for any server that answers as many
requests. `GET /-/count` returns the number of requests since the previous count, and the time of the first one, on the
monotonic clock that all processes of a machine share.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvloop
from support.serving.servers import free_port

from bench.processes import HOST, Server, serving

_COUNT = b"GET /-/count"
ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def served() -> Iterator[Server]:
    """Run the server in a separate process."""
    port = free_port()
    with serving([sys.executable, "-m", "bench.sink", str(port)], port=port) as server:
        yield server


def counted(server: Server) -> Any:
    """Return the `count` of requests since the last call, and when the first one arrived, `first_at`."""
    return httpx.get(f"http://{HOST}:{server.port}/-/count").json()


class _Connection(asyncio.Protocol):
    """A connection of a client."""

    arrivals: tuple[int, float] = 0, 0.0
    """The number of requests on all connections, and the time of the first one."""

    def connection_made(self, transport: Any) -> None:
        self.write = transport.write

    def data_received(self, data: bytes) -> None:
        count, first_at = _Connection.arrivals
        if not data.startswith(_COUNT):
            _Connection.arrivals = count + 1, first_at or time.monotonic()
            self.write(ANSWER)
            return
        _Connection.arrivals = 0, 0.0
        body = json.dumps({"count": count, "first_at": first_at}).encode()
        self.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, HOST, port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
