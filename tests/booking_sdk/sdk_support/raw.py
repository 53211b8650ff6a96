"""A server of bare sockets that answers each connection with a script, including scripts against the protocol."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from support.receivers.sockets import Call, Receiver

Script = Callable[[socket.socket, bytes], None]


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def drip(connection: socket.socket, piece: bytes, before: bytes = b"") -> None:
    """Send a piece repeatedly, faster than any read timeout, until the client disconnects."""
    connection.sendall(before)
    for _ in range(2_000):
        connection.sendall(piece)
        time.sleep(0.01)


@contextmanager
def scripted_server(script: Script) -> Iterator[str]:
    """Run a server that plays the script for every request, and yield its URL."""

    def handle(call: Call) -> None:
        while call.read():
            script(call.conn, call.receiver.requests[-1])

    with closing(Receiver(handle)) as running:
        yield running.url(path="")
