"""Middleware: the request id, the state of the rate limit and the safety headers of every response, and the observer.

The observer is a value of the lifespan's state, which an ASGI server puts into the scope of each request. A request
that is refused before the application sees it is counted and logged like any other.
"""

import logging
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from booking_core.models.errors import ErrorCode
from booking_server.monitoring.observer import RequestObserver
from booking_server.request_state import state_of

log = logging.getLogger("booking.http")

STATE = "observer"
"""The key of the observer in the lifespan's state."""

_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_NO_STORE = (b"cache-control", b"no-store")
_FAILED = 500


class RequestContextMiddleware:
    """Gives every request its state and its observer, and every response the headers that all have.

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
        state = state_of(scope)
        observer = scope["state"].get(STATE, self._observer) if "state" in scope else self._observer
        begun_s = observer.begin(scope) if observer is not None else 0.0
        status = 0

        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *context_headers(scope, message["headers"])]
            return send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            log.exception("request %s failed", state.request_id)
            if not status:  # Starlette responds to it outside of the middleware
                status, state.error_code = _FAILED, str(ErrorCode.INTERNAL_ERROR)
            raise
        finally:
            if observer is not None:
                observer.end(scope, status, begun_s)


def context_headers(scope: Scope, response_headers: Iterable[tuple[bytes, bytes]] = ()) -> list[tuple[bytes, bytes]]:
    """Return the headers of every response to the request. A response with its own `Cache-Control` keeps it."""
    state = state_of(scope)
    reading = state.credentials.reading
    added = [
        *(reading.headers if reading else ()),
        (b"x-request-id", state.request_id.encode()),
        _NO_SNIFFING,
    ]
    for name, _ in response_headers:
        if name == b"cache-control":
            return added
    return [*added, _NO_STORE]
