"""The application: the service of its settings, its routes, and everything that starts and stops with it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.types import Lifespan

from booking_core.base.errors import BookingError
from booking_core.base.settings import SettingError, Settings
from booking_core.db import revisions
from booking_core.db.engine import Database
from booking_core.db.revisions import SchemaState
from booking_core.models.limits import API_VERSION
from booking_core.payments import stripe_accounts
from booking_core.upkeep import secret_keys
from booking_server import interpreter, refusals
from booking_server.api.middleware import STATE, RequestContextMiddleware
from booking_server.api.openapi import document
from booking_server.api.routers import ROUTERS
from booking_server.execution.authenticator import FLUSH_S
from booking_server.execution.rate_limit import Limiter
from booking_server.execution.service import Service
from booking_server.fastapi_ext.routes import RouteTable
from booking_server.guest_pages.router import router as guest_pages
from booking_server.monitoring.app import listen, serving
from booking_server.monitoring.app import router as monitoring
from booking_server.monitoring.exposition import processes_folder
from booking_server.monitoring.health import announced
from booking_server.monitoring.monitor import Monitor, ProcessMonitor
from booking_server.monitoring.observer import RequestLog, RequestObserver
from booking_server.octo import router as octo
from booking_server.reference import router as reference
from booking_server.stripe_webhooks import router as stripe_webhooks
from booking_server.tracing import open_tracing
from booking_server.transport.admission import Admission, AdmissionMiddleware
from booking_server.worker.notifier import open_notifier
from booking_server.worker.process import running_worker

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from booking_server.tracing.tracing import Tracing

log = logging.getLogger("booking.serve")

HOPS = 32
"""Threads in addition to the executors' threads: for the worker, its periodic jobs, and a limiter that is called over a
network. The default on two processors would be six, and a silent database would hold all of them."""


# The application -----------------------------------------------------------------------------------------------------


def create_app_with_worker() -> FastAPI:
    """Create the application of `booking serve`, which also delivers webhooks and runs the periodic jobs."""
    return create_app(worker=True)


def create_app(
    settings: Settings | None = None,
    *,
    database: Database | None = None,
    worker: bool = False,
    flush_s: float = FLUSH_S,
    tracer_provider: "TracerProvider | None" = None,
) -> FastAPI:
    """Create the ASGI application; settings come from the environment unless they are passed in.

    Args:
        worker: whether this process also does the worker's part.
        flush_s: seconds between two writes of the last uses of keys.
        tracer_provider: makes the spans of this application, instead of the provider that the settings name.

    Raises:
        SettingError: a setting is invalid, the database is not at this release's schema, or the secret keys do not open
            its values.
        OSError: the address of the metrics is in use, or not of this machine.
    """
    if settings is None:
        settings = Settings.from_environment()
        if settings.cells and not settings.cell:
            raise SettingError("BOOKING_CELLS is set: start booking_server.cells:create_app instead of this one")
    parts = open_parts(settings, database, folder=processes_folder(), tracer_provider=tracer_provider)
    process = running_process(settings, parts.monitor)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(HOPS, "hop"))
        async with running(parts, worker=worker, flush_s=flush_s), process:
            yield {STATE: parts.observer}

    return compose(parts, lifespan)


def compose(parts: "Parts", lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    """Return the application of a service."""
    app = describe(lifespan, parts.observer, parts.admission)
    app.state.service = parts.service
    app.state.admission = parts.admission
    app.state.monitor = parts.monitor
    return app


def describe(
    lifespan: Lifespan[FastAPI] | None = None,
    observer: RequestObserver | None = None,
    admission: Admission | None = None,
) -> FastAPI:
    """Return the application without its service: enough for the OpenAPI document, and for tests of it."""
    routers = (*ROUTERS, octo, guest_pages, stripe_webhooks, reference, monitoring)
    routes = [route for router in routers for route in router.routes]
    app = FastAPI(
        routes=routes,
        title="Booking Service",
        version=API_VERSION,
        license_info={"name": "MIT", "identifier": "MIT"},
        servers=[{"url": "/", "description": "The service that served this description."}],
        # `booking_server.api.openapi.document` serves the document, counted against the client's address.
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        exception_handlers=refusals.HANDLERS,
        # It would write paths and queries into spans, and see a request only until a thread takes it over (decision
        # 0026).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.add_middleware(RouteTable, routes=routes)
    if admission is not None:
        app.add_middleware(AdmissionMiddleware, admission=admission)
    app.add_middleware(RequestContextMiddleware, observer=observer)
    app.openapi = document.generator(app)  # type: ignore[method-assign]
    return app


# The parts of a service ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """The service of a database, and the objects that watch it and its requests."""

    service: Service
    monitor: Monitor
    tracing: "Tracing | None"
    observer: RequestObserver
    admission: Admission


def open_parts(
    settings: Settings,
    database: Database | None = None,
    limiter: Limiter | None = None,
    *,
    check: Callable[[Database], None] = lambda _: None,
    folder: Path | None = None,
    tracer_provider: "TracerProvider | None" = None,
) -> Parts:
    """Check the database of the settings, and return its service with the objects that watch it.

    Args:
        limiter: as `Service`.
        check: called with the database before anything of it is read.
        folder: of the processes that share a port with this one.
        tracer_provider: as `create_app`.

    Raises:
        SettingError: as `create_app`.
    """
    database = database or Database(settings.database_url)
    try:
        check(database)
        _check_schema(database)
        _verify_secret_keys(settings, database)
    except BaseException:
        database.close()
        raise
    service = Service(settings, database, limiter)
    store, organization_of = service.authenticator.limiter, service.authenticator.known_organization
    monitor = Monitor(settings, database, store=store.ping, folder=folder)
    monitor.metrics.observe_executors(service.executors, lambda: store.failed_open)
    tracing = _tracing_of(service, tracer_provider)
    request_log = None if settings.request_log is None else RequestLog(settings.request_log, organization_of)
    observer = RequestObserver(monitor.metrics, request_log, tracing)
    return Parts(service, monitor, tracing, observer, Admission(organization_of))


def _check_schema(database: Database) -> None:
    state = database.read(revisions.state)
    if state is SchemaState.OLDER:
        raise SettingError("BOOKING_DATABASE_URL is not at this release's schema: run `booking db upgrade`")
    if state is SchemaState.TOO_NEW:
        raise SettingError("BOOKING_DATABASE_URL has the schema of a newer release: install that release")


def _verify_secret_keys(settings: Settings, database: Database) -> None:
    """Refuse a wrong secret key also under an ASGI server that is not started by `booking serve`.

    `booking serve` has logged damaged values, once for all of its processes."""
    problem = secret_keys.find_problem(settings, database)
    if problem is None or problem.is_damage:
        return
    if problem.is_refused:
        raise SettingError(f"{problem.message} {problem.hint[0].upper()}{problem.hint[1:]}.")
    log.warning("%s", problem.message)


def _tracing_of(service: Service, provider: "TracerProvider | None") -> "Tracing | None":
    """Return the tracing of a service, or None if it is off."""
    tracing = open_tracing(service.settings, provider)
    if tracing is None:
        return None
    service.trace(tracing)
    tracing.organization_of = service.authenticator.known_organization
    return tracing


# The lifespan --------------------------------------------------------------------------------------------------------


def running_process(settings: Settings, monitor: ProcessMonitor) -> AbstractAsyncContextManager[None]:
    """Return the context that runs the parts that a process has once, however many services it has.

    The address of its metrics is taken at once: an error of the lifespan would be logged with its traceback.

    Raises:
        OSError: that address is in use, or not of this machine.
    """
    address = settings.metrics_address
    return _running_process(settings, monitor, listen(monitor, *address) if address else None)


@contextlib.asynccontextmanager
async def _running_process(
    settings: Settings, monitor: ProcessMonitor, listening: socket | None
) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        if listening:
            await stack.enter_async_context(serving(monitor, listening))
        stack.enter_context(interpreter.reduced_collection())
        stack.enter_context(interpreter.frequent_switches())
        stack.enter_context(announced(monitor.health.stop, settings.shutdown_delay_s))
        yield
        monitor.health.stop()


@contextlib.asynccontextmanager
async def running(parts: Parts, *, worker: bool, flush_s: float = FLUSH_S) -> AsyncIterator[None]:
    """Run the parts that start and stop with a service."""
    service = parts.service
    async with contextlib.AsyncExitStack() as stack:
        if parts.tracing:
            stack.push_async_callback(asyncio.to_thread, parts.tracing.close)
        stack.push_async_callback(asyncio.to_thread, service.close)
        stack.push_async_callback(service.payment_calls.intents.aclose)
        if await asyncio.to_thread(_takes_cards, service):
            await service.payment_calls.intents.open()
        await stack.enter_async_context(parts.monitor.running())
        await stack.enter_async_context(parts.admission.running())
        await stack.enter_async_context(service.key_usage.flushing(flush_s))
        if worker:
            await stack.enter_async_context(_worker_of(parts))
        service.on_commit.append(await stack.enter_async_context(open_notifier(service.database)))
        yield


def _takes_cards(service: Service) -> bool:
    """Return whether calls of Stripe are to be expected. If so, the library is imported before the first request: a
    later import would slow the requests of all organizations."""
    if service.settings.stripe_api_key:
        return True
    try:
        return service.database.read(stripe_accounts.has_any)
    except BookingError:  # the database is unavailable; the first call will import it
        return False


@contextlib.asynccontextmanager
async def _worker_of(parts: Parts) -> AsyncIterator[None]:
    """Run a worker in this process, which the commits of this process wake."""
    service = parts.service
    async with running_worker(service.settings, service.database, service.installation, parts.tracing) as worker:
        parts.monitor.watch_worker(worker)
        service.on_commit.append(worker.wake)
        yield
