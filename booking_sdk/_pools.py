"""What the SDK knows of the inside of httpx's connection pools, and what it puts right there.

httpx 0.28 stands on httpcore 1.0. Its pool loses a connection's place for good when a request is cancelled at certain
points (encode/httpcore#1093), and its timeouts begin anew with every read. Names are looked up, never assumed: where a
transport has none of them, such as a mock or another library's, nothing is done.
"""

from contextlib import suppress
from typing import Any

from booking_sdk._budget import Budget, Seconds


def _pools(client: Any) -> list[Any]:
    """Return the connection pools of a client, also those of its proxies."""
    transports = [getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values()]
    pools = [getattr(transport, "_pool", None) for transport in transports]
    return [pool for pool in pools if hasattr(pool, "_connections") and hasattr(pool, "_requests")]


def take_lost(client: Any, budget: Budget) -> list[Any]:
    """Remove from a client's pools what a failed attempt left there, and return the connections that are to be closed.

    Call it when the attempt with this budget is over: its request must not be waiting any more, and a connection that
    is neither idle nor closed must belong to a request. The places go to the requests that wait for one.
    """
    return [connection for pool in _pools(client) for connection in _taken(pool, budget)]


def _taken(pool: Any, budget: Budget) -> list[Any]:
    with pool._optional_thread_lock:
        pool._requests[:] = [one for one in pool._requests if one.request.extensions.get("timeout") is not budget]
        in_use = {id(request.connection) for request in pool._requests}
        lost = [one for one in pool._connections if id(one) not in in_use and not (one.is_idle() or one.is_closed())]
        if not lost:
            return []
        pool._connections[:] = [one for one in pool._connections if one not in lost]
        return lost + list(pool._assign_requests_to_connections())


def hold_deadlines(client: Any) -> None:
    """Make the blocking reads and writes of a client end with the attempt that they are part of."""
    for pool in _pools(client):
        backend = getattr(pool, "_network_backend", None)
        if backend is not None and not isinstance(backend, _TimedBackend):
            pool._network_backend = _TimedBackend(backend)


class _TimedBackend:
    """A network backend whose streams look at the clock before every read."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def connect_tcp(self, *arguments: Any, **keywords: Any) -> Any:
        return _TimedStream(self._backend.connect_tcp(*arguments, **keywords))

    def connect_unix_socket(self, *arguments: Any, **keywords: Any) -> Any:
        return _TimedStream(self._backend.connect_unix_socket(*arguments, **keywords))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


_WRITE_BYTES = 65_536


class _TimedStream:
    """A network stream that gives each read and write what is left of the attempt then."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, timeout=_left(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], timeout=_left(timeout))

    def start_tls(self, *arguments: Any, **keywords: Any) -> Any:
        return _TimedStream(self._stream.start_tls(*arguments, **keywords))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _left(timeout: float | None) -> float | None:
    return timeout.left() if isinstance(timeout, Seconds) else timeout


def sever(client: Any) -> None:
    """Close the sockets of an async client whose event loop is closed.

    The loop cannot run what closes them properly any more. Left to the garbage collector, each would be reported as
    unclosed.
    """
    for pool in _pools(client):
        for connection in pool._connections:
            transport = _asyncio_transport(connection)
            if transport is None or getattr(transport, "_sock", None) is None:
                continue
            with suppress(Exception):
                transport.abort()
            with suppress(Exception):
                transport._call_connection_lost(None)


_INWARDS = ("_connection", "_network_stream", "_stream", "transport_stream", "_transport")


def _asyncio_transport(connection: Any) -> Any:
    """Return the transport below a connection, its protocol and its TLS; None when there is none."""
    layer = connection
    while layer is not None and not hasattr(layer, "abort"):
        layer = next((inner for name in _INWARDS if (inner := getattr(layer, name, None)) is not None), None)
    return layer
