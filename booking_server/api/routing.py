"""The route class of the API: where and with which others a path operation runs.

FastAPI runs a plain `def` path operation in a thread, and so does `ApiRoute`: in one of the service's executors, in one
hop with the look-up of its key, on one connection, together with the requests that wait beside it.

- A `def` operation that takes `tx: ReadTx`, or no transaction, runs among the reads; its result is the
  JSON to respond with, as a dict or as bytes, and is not validated on the way out. One whose path ends with an id, or
  that takes no transaction, is answered where its key is looked up; any other one is a list, with two seconds for a
  statement.
- A `def` operation that returns a `CreateRequest` is carried out in the batch of those bookings that wait.
- An `async def` operation runs on the event loop, after its dependencies, and returns a `Response`.
"""

import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping
from enum import Enum
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from booking_core.base.context import Caller
from booking_core.base.errors import IdempotencyInProgress
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Tx
from booking_core.records.idempotency import Answer
from booking_server.api import etags
from booking_server.api.dependencies import (
    api_key,
    counted,
    credentials_of,
    get_read_tx,
    mark_of,
    service_of,
)
from booking_server.api.requests import ApiRequest
from booking_server.api.resolver import Plan, effective_dependant, is_covered
from booking_server.api.responses import respond

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Operate = Callable[[Mapping[Any, Any]], Any]
"""A path operation whose dependencies are resolved; it takes those that an executor gives it."""


class ApiRouter(APIRouter):
    """A router of the API. The id of an operation, by which clients know it, is the name of its function."""

    def __init__(self, *, prefix: str, tags: list[str | Enum]) -> None:
        super().__init__(
            prefix=prefix, tags=tags, route_class=ApiRoute, generate_unique_id_function=lambda route: route.name
        )


class ApiRoute(APIRoute):
    """A route whose path is exact, and whose operation runs in the executor of its kind."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        # The `$` of a route's expression also matches before a line break at the end (decision R9).
        if scope["path"].endswith("\n"):
            return Match.NONE, {}
        return super().matches(scope)

    def get_route_handler(self) -> Handler:
        dependant = effective_dependant(self)
        operation = Operation.of(dependant) if dependant else None
        if operation is None:
            return super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await operation(ApiRequest(request.scope, request.receive))

        return handle


class Operation:
    """A path operation that runs in the executor of its kind, with the plan of its dependencies."""

    def __init__(self, dependant: Dependant, kind: "Loop | Reads | Creates") -> None:
        self._dependant = dependant
        self._kind = kind
        self._plan = Plan(dependant, kind.given, {})
        self._reads_body = bool(dependant.body_params)

    @classmethod
    def of(cls, dependant: Dependant) -> "Operation | None":
        """Return the operation that is declared so; None for a declaration that is left to FastAPI."""
        assert dependant.call is not None
        kind = _kind(dependant.call, dependant)
        return cls(dependant, kind) if is_covered(dependant, kind.given) else None

    async def __call__(self, request: ApiRequest) -> Response:
        """Respond to a request."""
        body = await request.body() if self._reads_body else None
        if overrides := request.app.dependency_overrides:
            operate = await Plan(self._dependant, (get_read_tx,), overrides).resolve(request, body)
            return await self._kind.finish(request, operate)
        return await self._kind.run(request, self._plan, body)


class Loop:
    """Operations on the event loop."""

    given: tuple[Any, ...] = ()

    async def run(self, request: Request, plan: Plan, body: Any) -> Response:
        return await self.finish(request, await plan.resolve(request, body))

    async def finish(self, _: Request, operate: Operate) -> Response:
        response: Response = await operate({})
        return response


class Reads:
    """Operations among the reads of the service.

    Args:
        is_list: the operation may cost more than the look-up of a row, and runs in the lanes of lists.
        is_tagged: its response has an ETag (`etags`).
    """

    given = (api_key, get_read_tx)

    def __init__(self, *, is_list: bool, is_tagged: bool) -> None:
        self._is_list = is_list
        self._is_tagged = is_tagged

    async def run(self, request: Request, plan: Plan, body: Any) -> Response:
        def run(tx: Tx, caller: Caller) -> Any:
            found = plan.run(request, body, {api_key: caller, get_read_tx: tx})
            return self._tagged(request, found)

        with counted(request) as credentials:
            reads = service_of(request).reads
            answer = await reads.read_for(credentials, run, is_list=self._is_list)
            return respond(answer)

    async def finish(self, request: Request, operate: Operate) -> Response:
        reads = service_of(request).reads
        return respond(await reads.read(lambda tx: self._tagged(request, operate({get_read_tx: tx}))))

    def _tagged(self, request: Request, result: Any) -> Any:
        return etags.answer(result, request.scope["headers"]) if self._is_tagged else result


class Creates:
    """Operations in the batch of bookings that wait."""

    given = (api_key,)

    async def run(self, request: Request, plan: Plan, body: Any) -> Response:
        service, mark = service_of(request), mark_of(request)

        def prepare(caller: Caller) -> CreateRequest:
            create: CreateRequest = plan.run(request, body, {api_key: caller})
            return create

        def refuse(_: Tx, caller: Caller) -> Answer:
            prepare(caller)  # it passes its own checks first
            raise IdempotencyInProgress

        with counted(request) as credentials:
            if mark in service.running:
                return respond(await service.reads.read_for(credentials, refuse, is_list=False))
            with service.marked(mark):
                return respond(await service.create_booking(credentials, prepare, size=len(body)))

    async def finish(self, request: Request, operate: Operate) -> Response:
        create, size = operate({}), len(await request.body())
        service, credentials = service_of(request), credentials_of(request)
        return respond(await service.create_booking(credentials, lambda _: create, size=size))


def _kind(endpoint: Callable[..., Any], dependant: Dependant) -> Loop | Reads | Creates:
    if inspect.iscoroutinefunction(endpoint):
        return Loop()
    if inspect.signature(endpoint).return_annotation is CreateRequest:
        return Creates()
    is_list = _takes(dependant, (get_read_tx,)) and not (dependant.path or "").endswith("}")
    return Reads(is_list=is_list, is_tagged=etags.is_tagged(endpoint))


def _takes(dependant: Dependant, calls: Collection[Any]) -> bool:
    return any(sub.call in calls or _takes(sub, calls) for sub in dependant.dependencies)
