"""Servers of bare sockets, each connection with a function: also what no server of HTTP sends, and when none sends."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable

HOST = "127.0.0.1"


class Call:
    """A connection that a receiver has accepted."""

    def __init__(self, conn: socket.socket, receiver: "Receiver") -> None:
        self.conn = conn
        self.receiver = receiver

    def read(self) -> bytes:
        """Read and record a request, and return its head; return nothing when the client has closed the connection."""
        read = b""
        while b"\r\n\r\n" not in read:
            if not (piece := self.conn.recv(65_536)):
                return b""
            read += piece
        head, _, body = read.partition(b"\r\n\r\n")
        lengths = (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        length = next(lengths, 0)
        while len(body) < length:
            body += self.conn.recv(65_536)
        self.receiver.requests.append(head + b"\r\n\r\n" + body)
        return head

    def send(self, data: bytes) -> None:
        self.conn.sendall(data)

    def drip(self, data: bytes, every_s: float = 0.01) -> None:
        """Byte by byte, for as long as the sender listens."""
        for at in range(len(data)):
            if self.receiver.closing.wait(every_s):
                return
            self.conn.sendall(data[at : at + 1])

    def pour(self, piece: bytes, size: int = 1 << 30) -> None:
        """So many bytes, or as many as the sender takes."""
        while size > 0 and not self.receiver.closing.is_set():
            self.conn.sendall(piece)
            size -= len(piece)

    def wait_until_left(self) -> None:
        """Says nothing until the sender closes."""
        while self.conn.recv(65_536):
            pass

    def reset(self) -> None:
        """Ends with RST instead of FIN."""
        self.conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.conn.close()


Handle = Callable[[Call], None]


class Receiver:
    """A server that runs a function for each connection, in a separate thread."""

    def __init__(self, handle: Handle, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.endings = threading.Semaphore(0)
        """Released for each connection that has ended."""
        self.closing = threading.Event()
        self._handle = handle
        self._tls = tls
        self._listener = socket.create_server((HOST, 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def url(self, host: str = HOST, path: str = "/hook", scheme: str = "") -> str:
        return f"{scheme or ('https' if self._tls else 'http')}://{host}:{self.port}{path}"

    @property
    def bodies(self) -> list[bytes]:
        return [request.partition(b"\r\n\r\n")[2] for request in self.requests]

    def close(self) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in list(self._open):
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=30)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(conn)
            thread = threading.Thread(target=self._serve, args=(conn,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, conn: socket.socket) -> None:
        secured: socket.socket = conn
        try:
            with contextlib.suppress(OSError):
                if self._tls:
                    secured = self._tls.wrap_socket(conn, server_side=True)
                    self._open.add(secured)
                self._handle(Call(secured, self))
        finally:
            self._open -= {conn, secured}
            secured.close()
            conn.close()
            self.endings.release()
