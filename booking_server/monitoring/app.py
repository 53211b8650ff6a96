"""The application of the monitoring port: `/healthz`, `/readyz` and `/metrics`."""

import contextlib
import sys
from collections.abc import AsyncIterator

from fastapi import FastAPI

from booking_server.monitoring import server
from booking_server.monitoring.monitor import Monitored
from booking_server.monitoring.router import router


def create_monitoring_app(monitor: Monitored) -> FastAPI:
    """Create the ASGI application of a process's monitoring port."""
    app = FastAPI(openapi_url=None, redirect_slashes=False, telemetry={"tracing": False, "metrics": False})
    app.state.monitor = monitor
    app.state.is_monitoring_port = True
    app.include_router(router)
    return app


@contextlib.asynccontextmanager
async def serving(monitor: Monitored, host: str, port: int) -> AsyncIterator[int]:
    """Serve the health and the metrics of a process while the body runs, and yield the port."""
    is_shared = monitor.is_shared and sys.platform == "linux"
    async with server.serving(create_monitoring_app(monitor), host, port, shared=is_shared) as bound_port:
        yield bound_port
