"""A server of bare sockets that answers each connection with a script, including scripts against the protocol."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket, bytes], None]


def request_of(connection: socket.socket) -> bytes:
    """Read the next request of a connection; empty when the client disconnected."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65_536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


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
    open_connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while request := request_of(connection):
                script(connection, request)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_connections.append(connection)
                thread = threading.Thread(target=serve, args=(connection,), daemon=True)
                threads.append(thread)
                thread.start()

    listener = socket.create_server(("127.0.0.1", 0))
    threads = [threading.Thread(target=accept, daemon=True)]
    threads[0].start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
