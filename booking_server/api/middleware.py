"""Middleware: the request id, the rate limit's state and the safety headers on every response, and the request log."""

import logging
import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from booking_core import tokens
from booking_core.models.limits import REQUEST_ID_LENGTH_MAX
from booking_server.api import request_log

log = logging.getLogger("booking.http")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % REQUEST_ID_LENGTH_MAX)
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")


def _request_id(scope: Scope) -> str:
    """Return the client's own id when it is a plain one, else a new one (decision R8)."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{tokens.random_hex(24)}"


class RequestContextMiddleware:
    """Gives every request its id and its line of the request log, and every response the headers that all have.

    The state of the rate limit is in `request.state.rate_limit` once a dependency has counted the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope["booking.request_id"] = _request_id(scope)
        entry = request_log.begin(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *context_headers(scope, message["headers"])]
            if entry is not None:
                entry.note(message)
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            log.exception("request %s failed", request_id)
            if entry is not None:
                entry.fail()
            raise
        finally:
            if entry is not None:
                entry.end()


def context_headers(scope: Scope, own: Iterable[tuple[bytes, bytes]] = ()) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response to the request; one that says how it may be cached keeps that."""
    reading = scope["state"].get("rate_limit") if "state" in scope else None
    limits = reading.headers if reading else ()
    caching = () if any(name == b"cache-control" for name, _ in own) else (_NO_STORE,)
    return [*limits, (b"x-request-id", scope["booking.request_id"].encode()), _NO_SNIFFING, *caching]
