"""httpx: its clients, one for each event loop, and transports that ask a function. No other module imports it."""

import os
import threading
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from functools import cache
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeGuard

import httpx

from booking_sdk._pools import hold_deadlines, sever
from booking_sdk._retries import Outcome
from booking_sdk.errors import ConfigurationError
from booking_sdk.response import Response

if TYPE_CHECKING:
    import asyncio

_PAUSED_LOOPS_MAX = 16
"""Clients kept for event loops that neither run nor are closed, before the oldest is let go."""

_inherited: list[object] = []
"""Clients that came over a fork. To close them, or to let them be closed, would speak on the parent's connections."""


@cache
def ssl_context() -> Any:
    """Return the SSL context of the process: to make one reads every root certificate, and takes longer than a call."""
    return httpx.create_ssl_context()


def checked_client(http_client: Any, *, awaited: bool) -> Any:
    """Return an HTTP client of the caller's.

    Raises:
        TypeError: it is not one of the kind that this client of the SDK can send with.
    """
    if http_client is None:
        return None
    wanted = "httpx.AsyncClient" if awaited else "httpx.Client"
    owner = "AsyncBookingClient" if awaited else "BookingClient"
    if isinstance(http_client, type):
        raise TypeError(f"http_client must be an instance of {wanted}, not the class {http_client.__name__}")
    send = getattr(http_client, "send", None)
    if not callable(send) or not callable(getattr(http_client, "build_request", None)):
        raise TypeError(
            f"http_client must be an {wanted}, or a client with its interface, not {type(http_client).__name__}"
        )
    if iscoroutinefunction(send) != awaited:
        kind = type(http_client).__name__
        raise TypeError(f"{owner} sends with an {wanted}, and this {kind} is for the other one")
    return http_client


class Connections:
    """The client of httpx behind a BookingClient: the caller's, or one of its own."""

    def __init__(self, http_client: Any) -> None:
        self._given = checked_client(http_client, awaited=False)
        self._own: httpx.Client | None = None
        self._process_id = os.getpid()
        self.is_closed: bool = False
        if http_client is None:
            self._own = _blocking_client()
        else:
            hold_deadlines(http_client)

    @property
    def is_open(self) -> bool:
        """Return whether there are connections of its own to be closed."""
        return self._own is not None and not self.is_closed

    def client(self) -> Any:
        """Return the client to send with.

        Raises:
            ConfigurationError: it is closed.
        """
        if self._given is not None:
            return self._given
        if self.is_closed:
            raise ConfigurationError("the client is closed")
        if self._process_id != os.getpid():
            # A fork shares its parent's sockets: whatever is said on them by both is garbled for both.
            _inherited.append(self._own)
            self._own, self._process_id = _blocking_client(), os.getpid()
        return self._own

    def close(self) -> None:
        """Close what is its own."""
        self.is_closed = True
        if self._own is not None:
            self._own.close()


def _blocking_client() -> httpx.Client:
    client = httpx.Client(verify=ssl_context())
    hold_deadlines(client)
    return client


