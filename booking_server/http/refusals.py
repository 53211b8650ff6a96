"""Responses to requests that are refused before the service's own application."""

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.base.errors import BookingError
from booking_server.api.middleware import RequestContextMiddleware
from booking_server.refusals import respond_to


def refusing(error: BookingError) -> ASGIApp:
    """Return an application that refuses every request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond_to(Request(scope), error)(scope, receive, send)

    return RequestContextMiddleware(app)
