"""Proxies between the service and PostgreSQL: one cuts a connection during its commit, one is a server in recovery."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from sqlalchemy.engine import make_url

_PIECE = 65_536
_COMMIT, _NOTIFY = b"COMMIT\0", b"NOTIFY "


class _Proxy:
    """Listens in front of a server, and serves each connection in a thread."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """The URL of the database through this proxy. Unencrypted, since the proxy reads the messages."""
        port = self._listener.getsockname()[1]
        by_proxy = self._target.set(host="127.0.0.1", port=port, query={"sslmode": "disable", "gssencmode": "disable"})
        return by_proxy.render_as_string(hide_password=False)

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        hang_up(*self._sockets)
        for thread in self._threads:
            thread.join()
        for connection in self._sockets:
            connection.close()

    def spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                self.spawn(self.serve, client)

    def connect(self) -> socket.socket:
        """Open a connection to the server."""
        target = self._target
        host, port = (
            str(target.query.get("host") or target.host),
            int(str(target.query.get("port") or target.port or 5432)),
        )
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(f"{host}/.s.PGSQL.{port}")
        else:
            server = socket.create_connection((host, port))
        self._sockets.append(server)
        return server


class CommitCutter(_Proxy):
    """Passes all data on. Once armed, it cuts the connection that commits next.

    It cuts before the COMMIT reaches the server, or after the server has committed and before the client knows. In the
    first case the client learns it once the server has rolled back: until then its locks refuse another attempt.
    Commits of notifications are passed on.
    """

    _armed: str | None = None

    def cut(self, when: str) -> None:
        """Arm the proxy for one commit: `before` or `after` the server has executed it."""
        self._armed = when

    @property
    def is_armed(self) -> bool:
        return self._armed is not None

    def serve(self, client: socket.socket) -> None:
        server = self.connect()
        self.spawn(self._pass_back, client, server)
        while piece := receive(client):
            if self._armed in ("before", "after") and _COMMIT in piece and _NOTIFY not in piece:
                if self._armed == "before":
                    self._armed = None
                    server.shutdown(socket.SHUT_WR)
                    return
                self._armed = f"after {id(server)}"
            send(server, piece)
        hang_up(client, server)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> None:
        while piece := receive(server):
            if self._armed == f"after {id(server)}":
                self._armed = None
                break
            send(client, piece)
        hang_up(client, server)


class Recovering(_Proxy):
    """Refuses connections with an SQLSTATE until the recovery ends, then passes them on to the server."""

    def __init__(self, url: str, sqlstate: str = "57P03") -> None:
        super().__init__(url)
        self._sqlstate = sqlstate.encode()
        self.is_over = threading.Event()

    def serve(self, client: socket.socket) -> None:
        if self.is_over.is_set():
            server = self.connect()
            self.spawn(_copy, server, client)
            _copy(client, server)
            return
        receive(client)
        text = b"the database system is not yet accepting connections"
        fields = b"SFATAL\0VFATAL\0C" + self._sqlstate + b"\0M" + text + b"\0\0"
        send(client, b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
        hang_up(client)


def _copy(source: socket.socket, target: socket.socket) -> None:
    while piece := receive(source):
        send(target, piece)
    hang_up(source, target)


def receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_PIECE)
    except OSError:
        return b""


def send(side: socket.socket, piece: bytes) -> None:
    with contextlib.suppress(OSError):  # it was cut in the meantime, and its reader gets the error
        side.sendall(piece)


def hang_up(*sides: socket.socket) -> None:
    for side in sides:
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
