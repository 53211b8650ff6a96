"""A table of the API's operations, in which one look-up finds the one of a request.

FastAPI asks one route after the other whether it matches, and those of an included router twice: half of the event
loop's time for a request. The table finds what FastAPI would find and runs it as `ApiRoute` does. Everything else is
left to the routes of the application: a path without an entry, another method, a route that is added later, and
operations that `ApiRoute` leaves to FastAPI.

The table is asked by the innermost middleware, before the handlers of exceptions, the exit stack and the router, which
an operation with a plan needs none of as long as it succeeds. When one raises an exception, the request goes on through
them, and the table, which is the first route of the application too (Starlette's `BaseRoute`), raises it there.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fastapi import Response
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_server.api.requests import ApiRequest
from booking_server.api.routing import ApiRoute, Operation

_ID = re.compile(r"(?<=/)[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?=/|\Z)")
"""An id in a path. One of another form has no entry: FastAPI finds its operation, which responds that there is none."""
_PARAMETER = re.compile(r"\{(\w+)\}")

_RAISED = "booking.raised"
"""The key in the scope of a request with the exception that its operation has raised."""

_Key = tuple[str, str, int]
"""Method, path with `*` for each id, and the number of ids, since a path may have a `*` of its own."""


class _Entry(NamedTuple):
    """An operation as it was included in the application."""

    scope: Scope
    """The keys that FastAPI adds to the scope of a request, without the values of the path parameters."""
    names: Sequence[str]
    """The path parameters."""


class RouteTable(BaseRoute):
    """The operations of routes that are `ApiRoute`s, by method and path.

    Args:
        routes: the routes of the application; of two with the same method and path the first has the entry.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._entries: dict[_Key, _Entry] = {}
        for key, entry in _entries(routes):
            self._entries.setdefault(key, entry)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        entry = self._entries.get((scope["method"], path, 0))
        if entry:
            return Match.FULL, {**entry.scope, "path_params": {}}
        template, ids = _ID.subn("*", path)
        entry = self._entries.get((scope["method"], template, ids))
        if entry is None:
            return Match.NONE, {}
        path_params = dict(zip(entry.names, _ID.findall(path), strict=True))
        return Match.FULL, {**entry.scope, "path_params": path_params}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if error := scope.pop(_RAISED, None):
            raise error
        response = await _respond(scope, receive, send)
        await response(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)  # the routes after it have the names


class RouteTableMiddleware:
    """Runs the operations of a table; what is not in it is left to the application."""

    def __init__(self, app: ASGIApp, *, table: RouteTable) -> None:
        self.app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match, child_scope = self._table.matches(scope)
        if match is Match.NONE:
            await self.app(scope, receive, send)
            return
        scope.update(child_scope)
        try:
            response = await _respond(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - raised again where the application handles exceptions
            scope[_RAISED] = error
            await self.app(scope, receive, send)
            return
        await response(scope, receive, send)


async def _respond(scope: Scope, receive: Receive, send: Send) -> Response:
    operation: Operation = scope["booking.operation"]
    return await operation(ApiRequest(scope, receive, send))


def _entries(routes: Sequence[BaseRoute]) -> Iterator[tuple[_Key, _Entry]]:
    for route in iter_route_contexts(routes):
        if not isinstance(route.original_route, ApiRoute) or route.max_body_size is not None:
            continue
        template, ids = _PARAMETER.subn("*", route.path or "")
        operation = Operation.of(route.dependant)
        if operation is None or "{" in template:
            continue
        for method in route.methods or ():
            yield (method, template, ids), _Entry(_scope(operation, route), _PARAMETER.findall(route.path or ""))


def _scope(operation: Operation, route: RouteContext) -> Scope:
    return {"booking.operation": operation, "endpoint": route.endpoint, "route": route.original_route}
