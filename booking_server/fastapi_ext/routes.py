"""Find the operation of a request in a table, run it, and send its answer."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.records.idempotency import Answer
from booking_server.fastapi_ext.requests import ApiRequest
from booking_server.fastapi_ext.resolver import CallPlan, Declaration
from booking_server.request_state import path_of, state_of

Operate = Callable[[Mapping[Any, Any]], Any]
"""A path operation whose dependencies are resolved. It takes the results of the dependencies that an executor gives."""

_REFUSED = 400
_JSON = (b"content-type", b"application/json")
_REPLAYED = ((b"idempotent-replayed", b"true"),)

_ID = re.compile(r"(?<=/)[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?=/|\Z)")
"""An id in a path. One of another form has no entry: FastAPI finds its operation, which responds that there is none."""
_PARAMETER = re.compile(r"\{(\w+)\}")

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
_Key = tuple[str, str, int]
"""Method, path with `*` for each id, and the number of ids, since a path may have a literal `*`."""


# Operations ----------------------------------------------------------------------------------------------------------


class PathOperation:
    """A path operation on the event loop. Subclasses run theirs in an executor."""

    provided: ClassVar[tuple[Any, ...]] = ()
    """Dependencies whose results the executor gives."""
    provided_late: ClassVar[tuple[Any, ...]] = ()
    """Those among them that the executor also gives when other dependencies are overridden."""

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration
        self.plan = CallPlan(declaration, self.provided, {})

    async def respond(self, request: ApiRequest) -> Response:
        """Run the operation, and return the response."""
        body = await request.receive_body() if self._declaration.body_params else None
        if overrides := request.app.dependency_overrides:
            operate = await CallPlan(self._declaration, self.provided_late, overrides).resolve(request, body)
            return _response(request, await self.finish(request, operate))
        return _response(request, await self.run(request, body))

    async def run(self, request: ApiRequest, body: Any) -> Any:
        """Resolve the dependencies, run the operation, and return its answer or response."""
        return await self.finish(request, await self.plan.resolve(request, body))

    async def finish(self, _: ApiRequest, operate: Operate) -> Any:
        """Run the operation after its dependencies were resolved on the event loop."""
        return await operate({})


class AnswerResponse(Response):
    """The response of an answer. Its header fields are bytes from the start."""

    media_type = "application/json"

    def __init__(self, answer: Answer, fields: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status_code = answer.status
        self.body = answer.body
        self.background = None
        self.raw_headers = [*fields, (b"content-length", b"%d" % len(answer.body)), _JSON]


def _response(request: ApiRequest, answer: Answer | Response) -> Response:
    """Return the response of an answer. Status 204 and 304 have no body and no content type."""
    if isinstance(answer, Response):
        return answer
    if answer.status >= _REFUSED:  # the refusal that is stored for an Idempotency-Key, of which only the body is left
        state_of(request.scope).error_code = orjson.loads(answer.body)["code"]
    fields: Sequence[tuple[bytes, bytes]] = _REPLAYED if answer.replayed else ()
    if isinstance(answer, TaggedAnswer):
        fields = ((b"etag", answer.etag.encode()),)
    if answer.status in (204, 304):
        response = Response(answer.body, answer.status)
        response.raw_headers.extend(fields)
        return response
    return AnswerResponse(answer, fields)


class ApiRoute(APIRoute):
    """A route whose path is exact, and whose operation runs with a plan."""

    operation: PathOperation | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # The `$` of a route's expression also matches before a line break at the end (decision R9).
        if scope["path"].endswith("\n"):
            return Match.NONE, {}
        return super().matches(scope)

    def kind(self, function: Callable[..., Any]) -> type[PathOperation]:
        """Return the kind of the path operation that a function declares. Subclasses choose it."""
        return PathOperation

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        if self.operation is not None:
            message = "pass its routes to FastAPI(routes=), since its plan has no dependencies of include_router()"
            raise TypeError(f"the router of {self.path} cannot be included: {message}")
        operation = self.operation = self.kind(self.endpoint)(self.dependant)

        async def handle(request: Request) -> Response:
            return await operation.respond(ApiRequest(request.scope, request.receive))

        return handle


# The table -----------------------------------------------------------------------------------------------------------


class RouteTable:
    """Middleware that finds the operation of a request in a table, and runs it. All other requests go on to FastAPI.

    It is the innermost: an operation of the table has every other middleware and the application's exception handlers,
    and passes none of the layers in which FastAPI would find it.

    Args:
        routes: the routes of the application; of two with the same method and path the first has the entry.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes: dict[_Key, tuple[ApiRoute, Sequence[str]]] = {}
        """Each with the names of its path parameters."""
        for route in routes:
            if isinstance(route, ApiRoute) and route.max_body_size is None:
                self._add(route)

    def _add(self, route: ApiRoute) -> None:
        template, ids = _PARAMETER.subn("*", route.path)
        for method in route.methods or () if "{" not in template else ():
            self._routes.setdefault((method, template, ids), (route, _PARAMETER.findall(route.path)))

    def find(self, scope: Scope) -> Scope | None:
        """Return what a route adds to the scope of a request that it matches; None if there is no entry."""
        path, ids = path_of(scope), 0
        entry = self._routes.get((scope["method"], path, ids))
        if entry is None:
            template, ids = _ID.subn("*", path)
            entry = self._routes.get((scope["method"], template, ids))
        if entry is None:
            return None
        route, names = entry
        path_params = dict(zip(names, _ID.findall(path), strict=True)) if ids else {}
        return {"endpoint": route.endpoint, "route": route, "path_params": path_params}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched = self.find(scope) if scope["type"] == "http" else None
        if matched is None:
            await self._app(scope, receive, send)
            return
        scope.update(matched)
        request = ApiRequest(scope, receive, send)
        try:
            response = await scope["route"].operation.respond(request)
        except Exception as error:
            handler = _handler_of(request, error)
            if handler is None:
                raise
            response = await handler(request, error)
        await response(scope, receive, send)


