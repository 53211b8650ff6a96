"""A minimal server: it reads the bytes of a request, and writes an answer.

`python -m bench.sink PORT`. It does not parse the bytes, so each request has to arrive in one piece, like the requests
of the load client and of the worker. Its CPU time next to a service is the minimum for any server that answers as many
requests. `GET /-/count` returns the number of requests since the previous count, and the time of the first one, on the
monotonic clock that all processes of a machine share.
"""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from support.serving.servers import free_port

from bench.processes import HOST, Server, serving

_PIECE = 64 * 1024
_COUNT = b"GET /-/count"
ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def served() -> Iterator[Server]:
    """Run the server in a separate process."""
    port = free_port()
    with serving([sys.executable, "-m", "bench.sink", str(port)], port=port) as server:
        yield server


class _Sink:
    """The open connections, and the requests that arrived on them."""

    def __init__(self) -> None:
        self.connections: dict[int, socket.socket] = {}
        self.count = 0
        self.first_at = 0.0

    def serve(self, port: int) -> None:
        """Answer all requests, endlessly."""
        with socket.create_server((HOST, port), backlog=4096) as listener, select.epoll() as poll:
            poll.register(listener, select.EPOLLIN)
            while True:
                for fd, _ in poll.poll():
                    if fd == listener.fileno():
                        accepted, _ = listener.accept()
                        self.connections[accepted.fileno()] = accepted
                        poll.register(accepted, select.EPOLLIN)
                    elif not self._answer(fd):
                        self.connections.pop(fd).close()

    def _answer(self, fd: int) -> bool:
        """Answer the request on a connection; return False if its client has closed it."""
        try:
            request = os.read(fd, _PIECE)
            if request:
                os.write(fd, self._counted() if request.startswith(_COUNT) else self._add())
        except OSError:
            return False
        return bool(request)

    def _add(self) -> bytes:
        self.first_at = self.first_at or time.monotonic()
        self.count += 1
        return ANSWER

    def _counted(self) -> bytes:
        body = json.dumps({"count": self.count, "first_at": self.first_at}).encode()
        self.count, self.first_at = 0, 0.0
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


if __name__ == "__main__":
    _Sink().serve(int(sys.argv[1]))
