"""The only module that imports httpx: its clients, one per event loop."""

import os
import threading
from collections.abc import AsyncGenerator, Hashable
from contextlib import suppress
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeGuard

import httpx

from booking_sdk._httpcore_pools import abort_sockets, hold_deadlines
from booking_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

_PAUSED_LOOPS_MAX = 16
"""The number of clients kept for event loops that are neither running nor closed; the oldest is dropped first."""

_inherited: list[object] = []
"""Clients inherited over a fork. They must never be closed: that would write to the parent's connections."""


@cache
def ssl_context() -> Any:
    """Return the SSL context of the process. Creating one reads every root certificate and takes longer than a call."""
    return httpx.create_ssl_context()


def checked_client(http_client: Any, *, awaited: bool) -> Any:
    """Return the caller's HTTP client after checking its type.

    Args:
        http_client: The value of the `http_client` argument.
        awaited: True for the async client.

    Raises:
        TypeError: The object is not an HTTP client, or is one of the other kind.
    """
    if http_client is None:
        return None
    expected, owner = ("httpx.AsyncClient", "AsyncBookingClient") if awaited else ("httpx.Client", "BookingClient")
    send = getattr(http_client, "send", None)
    is_client = not isinstance(http_client, type) and callable(send) and hasattr(http_client, "build_request")
    if not is_client or iscoroutinefunction(send) != awaited:
        name = getattr(http_client, "__name__", type(http_client).__name__)
        raise TypeError(f"http_client must be an {expected} for {owner}, or have its interface, not {name}")
    return http_client


class Connections:
    """The httpx client of a BookingClient: the caller's, or the SDK's own."""

    def __init__(self, http_client: Any) -> None:
        self._callers = checked_client(http_client, awaited=False)
        self.is_callers: bool = http_client is not None
        self._client: httpx.Client | None = None
        self._process_id = os.getpid()
        self.is_closed: bool = False
        if http_client is None:
            self._client = hold_deadlines(httpx.Client(verify=ssl_context()))
        else:
            hold_deadlines(http_client)

    @property
    def is_open(self) -> bool:
        """Return True while connections of the SDK's own are open."""
        return self._client is not None and not self.is_closed

    def client(self) -> Any:
        """Return the httpx client for the next attempt.

        Raises:
            ConfigurationError: The connections are closed.
        """
        if self._callers is not None:
            return self._callers
        if self.is_closed:
            raise ConfigurationError("the client is closed")
        if self._process_id != os.getpid():
            # A forked process shares the sockets of its parent: writing from both would garble the data of both.
            _inherited.append(self._client)
            self._client, self._process_id = hold_deadlines(httpx.Client(verify=ssl_context())), os.getpid()
        return self._client

    def close(self) -> None:
        """Close the SDK's own client."""
        self.is_closed = True
        if self._client is not None:
            self._client.close()


class AsyncConnections:
    """The httpx clients of an AsyncBookingClient: the caller's, or the SDK's own, one per event loop.

    A connection belongs to the event loop that it was opened on. A client is created when a loop is first used. It is
    closed with its loop: by the loop itself when it ends as in `asyncio.run`, otherwise when the next loop is used.
    """

    def __init__(self, http_client: Any) -> None:
        self._callers = checked_client(http_client, awaited=True)
        self.is_callers: bool = http_client is not None
        self._clients: dict[Hashable, tuple[httpx.AsyncClient, AsyncGenerator[None]]] = {}
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self.is_closed: bool = False
        if http_client is None:
            ssl_context()

    @property
    def is_open(self) -> bool:
        """Return True while connections of the SDK's own are open."""
        return not self.is_closed and any(not _is_closed(loop) for loop in list(self._clients))

    async def client(self) -> Any:
        """Return the httpx client for the running event loop.

        Raises:
            ConfigurationError: The connections are closed.
        """
        if self._callers is not None:
            return self._callers
        if self.is_closed:
            raise ConfigurationError("the client is closed")
        entry = self._clients.get(_running_loop()) if self._process_id == os.getpid() else None
        return entry[0] if entry else await self._create()

    async def _create(self) -> httpx.AsyncClient:
        loop, client = _running_loop(), httpx.AsyncClient(verify=ssl_context())
        lifetime = _lifetime(self._clients, loop, client)
        with self._lock:
            if self._process_id != os.getpid():
                _inherited.extend(self._clients.values())
                self._clients.clear()
                self._process_id = os.getpid()
            self._drop_unused()
            self._clients[loop] = client, lifetime
        await anext(lifetime)
        return client

    def _drop_unused(self) -> None:
        """Drop the clients of closed loops, and the oldest clients of loops that no longer run."""
        for loop in [loop for loop in self._clients if _is_closed(loop)]:
            abort_sockets(self._clients.pop(loop)[0])
        paused = [loop for loop in self._clients if not _is_running(loop)]
        for loop in paused[: max(0, len(paused) - _PAUSED_LOOPS_MAX)]:
            del self._clients[loop]

    async def aclose(self) -> None:
        """Close the SDK's own clients, each on its event loop."""
        self.is_closed = True
        current = _running_loop()
        for loop, (client, lifetime) in list(self._clients.items()):
            if loop == current:
                await lifetime.aclose()
            elif _is_closed(loop):
                abort_sockets(client)
            elif _is_asyncio_loop(loop):
                _close_on(loop, lifetime)
        self._clients.clear()

    def __del__(self) -> None:
        for loop, (client, _) in self.__dict__.get("_clients", {}).items():
            if _is_closed(loop):
                abort_sockets(client)


async def _lifetime(clients: dict[Hashable, Any], loop: Hashable, client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """Close a client when its event loop ends: a loop closes the generators that were started on it."""
    try:
        yield
    finally:
        clients.pop(loop, None)
        await client.aclose()


def _close_on(loop: "asyncio.AbstractEventLoop", lifetime: AsyncGenerator[None]) -> None:
    """Close a client on the event loop of another thread."""

    async def close() -> None:
        await lifetime.aclose()

    with suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: loop.create_task(close()))


def _running_loop() -> Hashable:
    # Imported here: the sync client never needs it.
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        from anyio.lowlevel import current_token

        return current_token()  # trio


def _is_asyncio_loop(loop: Hashable) -> "TypeGuard[asyncio.AbstractEventLoop]":
    import asyncio

    return isinstance(loop, asyncio.AbstractEventLoop)


def _is_closed(loop: Hashable) -> bool:
    return _is_asyncio_loop(loop) and loop.is_closed()


def _is_running(loop: Hashable) -> bool:
    return not _is_asyncio_loop(loop) or loop.is_running()