def _handler_of(request: Request, error: Exception) -> Callable[..., Awaitable[Response]] | None:
    """Return the application's handler of an error. The one for any error is called outside of all middleware."""
    handlers = request.app.exception_handlers
    return next((handlers[kind] for kind in type(error).__mro__ if kind is not Exception and kind in handlers), None)


def methods_of(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods that the routes take for the path of a request."""
    return [
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    ]


# Entity tags ----------------------------------------------------------------------------------------------------------

# A tag is a hash of the body: no column changes with everything that a body shows, such as held seats or the guest's
# link. So a 304 costs the statements of its 200, and neither the transfer nor the parsing of the body (decisions/0028).

_IF_NONE_MATCH = b"if-none-match"
_TAG_DIGITS = 32
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "The client has this body: `If-None-Match`."}}
"""The declaration in `responses=` of an operation whose answer has an ETag."""


@dataclass(frozen=True, slots=True)
class TaggedAnswer(Answer):
    """An answer with its entity tag."""

    etag: str = ""


def tagged_answer(result: object, headers: Iterable[tuple[bytes, bytes]]) -> TaggedAnswer:
    """Return the answer with its tag: 304 without a body if the request's `If-None-Match` has the tag, else 200."""
    body = result if isinstance(result, bytes) else orjson.dumps(result)
    # Processors have instructions for this hash: ten kilobytes of availability take half as long as with BLAKE2.
    etag = f'"{hashlib.sha256(body, usedforsecurity=False).hexdigest()[:_TAG_DIGITS]}"'
    sent = [value for name, value in headers if name == _IF_NONE_MATCH]
    if sent and _matches(b",".join(sent).decode("latin-1"), etag):
        return TaggedAnswer(304, b"", etag=etag)
    return TaggedAnswer(200, body, etag=etag)


def _matches(if_none_match: str, etag: str) -> bool:
    """Compare weakly, since a proxy that compresses the body weakens the tag. A tag of ours holds no comma."""
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag in tags
