"""The application: the service's settings, its routes, and what starts and stops with it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.types import Lifespan

from booking_core.base.errors import BookingError, Unavailable
from booking_core.base.settings import SettingError, Settings
from booking_core.db import revisions
from booking_core.db.engine import Database
from booking_core.db.pooling import find_connections
from booking_core.db.revisions import SchemaState
from booking_core.models.limits import API_VERSION
from booking_core.payments import stripe_accounts
from booking_core.upkeep import secret_keys
from booking_server import gc_tuning, interpreter
from booking_server.api import errors
from booking_server.api.middleware import RequestContextMiddleware
from booking_server.api.observer import STATE, RequestObserver
from booking_server.api.openapi import data, document
from booking_server.api.request_log import RequestLog
from booking_server.api.route_table import RouteTable, RouteTableMiddleware
from booking_server.api.routers import ROUTERS
from booking_server.execution import key_usage
from booking_server.execution.authenticator import Credentials
from booking_server.execution.rate_limit import Limiter
from booking_server.execution.service import Service
from booking_server.guest_pages.router import router as guest_pages
from booking_server.http.admission import Admission, AdmissionMiddleware
from booking_server.monitoring import shutdown
from booking_server.monitoring.app import serving
from booking_server.monitoring.exposition import processes_folder
from booking_server.monitoring.monitor import Monitor, Monitored
from booking_server.monitoring.router import router as monitoring
from booking_server.reference import router as reference
from booking_server.stripe_webhooks import router as stripe_webhooks
from booking_server.tracing.setup import open_tracing
from booking_server.worker.notifier import open_notifier
from booking_server.worker.process import running_worker

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from booking_server.tracing.tracing import Tracing

log = logging.getLogger("booking.serve")

HOPS = 32
"""Threads beside those of the executors: for the worker and its periodic jobs, and a limiter that is asked over a
network. A machine with two processors would have six, and a database that is silent would hold all of them."""


def create_app_with_worker() -> FastAPI:
    """Create the application of `booking serve`, which also delivers webhooks and runs the periodic jobs."""
    return create_app(worker=True)


def create_app(
    settings: Settings | None = None,
    *,
    database: Database | None = None,
    worker: bool = False,
    flush_s: float = key_usage.FLUSH_S,
    tracer_provider: "TracerProvider | None" = None,
) -> FastAPI:
    """Create the ASGI application; settings come from the environment unless they are passed in.

    Args:
        worker: whether this process also does the worker's part.
        flush_s: seconds between two writes of the last uses of keys.
        tracer_provider: makes the spans of this application, in the place of the provider that the settings name.

    Raises:
        SettingError: a setting cannot be understood, the database is not at this release's schema, or the secret keys
            do not open what it holds.
    """
    if settings is None:
        settings = Settings.from_environment()
        if settings.cells and not settings.cell:
            raise SettingError("BOOKING_CELLS is set: start booking_server.cells:create_app instead of this one")
    service = open_service(settings, database)
    monitor = monitor_of(service, folder=processes_folder())
    tracing = tracing_of(service, tracer_provider)
    observer = observer_of(service, monitor, tracing)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(HOPS, "hop"))
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(service.authenticator.limiter.aclose)
            await stack.enter_async_context(of_service(service, monitor, tracing, worker=worker, flush_s=flush_s))
            await stack.enter_async_context(of_process(settings, monitor))
            await stack.enter_async_context(app.state.admission.running())
            stack.enter_context(shutdown.announced(monitor.health.stop, settings.shutdown_delay_s))
            yield {STATE: observer}
            monitor.health.stop()

    app = compose(service, monitor, observer, lifespan)
    return app


def open_service(settings: Settings, database: Database | None = None, limiter: Limiter | None = None) -> Service:
    """Check the database of the settings, and return its service.

    Raises:
        SettingError: as `create_app`.
    """
    database = database or Database(settings.database_url)
    try:
        _check_schema(database)
        _verify_secret_keys(settings, database)
    except BaseException:
        database.close()
        raise
    _log_pooling(settings, database)
    return Service(settings, database, limiter)


def compose(
    service: Service, monitor: Monitor, observer: RequestObserver, lifespan: Lifespan[FastAPI] | None = None
) -> FastAPI:
    """Return the application of a service."""
    admission = Admission(service.authenticator.seen_keys.organization_of)
    app = describe(lifespan, observer, admission)
    app.state.admission = admission
    app.state.service = service
    app.state.observer = observer
    app.state.monitor = monitor
    return app


@contextlib.asynccontextmanager
async def of_process(settings: Settings, monitor: Monitored) -> AsyncIterator[None]:
    """Run the parts that a process has once, however many services it has."""
    async with contextlib.AsyncExitStack() as stack:
        if settings.metrics_address:
            await stack.enter_async_context(serving(monitor, *settings.metrics_address))
        stack.enter_context(gc_tuning.reduced_collection())
        stack.enter_context(interpreter.frequent_switches())
        yield


@contextlib.asynccontextmanager
async def of_service(
    service: Service,
    monitor: Monitor,
    tracing: "Tracing | None",
    *,
    worker: bool,
    flush_s: float = key_usage.FLUSH_S,
) -> AsyncIterator[None]:
    """Run the parts that start and stop with a service."""
    async with contextlib.AsyncExitStack() as stack:
        if tracing:
            stack.push_async_callback(asyncio.to_thread, tracing.close)
        stack.push_async_callback(asyncio.to_thread, service.close)
        stack.push_async_callback(service.payment_calls.aclose)
        if await asyncio.to_thread(_takes_cards, service):
            await service.payment_calls.open()
        await stack.enter_async_context(monitor.running())
        await stack.enter_async_context(service.key_usage.flushing(flush_s))
        if worker:
            await stack.enter_async_context(_worker_of(service, monitor, tracing))
        await stack.enter_async_context(_notifier_of(service))
        yield


def _takes_cards(service: Service) -> bool:
    """Return whether calls of Stripe are to be expected. Their library is imported before the first request: later its
    modules would take the interpreter from the requests of all organizations."""
    if service.settings.stripe_api_key:
        return True
    try:
        return service.database.read(stripe_accounts.has_any)
    except BookingError:  # the database is away, and the first call will import it
        return False


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


def monitor_of(service: Service, *, folder: Path | None = None) -> Monitor:
    """Return the health and the metrics of a service.

    Args:
        folder: of the processes that share a port with this one.
    """
    limiter = service.authenticator.limiter
    monitor = Monitor(service.settings, service.database, store=limiter.ping, folder=folder)
    monitor.metrics.observe_executors(service.executors, lambda: limiter.failed_open)
    return monitor


def observer_of(service: Service, monitor: Monitor, tracing: "Tracing | None") -> RequestObserver:
    """Return the observer of the requests of a service."""
    return RequestObserver(monitor.metrics, _request_log_of(service), tracing)


def tracing_of(service: Service, provider: "TracerProvider | None" = None) -> "Tracing | None":
    """Return the tracing of a service, or None if it is off.

    Args:
        provider: makes the spans, in the place of the provider that the settings name.
    """
    tracing = open_tracing(service.settings, provider)
    if tracing is None:
        return None
    service.trace(tracing)
    known = service.authenticator.known_organization
    tracing.organization_of = lambda scope: known(Credentials(scope["headers"], ""))
    return tracing


def _log_pooling(settings: Settings, database: Database) -> None:
    """Log what works through a pooler, if there is one."""
    with contextlib.suppress(Unavailable):  # requests are refused until the database is there
        for sentence in find_connections(settings, database).sentences():
            log.info("%s", sentence)


def describe(
    lifespan: Lifespan[FastAPI] | None = None,
    observer: RequestObserver | None = None,
    admission: Admission | None = None,
) -> FastAPI:
    """Return the application without its service: enough for the OpenAPI document, and for tests of it."""
    app = FastAPI(
        title="Booking Service",
        version=API_VERSION,
        description=data.description(),
        license_info={"name": "MIT", "identifier": "MIT"},
        servers=[{"url": "/", "description": "The service that served this description."}],
        openapi_tags=[{"name": name, "description": text} for name, text in data.examples()["tags"].items()],
        # `booking_server.api.openapi.router` serves the document, counted against the client's address.
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        # It would write paths and queries into spans, and see a request only until a thread takes it over (decision
        # 0047).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    errors.add_handlers(app)
    for router in (*ROUTERS, guest_pages, stripe_webhooks, reference, monitoring):
        app.include_router(router)
    table = RouteTable(app.routes)
    app.router.routes.insert(0, table)
    app.add_middleware(RouteTableMiddleware, table=table)
    if admission is not None:
        app.add_middleware(AdmissionMiddleware, admission=admission)
    app.add_middleware(RequestContextMiddleware, observer=observer)
    app.openapi = document.generator(app)  # type: ignore[method-assign]
    return app


def _request_log_of(service: Service) -> RequestLog | None:
    """Return the request log, unless the settings switch it off."""
    share = service.settings.request_log
    return None if share is None else RequestLog(share, service.authenticator.seen_keys.organization_of)


@contextlib.asynccontextmanager
async def _worker_of(service: Service, monitor: Monitor, tracing: "Tracing | None") -> AsyncIterator[None]:
    """Run a worker in this process, which the commits of this process wake."""
    async with running_worker(service.settings, service.database, service.installation, tracing) as worker:
        monitor.watch_worker(worker)
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
