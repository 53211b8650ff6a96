"""A proxy to PostgreSQL that responds like a server in recovery, until the test ends the recovery."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import make_url

_PIECE = 65_536


class Recovering:
    """Refuses connections with an SQLSTATE until the recovery ends, then passes them on to the server."""

    def __init__(self, url: str, sqlstate: str = "57P03") -> None:
        self._target = make_url(url)
        self._sqlstate = sqlstate.encode()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.is_over = threading.Event()

    @property
    def url(self) -> str:
        """The URL of the database through this server."""
        port = self._listener.getsockname()[1]
        by_way = self._target.set(host="127.0.0.1", port=port, query={"sslmode": "disable", "gssencmode": "disable"})
        return by_way.render_as_string(hide_password=False)

    def accept(self) -> None:
        """Accept connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self.is_over.is_set():
                self._pass_on(client)
                return
            client.recv(_PIECE)
            fields = (
                b"SFATAL\0VFATAL\0C" + self._sqlstate + b"\0Mthe database system is not yet accepting connections\0\0"
            )
            client.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    def _pass_on(self, client: socket.socket) -> None:
        target = self._target
        host, port = str(target.query.get("host", target.host)), int(str(target.query.get("port", target.port or 5432)))
        with _connected(host, port) as server:
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)


def _connected(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    server.connect(f"{host}/.s.PGSQL.{port}")
    return server


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def recovering(url: str, sqlstate: str = "57P03") -> Iterator[Recovering]:
    """Yield a server in recovery, in front of the URL's server."""
    server = Recovering(url, sqlstate)
    threading.Thread(target=server.accept, daemon=True).start()
    try:
        yield server
    finally:
        server.close()
