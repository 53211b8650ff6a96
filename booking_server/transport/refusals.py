"""Responses to requests that are refused before the service's own application."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.base.errors import BookingError
from booking_server.api.middleware import STATE, RequestContextMiddleware, context_headers
from booking_server.refusals import respond_to

Fields = Sequence[tuple[bytes, bytes]]


def refusing(error: BookingError) -> ASGIApp:
    """Return an application that refuses every request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond_to(Request(scope), error)(scope, receive, send)

    return RequestContextMiddleware(app)


def refused(error: BookingError, headers: Fields, lifespan_state: Mapping[str, Any], server_headers: Fields) -> bytes:
    """Return the response to a request that is not valid HTTP, the last one of its connection. It is observed like any
    other.

    Args:
        headers: of the request, as far as they could be read.
        server_headers: of every response of the server.
    """
    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    observer = lifespan_state.get(STATE)
    begun_s = observer.begin(scope) if observer else 0.0
    response = respond_to(Request(scope), error)
    if observer:
        observer.end(scope, response.status_code, begun_s)
    fields = [*server_headers, *response.raw_headers, *context_headers(scope), (b"connection", b"close")]
    head = b"".join(b"%b: %b\r\n" % field for field in fields)
    status = HTTPStatus(response.status_code)
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, status.phrase.encode(), head, bytes(response.body))
