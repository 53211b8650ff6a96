"""The monitoring port of a process: `/healthz`, `/readyz` and `/metrics`, which the API's own port has too.

They need no key, are not limited and are not in the OpenAPI document; metrics may need a token. The port answers only
while the event loop of the process does, and until the process ends: also when the API no longer takes connections.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator

import orjson
import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from booking_core.base.errors import NotFound
from booking_server.monitoring.health import Report, Status
from booking_server.monitoring.monitor import ProcessMonitor

_UNAVAILABLE = 503
_GRACE_S = 1
"""Seconds for probes in progress when the process ends."""

router = APIRouter(include_in_schema=False)


@router.api_route("/healthz", methods=["GET", "HEAD"])
async def get_health(request: Request) -> Response:
    """Return whether the process works."""
    return _response(_monitor_of(request).health.liveness())


@router.api_route("/readyz", methods=["GET", "HEAD"])
async def get_readiness(request: Request) -> Response:
    """Return whether the process should get requests."""
    return _response(await _monitor_of(request).health.readiness())


@router.get("/metrics")
async def get_metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    monitor = _monitor_of(request)
    is_own_port = getattr(request.app.state, "is_monitoring_port", False)
    is_allowed = monitor.is_allowed(request.headers.get("authorization", ""), is_own_port=is_own_port)
    if is_allowed is None:
        raise NotFound("There is no such path.")
    if not is_allowed:
        raise HTTPException(401, "The metrics need their token.", {"www-authenticate": "Bearer"})
    return Response(await monitor.exposition(), media_type=CONTENT_TYPE_LATEST)


def _monitor_of(request: Request) -> ProcessMonitor:
    monitor: ProcessMonitor = request.app.state.monitor
    return monitor


def _response(report: Report) -> Response:
    status = _UNAVAILABLE if report.status is Status.FAILED else 200
    return Response(orjson.dumps(report.as_json()), status, media_type="application/json")


def create_monitoring_app(monitor: ProcessMonitor) -> FastAPI:
    """Create the ASGI application of a process's monitoring port."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, telemetry={"tracing": False, "metrics": False})
    app.state.monitor = monitor
    app.state.is_monitoring_port = True
    app.include_router(router)
    return app


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the process has its own."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def listen(monitor: ProcessMonitor, host: str, port: int) -> socket.socket:
    """Return a socket that listens for the probes of a process.

    Args:
        port: 0 for any free port. Processes of one `booking serve` listen on the same one, and the kernel chooses a
            process for each connection.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    is_shared = monitor.is_shared and sys.platform == "linux"
    return socket.create_server((host, port), family=family, reuse_port=is_shared)


@contextlib.asynccontextmanager
async def serving(monitor: ProcessMonitor, listening: socket.socket) -> AsyncIterator[None]:
    """Serve the health and the metrics of a process on a socket while the body runs, and close it."""
    options = {"lifespan": "off", "log_config": None, "access_log": False, "server_header": False, "ws": "none"}
    with listening:
        app = create_monitoring_app(monitor)
        server = _Server(uvicorn.Config(app, timeout_graceful_shutdown=_GRACE_S, **options))  # type: ignore[arg-type]
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield
        finally:
            server.should_exit = True
            await task
