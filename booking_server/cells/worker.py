"""The worker of several cells in one process: a worker for each, all of them on one event loop."""

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial

from booking_core.base.settings import Settings
from booking_core.upkeep import cells
from booking_core.upkeep.cells import Cell
from booking_server import gc_tuning
from booking_server.cells.monitoring import CellsMonitor
from booking_server.cells.slots import Opened, Slot, running
from booking_server.monitoring.app import serving
from booking_server.worker.process import stop_on_signal, working

log = logging.getLogger("booking.worker")


async def serve_forever(settings: Settings, health_address: tuple[str, int] | None = None) -> None:
    """Run a worker for each cell in this process until SIGINT or SIGTERM.

    Args:
        health_address: the host and port on which `/healthz`, `/readyz` and `/metrics` are served.
    """
    stop = stop_on_signal()
    slots = [Slot(cell, open_worker) for cell in cells.every(settings)]
    monitor = CellsMonitor(settings, slots)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(gc_tuning.reduced_collection())
        await stack.enter_async_context(running(slots))
        if health_address:
            await stack.enter_async_context(serving(monitor, *health_address))
        log.info("the workers of %d cells run", len(slots))
        await stop.wait()
        monitor.health.stop()
        log.info("the workers stop")


@contextlib.asynccontextmanager
async def open_worker(cell: Cell) -> AsyncIterator[Opened]:
    """Run the worker of a cell while the body runs.

    Raises:
        CellError: the database is not that of the cell.
        Unavailable: it cannot be reached.
    """
    async with working(cell.settings, check=partial(cells.require_own, cell)) as (monitor, _):
        yield Opened(monitor)
