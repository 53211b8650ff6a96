"""Middleware: the request id, the rate limit's state and the safety headers on every response, and the observer."""

import logging
import re
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from booking_core.base import tokens
from booking_core.models.limits import REQUEST_ID_LENGTH_MAX
from booking_server.api.observer import FAILED, REFUSED, STATE, RequestObserver, code_of

log = logging.getLogger("booking.http")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,%d}" % REQUEST_ID_LENGTH_MAX)
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's own id when it is a plain one, else a new one (decision R8)."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"req_{tokens.random_hex(24)}"


class RequestContextMiddleware:
    """Gives every request its id and its observer, and every response the headers that all have.

    The state of the rate limit is in `request.state.rate_limit` once a dependency has counted the request.

    Args:
        observer: of requests whose scope has none in its state.
    """

    def __init__(self, app: ASGIApp, *, observer: RequestObserver | None = None) -> None:
        self.app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope["booking.request_id"] = request_id_of(scope["headers"])
        observer = scope["state"].get(STATE, self._observer) if "state" in scope else self._observer
        begun_s = observer.begin(scope) if observer is not None else 0.0
        status, code = 0, None

        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status, code
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *context_headers(scope, message["headers"])]
            elif status >= REFUSED and code is None:
                code = code_of(message)
            return send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            log.exception("request %s failed", request_id)
            if not status:  # Starlette responds to it outside of the middleware
                status, code = FAILED, "internal_error"
            raise
        finally:
            if observer is not None:
                observer.end(scope, status, code, begun_s)


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
