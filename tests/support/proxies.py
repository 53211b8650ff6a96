"""A proxy between the service and PostgreSQL that cuts a connection during its commit."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Any

from sqlalchemy.engine import URL, make_url

_PIECE = 65_536
_COMMIT = b"COMMIT\0"


class CommitCutter:
    """Passes all data on. Once armed, it cuts the connection that commits next.

    It cuts before the COMMIT reaches the server, or after the server has committed and before the client knows.
    """

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._armed: str | None = None
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def url(self) -> str:
        """The URL of the database through this proxy. Unencrypted, since the proxy has to see the COMMIT."""
        port = self._listener.getsockname()[1]
        by_proxy = self._target.set(host="127.0.0.1", port=port, query={"sslmode": "disable", "gssencmode": "disable"})
        return by_proxy.render_as_string(hide_password=False)

    def cut(self, when: str) -> None:
        """Arm the proxy for one commit: `before` or `after` the server has executed it."""
        self._armed = when

    @property
    def is_armed(self) -> bool:
        return self._armed is not None

    def __enter__(self) -> "CommitCutter":
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            _hang_up(each)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            server = _connect(self._target)
            self._sockets += [client, server]
            self._spawn(self._pass_on, client, server)
            self._spawn(self._pass_back, client, server)

    def _spawn(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while piece := _receive(client):
            if self._armed == "before" and _COMMIT in piece:
                self._armed = None
                break
            if self._armed == "after" and _COMMIT in piece:
                self._armed = f"after {id(server)}"
            _send(server, piece)
        _hang_up(client)
        _hang_up(server)

    def _pass_back(self, client: socket.socket, server: socket.socket) -> None:
        while piece := _receive(server):
            if self._armed == f"after {id(server)}":
                self._armed = None
                break
            _send(client, piece)
        _hang_up(client)
        _hang_up(server)


def _connect(target: URL) -> socket.socket:
    host = str(target.query.get("host") or target.host or "127.0.0.1")
    port = int(str(target.query.get("port") or target.port or 5432))
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(f"{host}/.s.PGSQL.{port}")
    return connection


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_PIECE)
    except OSError:
        return b""


def _send(side: socket.socket, piece: bytes) -> None:
    with contextlib.suppress(OSError):  # it was cut in the meantime, and its reader gets the error
        side.sendall(piece)


def _hang_up(side: socket.socket) -> None:
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
