"""Responses of refused requests: one function for all of them, and the handlers of the exceptions."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.base.errors import BookingError, MethodNotAllowed, NotFound, RateLimited, Unavailable
from booking_server.api import errors
from booking_server.api.dependencies import credentials_of, service_of
from booking_server.api.middleware import STATE, RequestContextMiddleware, context_headers
from booking_server.fastapi_ext import requests
from booking_server.fastapi_ext.routes import methods_of
from booking_server.guest_pages import GUEST_PAGES
from booking_server.guest_pages.pages import error_page, failure_page
from booking_server.octo import errors as octo
from booking_server.reference import missing_page
from booking_server.request_state import path_of, state_of

OCTO = "/octo"
Fields = Sequence[tuple[bytes, bytes]]


def respond_to(request: Request, error: BookingError) -> Response:
    """Return the response of a refusal, a page for a guest, OCTO's JSON or the API's, and note it for metrics, log and
    trace."""
    state = state_of(request.scope)
    state.error_code = str(error.code)
    state.reason = error.reason if isinstance(error, Unavailable) else None
    if path_of(request.scope).startswith(GUEST_PAGES):
        response: Response = error_page(request, error)
    elif _is_octo(path_of(request.scope)):
        response = octo.respond_with(request, error)
    else:
        refused = errors.answer(error, state.request_id)
        response = Response(refused.body, refused.status, media_type="application/json")
    response.headers.update(errors.headers(error))
    return response


# Exception handlers --------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Any) -> Response:
    return respond_to(request, error)


async def _invalid(request: Request, error: Any) -> Response:
    """Respond to a request whose parameters or body FastAPI has found invalid."""
    problems = [{**problem, "loc": problem["loc"][1:]} for problem in error.errors()]
    return respond_to(request, requests.malformed(requests.details_of(problems)))


async def _unrouted(request: Request, error: Any) -> Response:
    """Respond to a path that does not exist, or to a method that the path does not take. A browser gets a page outside
    of the API.

    It counts against the address but is never rate-limited: the path is checked before the limit (decision R1). An
    HTTPException that a path operation raises is answered as FastAPI answers it.
    """
    is_raised_by_operation = "endpoint" in request.scope and error.status_code != 405
    if is_raised_by_operation or error.status_code not in (404, 405):
        return await http_exception_handler(request, error)
    await _count_address(request)
    if error.status_code == 404 and _is_browser(request):
        return missing_page(request.scope["path"], service_of(request).installation.public_url)
    if error.status_code == 405:
        return respond_to(request, MethodNotAllowed(methods_of(request.app.routes, request.scope)))
    return respond_to(request, NotFound("There is no such path."))


def _is_browser(request: Request) -> bool:
    path = request.scope["path"]
    return "text/html" in request.headers.get("accept", "") and not (path.startswith("/api/") or _is_octo(path))


def _is_octo(path: str) -> bool:
    """Return whether a path is of OCTO: its address, or one below it."""
    return f"{path}/".startswith(f"{OCTO}/")


async def _count_address(request: Request) -> None:
    with contextlib.suppress(RateLimited):
        # In a thread, since a shared store of the limiter is called over a socket.
        await asyncio.to_thread(service_of(request).authenticator.count_address, credentials_of(request))


async def _failed(request: Request, _: Any) -> Response:
    path = path_of(request.scope)
    if path.startswith(GUEST_PAGES):
        response: Response = failure_page(request)
    elif _is_octo(path):
        response = octo.respond_with_failure(request)
    else:
        failed = errors.internal(state_of(request.scope).request_id)
        response = Response(failed.body, failed.status, media_type="application/json")
    # The error goes on to uvicorn, which closes the connection. Without the header the client's next request is lost.
    response.headers["connection"] = "close"
    # Starlette sends this response from outside the middleware that adds them to all others.
    response.raw_headers.extend(context_headers(request.scope))
    return response


HANDLERS: dict[int | type[Exception], Any] = {
    BookingError: _refused,
    RequestValidationError: _invalid,
    HTTPException: _unrouted,
    Exception: _failed,
}
"""The handlers that turn every exception into the error body of the contract."""

# Before the application ----------------------------------------------------------------------------------------------


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
