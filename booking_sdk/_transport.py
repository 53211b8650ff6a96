"""One attempt: a request goes out, an outcome comes back, and nothing of it is left behind."""

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

from booking_sdk._budget import Budget, TooLate
from booking_sdk._flow import Send
from booking_sdk._http import Connections, LoopConnections
from booking_sdk._pools import take_lost
from booking_sdk._retries import Failure, Outcome
from booking_sdk.response import Response

AsyncConnections = LoopConnections

# httpx's class names and not its classes: a fork of it with the same names is as welcome.
_NOT_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"}


def failure_of(error: Exception, budget: Budget | None = None) -> Failure | None:
    """Return what an exception of the transport means; None for one that is not the transport's."""
    names = {kind.__name__ for kind in type(error).__mro__}
    timed_out = "TimeoutException" in names or isinstance(error, (TooLate, TimeoutError))
    if not timed_out and not isinstance(error, OSError) and "RequestError" not in names:
        return None
    sent = names.isdisjoint(_NOT_SENT) and (budget is None or budget.may_have_sent)
    name = type(error).__name__
    # Only a failure to connect is told in the transport's words: later ones can hold what was sent.
    if not sent:
        said = f"{name}: {error}" if str(error) else name
        return Failure(sent, timed_out, f"could not connect ({said})")
    how = "no whole answer came in time" if timed_out else "the connection broke before the answer was whole"
    return Failure(sent, timed_out, f"{how} ({name})")


def async_limit(budget: Budget) -> AbstractContextManager[object]:
    """Return a context that ends the attempt with its budget, whatever it waits for then."""
    # httpx brings it, and it counts on whichever event loop httpx itself runs on.
    import anyio

    return anyio.fail_after(budget.total_s)


def limit(budget: Budget) -> AbstractContextManager[object]:
    """Return a context that does nothing: blocking reads look at the clock themselves."""
    return nullcontext()


def async_shield() -> AbstractContextManager[object]:
    """Return a context that the cancellation that runs already does not reach."""
    import anyio

    return anyio.CancelScope(shield=True)


def shield() -> AbstractContextManager[object]:
    """Return a context that does nothing."""
    return nullcontext()


class AsyncHttpClientLike(Protocol):
    """What is used of an HTTP client: `httpx.AsyncClient` has it, and a fork with the same interface."""

    def build_request(self, method: str, url: str, *, content: bytes | None, headers: Any, extensions: Any) -> Any: ...

    async def send(self, request: Any, *, stream: bool, auth: None, follow_redirects: bool) -> Any: ...


class AsyncPool:
    """The connections of a client, and of those made from it."""

    def __init__(self, http_client: AsyncHttpClientLike | None) -> None:
        self._connections = AsyncConnections(http_client)

    @property
    def is_open(self) -> bool:
        """Return whether there are connections of its own to be closed."""
        return self._connections.is_open

    async def send(self, send: Send) -> Outcome:
        """Make one attempt. An exception that is no outcome is raised, after `send.progress` was told of it."""
        budget, client = Budget(send.connect_s, send.total_s), None
        send.progress.sent = False
        try:
            client = await self._connections.client()
            with async_limit(budget):
                return await self._exchange(client, send, budget)
        except BaseException as error:
            send.progress.sent = send.progress.sent and budget.may_have_sent
            if client is not None:
                await self._clean(client, budget)
            failure = failure_of(error, budget) if isinstance(error, Exception) else None
            if failure is None:
                raise
        return failure

    async def _exchange(self, client: Any, send: Send, budget: Budget) -> Outcome:
        request = client.build_request(
            send.method, send.url, content=send.body, headers=send.headers, extensions={"timeout": budget}
        )
        send.progress.sent = True
        response = await client.send(request, stream=True, auth=None, follow_redirects=False)
        try:
            chunks = []
            async for chunk in response.aiter_bytes():
                chunks.append(chunk)
                budget.check()
        finally:
            await response.aclose()
        return Response(response.status_code, response.headers.raw, b"".join(chunks))

    async def _clean(self, client: Any, budget: Budget) -> None:
        """Give back what the attempt took of the client's connections."""
        for connection in take_lost(client, budget):
            with suppress(Exception), async_shield():
                await connection.aclose()

    async def aclose(self) -> None:
        """Close what is its own."""
        await self._connections.aclose()


# Made from the classes above by tests/booking_sdk/unasync.py; change those, and run it. -------------------------------


class HttpClientLike(Protocol):
    """What is used of an HTTP client: `httpx.Client` has it, and a fork with the same interface."""

    def build_request(self, method: str, url: str, *, content: bytes | None, headers: Any, extensions: Any) -> Any: ...

    def send(self, request: Any, *, stream: bool, auth: None, follow_redirects: bool) -> Any: ...


class Pool:
    """The connections of a client, and of those made from it."""

    def __init__(self, http_client: HttpClientLike | None) -> None:
        self._connections = Connections(http_client)

    @property
    def is_open(self) -> bool:
        """Return whether there are connections of its own to be closed."""
        return self._connections.is_open

    def send(self, send: Send) -> Outcome:
        """Make one attempt. An exception that is no outcome is raised, after `send.progress` was told of it."""
        budget, client = Budget(send.connect_s, send.total_s), None
        send.progress.sent = False
        try:
            client = self._connections.client()
            with limit(budget):
                return self._exchange(client, send, budget)
        except BaseException as error:
            send.progress.sent = send.progress.sent and budget.may_have_sent
            if client is not None:
                self._clean(client, budget)
            failure = failure_of(error, budget) if isinstance(error, Exception) else None
            if failure is None:
                raise
        return failure

    def _exchange(self, client: Any, send: Send, budget: Budget) -> Outcome:
        request = client.build_request(
            send.method, send.url, content=send.body, headers=send.headers, extensions={"timeout": budget}
        )
        send.progress.sent = True
        response = client.send(request, stream=True, auth=None, follow_redirects=False)
        try:
            chunks = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                budget.check()
        finally:
            response.close()
        return Response(response.status_code, response.headers.raw, b"".join(chunks))

    def _clean(self, client: Any, budget: Budget) -> None:
        """Give back what the attempt took of the client's connections."""
        for connection in take_lost(client, budget):
            with suppress(Exception), shield():
                connection.close()

    def close(self) -> None:
        """Close what is its own."""
        self._connections.close()
