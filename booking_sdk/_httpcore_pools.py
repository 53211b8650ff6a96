"""Workarounds for httpcore's connection pools, which use their private attributes. No other module does.

Three promises of the SDK have no public way through httpx, whose transports pass neither the sockets nor the places of
a pool: an attempt ends in time whatever arrives, since httpcore's timeouts restart with every read; any number of
cancelled calls leaves a client that works, since the pool loses a place when a request is cancelled at certain points
(encode/httpcore#1093); and a closed event loop leaves no socket open. `tests/booking_sdk/test_attempts.py` fails
without this module. The metadata allows the releases of httpcore that have the attributes, and
`tests/architecture/test_private_parts.py` names the one that a newer release lacks. For a transport without them, such
as a mock or another library's, these functions do nothing.
"""

from contextlib import suppress
from typing import Any, TypeVar

from booking_sdk._attempt_timeout import AttemptTimeout, PhaseTimeout

ClientT = TypeVar("ClientT")


def _pools(client: Any) -> list[Any]:
    """Return the connection pools of a client, including the pools of its proxies."""
    transports = [getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values()]
    pools = [getattr(transport, "_pool", None) for transport in transports]
    return [pool for pool in pools if hasattr(pool, "_connections") and hasattr(pool, "_requests")]


def take_leaked(client: Any, timeout: AttemptTimeout) -> list[Any]:
    """Remove the request and connections that a failed attempt left in the pools, and return the connections to close.

    Call this after the attempt with this timeout has ended: its request must no longer wait, and every connection that
    is neither idle nor closed must belong to a request. The freed slots go to the requests that wait for one.
    """
    return [connection for pool in _pools(client) for connection in _take_leaked_from(pool, timeout)]


def _take_leaked_from(pool: Any, timeout: AttemptTimeout) -> list[Any]:
    with pool._optional_thread_lock:
        pool._requests[:] = [one for one in pool._requests if one.request.extensions.get("timeout") is not timeout]
        in_use = {id(request.connection) for request in pool._requests}
        leaked = [one for one in pool._connections if id(one) not in in_use and not (one.is_idle() or one.is_closed())]
        if not leaked:
            return []
        pool._connections[:] = [one for one in pool._connections if one not in leaked]
        return leaked + list(pool._assign_requests_to_connections())


def hold_deadlines(client: ClientT) -> ClientT:
    """Make the blocking reads and writes of a client end at the timeout of their attempt, and return the client."""
    for pool in _pools(client):
        backend = getattr(pool, "_network_backend", None)
        if backend is not None and not isinstance(backend, _TimedBackend):
            pool._network_backend = _TimedBackend(backend)
    return client


class _TimedBackend:
    """A network backend whose streams check the attempt's timeout before every read."""

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
    """A network stream that limits each read and write to the remaining time of the attempt."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, timeout=_remaining(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], timeout=_remaining(timeout))

    def start_tls(self, *arguments: Any, **keywords: Any) -> Any:
        return _TimedStream(self._stream.start_tls(*arguments, **keywords))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _remaining(timeout: float | None) -> float | None:
    return timeout.remaining() if isinstance(timeout, PhaseTimeout) else timeout


def abort_sockets(client: Any) -> None:
    """Close the sockets of an async client whose event loop is closed.

    A closed loop can no longer close them properly, and the garbage collector would report each one as unclosed.
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


_INNER_ATTRIBUTES = ("_connection", "_network_stream", "_stream", "transport_stream", "_transport")


def _asyncio_transport(connection: Any) -> Any:
    """Return the asyncio transport below a connection, its protocol and its TLS layer; None when there is none."""
    layer = connection
    while layer is not None and not hasattr(layer, "abort"):
        layer = next((inner for name in _INNER_ATTRIBUTES if (inner := getattr(layer, name, None)) is not None), None)
    return layer
