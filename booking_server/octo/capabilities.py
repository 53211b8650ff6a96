"""The capabilities that a request asks for by its header `Octo-Capabilities`, and the routes that answer with it."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from booking_core.base.context import Caller
from booking_server.api.dependencies import AnyCaller, LaneRoute, ReadOperation, lane_of
from booking_server.fastapi_ext.requests import ApiRequest
from booking_server.fastapi_ext.routes import PathOperation

HEADER = "octo-capabilities"
PRICING, CONTENT = "octo/pricing", "octo/content"
_OFFERED = (PRICING, CONTENT)
_LANGUAGE = "booking.octo.language"
_LANGUAGE_HEADERS = (b"content-language", b"available-languages")


def listed() -> list[dict[str, Any]]:
    """Return the capabilities that this service has."""
    return [{"id": name, "revision": 1, "required": False, "dependencies": [], "docs": None} for name in _OFFERED]


def active_names(request: Request) -> str:
    """Return the names of the active capabilities, as the response has them."""
    active = _active(request)
    return ", ".join(name for name in _OFFERED if name in active)


def _active(request: Request) -> frozenset[str]:
    values = [value for name, value in request.scope["headers"] if name == HEADER.encode()]
    names = b",".join(values).decode("latin-1").split(",")
    return frozenset(_OFFERED).intersection(name.strip() for name in names)


def active_capabilities(request: ApiRequest, caller: AnyCaller) -> frozenset[str]:
    """Return the capabilities that the request asks for and this service has; others are ignored."""
    active = _active(request)
    if CONTENT in active:
        request.scope[_LANGUAGE] = language_of(caller)
    return active


def language_of(caller: Caller) -> str:
    """Return the language of the organization's texts."""
    return caller.organization.language or "en"


class OctoOperation(PathOperation):
    """An operation whose response names the active capabilities, and with `octo/content` the language."""

    async def respond(self, request: ApiRequest) -> Response:
        response = await super().respond(request)
        response.raw_headers.append((HEADER.encode(), active_names(request).encode()))
        if language := request.scope.get(_LANGUAGE):
            response.raw_headers.extend((name, language.encode()) for name in _LANGUAGE_HEADERS)
        return response


class OctoReadOperation(OctoOperation, ReadOperation):
    """An operation of OCTO among the reads of the service."""


class OctoRoute(LaneRoute):
    """A route of OCTO. A read runs in the lane that it declares, and a change on the event loop."""

    def kind(self, function: Callable[..., Any]) -> type[PathOperation]:
        return OctoOperation if lane_of(function) is None else OctoReadOperation


Capabilities = Annotated[frozenset[str], Depends(active_capabilities)]
