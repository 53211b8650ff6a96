"""A small HTTP server for probes and Prometheus, on a port of its own and on the event loop of the process.

It answers only while the event loop does, and until the process ends: also when the API no longer takes connections.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.types import ASGIApp

_GRACE_S = 1
"""Seconds for probes in progress when the process ends."""


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the process has its own."""

    def capture_signals(self) -> contextlib.AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
async def serving(app: ASGIApp, host: str, port: int, *, shared: bool = False) -> AsyncIterator[int]:
    """Serve the application while the body runs, and yield the port.

    Args:
        port: 0 for any free port.
        shared: whether other processes of this user may listen on the same port; the kernel then chooses one for each
            connection.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    with _bound(host, port, shared) as listening:
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE_S,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await task


def _bound(host: str, port: int, shared: bool) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared and sys.platform == "linux":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound
