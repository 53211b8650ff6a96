"""The application: the service's settings, its routes, and what starts and stops with it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_core.errors import NotFound
from booking_core.models.limits import API_VERSION
from booking_core.settings import SettingError, Settings
from booking_server import gc_tuning
from booking_server.api import description, openapi
from booking_server.api.middleware import Edge
from booking_server.api.routers import OPERATIONS
from booking_server.execution import key_usage
from booking_server.execution.dispatch import Endpoint, Service, refuse
from booking_server.guest_pages.router import router as guest_pages
from booking_server.worker.notifier import open_notifier
from booking_server.worker.process import running_worker

_HOPS = 32
"""Threads beside those of the executors: for the worker and its periodic jobs, guests' pages and a limiter that is
asked over a network. A machine with two processors would have six, and a database that is silent would hold all of
them."""


def create_app_with_worker() -> FastAPI:
    """The application as `booking serve` runs it: it also delivers webhooks and runs the periodic jobs."""
    return create_app(worker=True)


def create_app(
    settings: Settings | None = None,
    *,
    database: Database | None = None,
    worker: bool = False,
    flush_s: float = key_usage.FLUSH_S,
) -> FastAPI:
    """The ASGI application; settings come from the environment unless they are passed in.

    Args:
        worker: whether this process also does the worker's part.
        flush_s: seconds between two writes of the last uses of keys.

    Raises:
        SettingError: a setting cannot be understood, or the database is not at this release's schema.
    """
    settings = settings or Settings.from_environment()
    if migrate.current(settings.database_url) != migrate.head():
        raise SettingError("BOOKING_DATABASE_URL is not at this release's schema: run `booking db upgrade`")
    service = Service(settings, database or Database(settings.database_url))

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_HOPS, "hop"))
            stack.push_async_callback(asyncio.to_thread, service.close)
            stack.enter_context(gc_tuning.reduced_collection())
            await stack.enter_async_context(service.key_usage.flushing(flush_s))
            if worker:
                await stack.enter_async_context(_worker_of(service))
            await stack.enter_async_context(_notifier_of(service))
            yield

    app = Application(
        title="Booking Service",
        version=API_VERSION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Asked on every request whether it is wanted. It would see a request only until a thread takes it over.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        routes=list(_routes(service)),
    )
    app.state.service = service
    app.include_router(guest_pages)
    app.router.default = _not_found
    return app


class Application(FastAPI):
    """FastAPI, with one layer of ours around its router in the place of its own five.

    Theirs catch errors, close exit stacks and count bytes for endpoints that FastAPI itself calls; here `Edge` does
    what is needed of that, and each layer left out is one coroutine fewer on every request. So is the router where a
    path has no parameters: it would try one route after the other.
    """

    def build_middleware_stack(self) -> ASGIApp:
        by_path = {route.path: route.app for route in self.routes if isinstance(route, Route) and "{" not in route.path}
        router = self.router

        async def find(scope: Scope, receive: Receive, send: Send) -> None:
            app = by_path.get(scope["path"]) if scope["type"] == "http" else None
            if app is None:
                await router(scope, receive, send)
                return
            scope["path_params"] = {}
            await app(scope, receive, send)

        return Edge(AsyncExitStackMiddleware(find))


def _routes(service: Service) -> Iterable[Route]:
    yield _route(description.OPERATION.path, description.Description(service, openapi.rendered()))
    by_path = groupby(sorted(OPERATIONS, key=lambda operation: operation.path), key=lambda operation: operation.path)
    for path, operations in by_path:
        yield _route(path, Endpoint(list(operations), service))


def _route(path: str, endpoint: Any) -> Route:
    """The route of exactly that path; a class instance is taken for an application of its own, for every method."""
    route = Route(path, endpoint)
    # `$` matches before a line break at the end too: /api/v1/me%0A would be /api/v1/me (decision R9).
    # And the rest of a path that is taken whole may hold one.
    route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    return route


async def _not_found(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await refuse(NotFound("There is no such path."), scope)(scope, receive, send)


@contextlib.asynccontextmanager
async def _worker_of(service: Service) -> AsyncIterator[None]:
    """A worker in this process, which is woken by what this process commits."""
    async with running_worker(service.settings, service.database, service.installation) as worker:
        service.committed = worker.wake
        yield
    service.committed = lambda: None


@contextlib.asynccontextmanager
async def _notifier_of(service: Service) -> AsyncIterator[None]:
    """Workers of other processes are woken too by what this process commits."""
    own = service.committed
    async with open_notifier(service.database) as notify:

        def committed() -> None:
            own()
            notify()

        service.committed = committed
        yield
    service.committed = own
