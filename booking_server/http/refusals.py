"""Responses to requests that are refused before the application: ready but for the request's id."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import Request, Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from booking_core.base.errors import BookingError, RateLimited, Unavailable
from booking_server.api import errors
from booking_server.api.middleware import RequestContextMiddleware, context_headers, request_id_of
from booking_server.cells.routing import GUEST_PAGES
from booking_server.guest_pages.router import refusal_page
from booking_server.http.framing import Field

_ID = "req_000000000000000000000000"
"""Stands in a prepared response for the request's id."""
_KINDS_MAX = 64
"""Prepared responses that are kept: by message, `Retry-After` and the state of the rate limit."""

Refusal = Unavailable | RateLimited
"""A refusal before the application."""


class PreparedRefusals:
    """The bytes of refusals, in the shape of the application's own."""

    def __init__(self) -> None:
        self._defaults: Sequence[Field] = ()
        self._prepared: dict[tuple[str, int, Sequence[Field]], tuple[bytes, bytes]] = {}

    def response(self, error: Refusal, method: str, headers: Iterable[Field], defaults: Sequence[Field]) -> bytes:
        """Return the whole response to a request.

        Args:
            headers: of the request, which may name its id.
            defaults: headers of every response of the server. A list is not changed, but replaced by another one.
        """
        if defaults is not self._defaults or len(self._prepared) > _KINDS_MAX:
            self._defaults, self._prepared = defaults, {}
        added = error.headers if isinstance(error, RateLimited) else ()
        kind = str(error), error.retry_after_s, added
        found = self._prepared.get(kind)
        if found is None:
            found = self._prepared[kind] = _prepare(error, defaults, added)
        head, body = found
        request_id = request_id_of(headers).encode()
        content = body % {b"id": request_id}
        sent = b"" if method == "HEAD" else content
        return head % {b"id": request_id, b"length": len(content)} + sent


def _prepare(error: BookingError, defaults: Iterable[Field], added: Iterable[Field]) -> tuple[bytes, bytes]:
    """Return the head and the body of a refusal, with `%(id)b` and `%(length)d` in the places of what differs."""
    response = errors.respond_with(error, _ID)
    context = context_headers({"booking.request_id": _ID}, response.raw_headers)
    lines = (*defaults, *response.raw_headers, *added, *context)
    head = b"".join(
        b"%b: %b\r\n" % (name, b"%(length)d" if name == b"content-length" else _escaped(value)) for name, value in lines
    )
    return STATUS_LINE[response.status_code] + head + b"\r\n", _escaped(bytes(response.body))


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%").replace(_ID.encode(), b"%(id)b")


def refusing(error: BookingError) -> ASGIApp:
    """Return an application that refuses every request: guests by a page, all others in JSON."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].removeprefix(scope.get("root_path", "")).startswith(GUEST_PAGES):
            response: Response = refusal_page(Request(scope), error)
        else:
            response = errors.respond_with(error, scope["booking.request_id"])
        await response(scope, receive, send)

    return RequestContextMiddleware(respond)


def refusing_unobserved(error: BookingError) -> ASGIApp:
    """Return an application that refuses every request, and neither counts nor logs it."""
    app = refusing(error)

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {}}, receive, send)

    return respond
