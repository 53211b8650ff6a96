"""A minimal server: it reads the bytes of a request, and writes an answer.

`python -m bench.sink PORT`. It does not parse the bytes, so each request has to arrive in one piece, like the requests
of the load client. Its CPU time next to a service is the minimum for any server that answers as many requests.
"""

import os
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.processes import HOST, Server, free_port, serving

_PIECE = 64 * 1024
_BODY = b'{"error": "The service is busy.", "code": "service_unavailable"}'
ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)


@contextmanager
def served() -> Iterator[Server]:
    """Run the server in a separate process."""
    port = free_port()
    with serving([sys.executable, "-m", "bench.sink", str(port)], port=port) as server:
        yield server


def answer_all(port: int) -> None:
    """Answer all requests, endlessly."""
    connections: dict[int, socket.socket] = {}
    with socket.create_server((HOST, port), backlog=4096) as listener, select.epoll() as poll:
        poll.register(listener, select.EPOLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == listener.fileno():
                    accepted, _ = listener.accept()
                    connections[accepted.fileno()] = accepted
                    poll.register(accepted, select.EPOLLIN)
                elif not _answer(fd):
                    connections.pop(fd).close()


def _answer(fd: int) -> bool:
    """Answer the request on a connection; return False if its client has closed it."""
    try:
        if not os.read(fd, _PIECE):
            return False
        os.write(fd, ANSWER)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    answer_all(int(sys.argv[1]))