class LoopConnections:
    """The clients of httpx behind an AsyncBookingClient: the caller's, or one of its own for each event loop.

    A connection belongs to the event loop that it was opened on. One is made when a loop is first used, and closed
    with it: by the loop itself where it ends as in `asyncio.run`, else when the next loop is used.
    """

    def __init__(self, http_client: Any) -> None:
        self._given = checked_client(http_client, awaited=True)
        self._own: dict[Hashable, tuple[httpx.AsyncClient, AsyncGenerator[None]]] = {}
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self.is_closed: bool = False
        if http_client is None:
            ssl_context()

    @property
    def is_open(self) -> bool:
        """Return whether there are connections of its own to be closed."""
        return not self.is_closed and any(not _is_closed(loop) for loop in list(self._own))

    async def client(self) -> Any:
        """Return the client to send with on the event loop that runs.

        Raises:
            ConfigurationError: it is closed.
        """
        if self._given is not None:
            return self._given
        if self.is_closed:
            raise ConfigurationError("the client is closed")
        found = self._own.get(_running_loop()) if self._process_id == os.getpid() else None
        return found[0] if found else await self._begun()

    async def _begun(self) -> httpx.AsyncClient:
        loop, client = _running_loop(), httpx.AsyncClient(verify=ssl_context())
        lifetime = _lifetime(self._own, loop, client)
        with self._lock:
            if self._process_id != os.getpid():
                _inherited.extend(self._own.values())
                self._own.clear()
                self._process_id = os.getpid()
            self._let_go()
            self._own[loop] = client, lifetime
        await anext(lifetime)
        return client

    def _let_go(self) -> None:
        """Drop the clients of loops that are closed, and the oldest of loops that seem to be forgotten."""
        for loop in [loop for loop in self._own if _is_closed(loop)]:
            sever(self._own.pop(loop)[0])
        paused = [loop for loop in self._own if not _is_running(loop)]
        for loop in paused[: max(0, len(paused) - _PAUSED_LOOPS_MAX)]:
            del self._own[loop]

    async def aclose(self) -> None:
        """Close what is its own, on every event loop that it was used on."""
        self.is_closed = True
        here = _running_loop()
        for loop, (client, lifetime) in list(self._own.items()):
            if loop == here:
                await lifetime.aclose()
            elif _is_closed(loop):
                sever(client)
            elif _is_of_asyncio(loop):
                _close_there(loop, lifetime)
        self._own.clear()

    def __del__(self) -> None:
        for loop, (client, _) in self.__dict__.get("_own", {}).items():
            if _is_closed(loop):
                sever(client)


async def _lifetime(clients: dict[Hashable, Any], loop: Hashable, client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """Close a client when the event loop ends: a loop closes the generators that were begun on it."""
    try:
        yield
    finally:
        clients.pop(loop, None)
        await client.aclose()


def _close_there(loop: "asyncio.AbstractEventLoop", lifetime: AsyncGenerator[None]) -> None:
    """Let another thread's event loop close what belongs to it."""

    async def close() -> None:
        await lifetime.aclose()

    with suppress(RuntimeError):
        loop.call_soon_threadsafe(lambda: loop.create_task(close()))


def _running_loop() -> Hashable:
    # Imported here: a client that does not await never needs it.
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        from anyio.lowlevel import current_token

        return current_token()  # trio


def _is_of_asyncio(loop: Hashable) -> "TypeGuard[asyncio.AbstractEventLoop]":
    import asyncio

    return isinstance(loop, asyncio.AbstractEventLoop)


def _is_closed(loop: Hashable) -> bool:
    return _is_of_asyncio(loop) and loop.is_closed()


def _is_running(loop: Hashable) -> bool:
    return not _is_of_asyncio(loop) or loop.is_running()


def mock_transport(answer: Callable[[httpx.Request], Outcome]) -> httpx.MockTransport:
    """Return a transport, for either client of httpx, that asks a function instead of a network."""

    def handle(request: httpx.Request) -> httpx.Response:
        outcome = answer(request)
        if isinstance(outcome, Response):
            return httpx.Response(outcome.status_code, headers=list(outcome.raw_headers), content=outcome.body)
        if not outcome.sent:
            raise httpx.ConnectError(outcome.reason, request=request)
        kind = httpx.ReadTimeout if outcome.timed_out else httpx.ReadError
        raise kind(outcome.reason, request=request)

    return httpx.MockTransport(handle)


def mock_client(transport: httpx.MockTransport) -> httpx.Client:
    """Return a client that needs no closing: there are no connections."""
    return httpx.Client(transport=transport)


def async_mock_client(transport: httpx.MockTransport) -> httpx.AsyncClient:
    """Return the same, to be awaited."""
    return httpx.AsyncClient(transport=transport)
