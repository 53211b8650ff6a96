"""Responses to requests that are refused before the service's own application."""

from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.base.errors import BookingError, RateLimited
from booking_server.api import errors
from booking_server.api.middleware import RequestContextMiddleware
from booking_server.guest_pages import GUEST_PAGES
from booking_server.guest_pages.router import refusal_page


def refusing(error: BookingError) -> ASGIApp:
    """Return an application that refuses every request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(error, scope, receive, send)

    return RequestContextMiddleware(app)


async def respond(error: BookingError, scope: Any, receive: Receive, send: Send) -> None:
    """Refuse a request: of guests by a page, all others in JSON."""
    if path_of(scope).startswith(GUEST_PAGES):
        response: Response = refusal_page(Request(scope), error)
    else:
        response = errors.respond_with(error, scope["booking.request_id"])
    if isinstance(error, RateLimited):
        response.raw_headers.extend(error.headers)
    await response(scope, receive, send)


def path_of(scope: Scope) -> str:
    """Return the path of a request without the root path of the service."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
