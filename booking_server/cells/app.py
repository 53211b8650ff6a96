"""The ASGI application of several cells: it finds the cell of a request, and leaves the request to that cell's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.upkeep import cells
from booking_core.upkeep.cells import Cell
from booking_server.app import compose, open_parts, running_process
from booking_server.app import running as running_parts
from booking_server.cells.monitoring import CellsMonitor
from booking_server.cells.routing import NAMED_BY_PATH, cell_named_by
from booking_server.cells.slots import Opened, Slot, running
from booking_server.execution.authenticator import FLUSH_S
from booking_server.execution.rate_limit import Limiter, open_limiter
from booking_server.http.refusals import path_of, refusing
from booking_server.monitoring.app import create_monitoring_app
from booking_server.monitoring.exposition import processes_folder

_RETRY_AFTER_S = 2
_PROBES = ("/healthz", "/readyz")


def create_app_with_worker() -> "CellsApp":
    """Create the application of `booking serve`, which also runs the worker of each cell."""
    return create_app(worker=True)


def create_app(settings: Settings | None = None, *, worker: bool = False, flush_s: float = FLUSH_S) -> "CellsApp":
    """Create the ASGI application of all cells of the settings.

    Args:
        worker: each cell also has its worker in this process.
        flush_s: seconds between two writes of the last uses of keys.

    Raises:
        SettingError: a setting cannot be understood. What is wrong with a cell is raised when the application starts,
            if it is so with every cell.
    """
    settings = settings or Settings.from_environment()
    limiter = open_limiter(settings.rate_limit_store)  # one for all, so that an address counts once
    open_slot = partial(open_cell, limiter=limiter, worker=worker, flush_s=flush_s)
    return CellsApp(settings, [Slot(cell, open_slot) for cell in cells.every(settings)])


class CellsApp:
    """The application of several cells."""

    def __init__(self, settings: Settings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self.slots = {slot.name: slot for slot in slots}
        self.monitor = CellsMonitor(settings, slots, processes_folder())
        self._monitoring = create_monitoring_app(self.monitor)
        self._monitoring.state.is_monitoring_port = False
        self._lifespan = Router(lifespan=self._running)
        self._unavailable = refusing(Unavailable(retry_after_s=_RETRY_AFTER_S, reason="cell"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
        elif scope["path"] in _PROBES or (scope["path"] == "/metrics" and self._settings.metrics_token):
            await self._monitoring(scope, receive, send)
        else:
            await self._dispatch(self._slot_of(scope), scope, receive, send)

    def _slot_of(self, scope: Scope) -> Slot:
        """Return the cell that the request names; without a name the first one that is open.

        Without a name there is no key, or one of the first cell: only for a request without a key any cell will do.
        """
        path = path_of(scope)
        named = self.slots.get(cell_named_by(path, scope["headers"]))
        if named:
            return named
        first, *_ = self.slots.values()
        if path.startswith(NAMED_BY_PATH) or any(name == b"authorization" for name, _ in scope["headers"]):
            return first
        return next((slot for slot in self.slots.values() if slot.opened), first)

    async def _dispatch(self, slot: Slot, scope: Scope, receive: Receive, send: Send) -> None:
        opened = slot.opened
        if opened is None or opened.app is None:
            await self._unavailable(scope, receive, send)
            return
        with slot.entered():
            await opened.app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _running(self, _: Any) -> AsyncIterator[dict[str, object]]:
        async with (
            running(list(self.slots.values())),
            self.monitor.running(),
            running_process(self._settings, self.monitor),
        ):
            yield {}


@contextlib.asynccontextmanager
async def open_cell(cell: Cell, *, limiter: Limiter, worker: bool, flush_s: float) -> AsyncIterator[Opened]:
    """Serve a cell while the body runs.

    Raises:
        SettingError, CellError: the database is not at this release's schema, or not that of the cell.
        Unavailable: it cannot be reached.
    """
    # The metrics and the shutdown of the process are those of the application.
    settings = replace(cell.settings, metrics_address=None, metrics_token=None, shutdown_delay_s=0.0)
    parts = await asyncio.to_thread(open_parts, settings, limiter=limiter, check=partial(cells.require_own, cell))
    async with running_parts(parts, worker=worker, flush_s=flush_s):
        yield Opened(parts.monitor, compose(parts))
