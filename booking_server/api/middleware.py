"""The edge, as pure ASGI: a request id on every answer, a bound on every body, and the last handler of errors."""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from booking_core.errors import BookingError, Malformed, PayloadTooLarge
from booking_core.models.limits import REQUEST_BODY_BYTES_MAX, REQUEST_ID_LENGTH_MAX
from booking_server.api import errors
from booking_server.api.reply import Reply

log = logging.getLogger("booking.http")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % REQUEST_ID_LENGTH_MAX)
_SAFE = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


def _request_id(scope: Scope) -> str:
    """The client's own id when it is a plain one, else a new one (decision R8)."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{secrets.token_hex(12)}"


class Edge:
    """Wraps the application: what is true of every answer is made true here."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope["booking.request_id"] = _request_id(scope)
        started = False

        async def send_marked(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode()), *_SAFE]
            await send(message)

        try:
            await self.app(scope, receive, send_marked)
        except Exception:
            log.exception("request %s failed", request_id)
            if started:
                raise
            headers = scope.get("booking.rate_headers", ())
            await Reply(errors.internal(request_id), headers)(scope, receive, send_marked)


def _announces_too_much(scope: Scope) -> bool:
    return any(
        name == b"content-length" and value.isdigit() and int(value) > REQUEST_BODY_BYTES_MAX
        for name, value in scope["headers"]
    )


async def read_body(scope: Scope, receive: Receive) -> bytes | BookingError:
    """Return the request's body, or why there is none.

    It is larger than the limit, by its Content-Length (then nothing of it is read, and a client that waits for "100
    Continue" sends nothing) or counted as it arrives; or the client went before its end, and what came must not be
    taken for all of it.
    """
    if _announces_too_much(scope):
        return PayloadTooLarge()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return Malformed("The body broke off.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > REQUEST_BODY_BYTES_MAX:
            return PayloadTooLarge()
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
