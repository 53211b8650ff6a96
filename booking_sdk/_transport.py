"""Sends one attempt of a request, and cleans up the connection pool after a failure."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from booking_sdk._attempt_timeout import AttemptTimeout
from booking_sdk._body import Body, BodyTooLarge
from booking_sdk._concurrency import shield, time_limit
from booking_sdk._flow import Send
from booking_sdk._http import AsyncConnections
from booking_sdk._httpcore_pools import take_leaked
from booking_sdk._retries import AttemptResult
from booking_sdk._transport_failures import failure_of, route
from booking_sdk.response import Response


class AsyncHttpClientLike(Protocol):
    """The methods of an HTTP client that the SDK calls.

    `httpx.AsyncClient` has them, and so has any fork with the same interface.
    """

    def build_request(self, method: str, url: str, *, content: bytes | None, headers: Any, extensions: Any) -> Any: ...

    async def send(self, request: Any, *, stream: bool, auth: None, follow_redirects: bool) -> Any: ...


class AsyncTransport:
    """Sends attempts over the connections that a client shares with its copies from `with_options`."""

    def __init__(self, http_client: AsyncHttpClientLike | None) -> None:
        self._connections = AsyncConnections(http_client)

    @property
    def is_open(self) -> bool:
        """Return True while connections of the SDK's own are open."""
        return self._connections.is_open

    async def send(self, send: Send) -> AttemptResult:
        """Send one attempt and return its response or failure.

        Any other exception is raised; before that, `send.progress` records whether the request may have been sent.
        """
        timeout, client = AttemptTimeout(send.connect_s, send.total_s), None
        send.progress.sent = False
        try:
            client = await self._connections.client()
            with time_limit(timeout):
                return await self._exchange(client, send, timeout)
        except BaseException as error:
            send.progress.sent = send.progress.sent and timeout.may_have_sent
            if client is not None:
                await self._close_leaked(client, timeout)
            failure = failure_of(error, timeout) if isinstance(error, Exception) else None
            if failure is None:
                raise
        return replace(failure, via=route(send.url, is_callers=self._connections.is_callers))

    async def _exchange(self, client: Any, send: Send, timeout: AttemptTimeout) -> AttemptResult:
        request = client.build_request(
            send.method, send.url, content=send.body, headers=send.headers, extensions={"timeout": timeout}
        )
        send.progress.sent = True
        response = await client.send(request, stream=True, auth=None, follow_redirects=False)
        try:
            body = await self._body(response, send.max_response_bytes, timeout)
        except BodyTooLarge:
            return Response(response.status_code, response.headers.raw, is_too_large=True)
        finally:
            await response.aclose()
        return Response(response.status_code, response.headers.raw, body)

    async def _body(self, response: Any, max_bytes: int, timeout: AttemptTimeout) -> bytes:
        # A mock, or a hook of the caller's client, has read and decompressed the body already.
        is_read = response.is_stream_consumed
        body = Body("" if is_read else response.headers.get("content-encoding", "").lower(), max_bytes)
        async for part in response.aiter_bytes() if is_read else response.aiter_raw():
            body.add(part)
            timeout.check()
        return body.content()

    async def _close_leaked(self, client: Any, timeout: AttemptTimeout) -> None:
        """Close the connections that a failed attempt left in the pool."""
        for connection in take_leaked(client, timeout):
            with suppress(Exception), shield():
                await connection.aclose()

    async def aclose(self) -> None:
        """Close the connections of the SDK's own."""
        await self._connections.aclose()
