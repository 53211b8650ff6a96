"""Middleware: the request id, the rate limit's state and the safety headers on every response, and the request log."""

import logging
import re
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from booking_core import tokens
from booking_core.models.limits import REQUEST_ID_LENGTH_MAX
from booking_server.api import request_log

log = logging.getLogger("booking.http")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % REQUEST_ID_LENGTH_MAX)
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")

Observe = Callable[[Scope, int, float], None]


def _request_id(scope: Scope) -> str:
    """Return the client's own id when it is a plain one, else a new one (decision R8)."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{tokens.random_hex(24)}"


class RequestContextMiddleware:
    """Gives every request its id and its line of the request log, and every response the headers that all have.

    The state of the rate limit is in `request.state.rate_limit` once a dependency has counted the request.

    Args:
        observe: called after each request with its scope, the status of its response and its seconds; the status is 0
            when there was no response, since the client had disconnected.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, app: ASGIApp, *, observe: Observe | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.app = app
        self._observe = observe
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope["booking.request_id"] = _request_id(scope)
        begun_s, status = self._clock(), 0
        entry = request_log.begin(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
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
            if self._observe:
                self._observe(scope, status, self._clock() - begun_s)
            if entry is not None:
                entry.end()


def context_headers(scope: Scope, own: Iterable[tuple[bytes, bytes]] = ()) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response to the request; one that says how it may be cached keeps that."""
    reading = scope["state"].get("rate_limit") if "state" in scope else None
    added = [
        *(reading.headers if reading else ()),
        (b"x-request-id", scope["booking.request_id"].encode()),
        _NO_SNIFFING,
    ]
    for name, _ in own:
        if name == b"cache-control":
            return added
    return [*added, _NO_STORE]
