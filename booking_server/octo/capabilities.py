"""The capabilities that a request asks for by its header `Octo-Capabilities`, and the routes that answer with it."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from booking_core.base.context import Caller
from booking_server.api.dependencies import AnyCaller, LaneRoute
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
    return ", ".join(name for name in _OFFERED if name in _active(request))


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


def _named(kind: type[PathOperation]) -> type[PathOperation]:
    class NamedOperation(kind):  # type: ignore[misc, valid-type]
        """An operation whose response names the active capabilities, and with `octo/content` the language."""

        async def respond(self, request: ApiRequest) -> Response:
            response: Response = await super().respond(request)
            response.raw_headers.append((HEADER.encode(), active_names(request).encode()))
            if language := request.scope.get(_LANGUAGE):
                response.raw_headers.extend((name, language.encode()) for name in _LANGUAGE_HEADERS)
            return response

    return NamedOperation


class OctoRoute(LaneRoute):
    """A route of OCTO. Its operation runs in the lane that it declares."""

    def kind(self, function: Callable[..., Any]) -> type[PathOperation]:
        return _named(super().kind(function))


Capabilities = Annotated[frozenset[str], Depends(active_capabilities)]
