"""The process of several cells: its ASGI application, which finds the cell of a request, and its worker."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from booking_core.base import guest_links, tokens
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.payments import stripe_accounts
from booking_core.upkeep import cells
from booking_core.upkeep.cells import Cell
from booking_server import interpreter
from booking_server.app import compose, open_parts, running_process
from booking_server.app import running as running_parts
from booking_server.cells.slots import CellsMonitor, OpenedCell, Slot, running
from booking_server.execution.authenticator import FLUSH_S, bearer_token
from booking_server.execution.rate_limit import Limiter, open_limiter
from booking_server.guest_pages import GUEST_PAGES
from booking_server.monitoring.app import create_monitoring_app, listen, serving
from booking_server.monitoring.exposition import processes_folder
from booking_server.refusals import refusing
from booking_server.request_state import path_of
from booking_server.worker.process import stop_on_signal, working

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
        SettingError: a setting is invalid. An error of a cell is raised when the application starts, if every cell
            fails.
    """
    settings = settings or Settings.from_environment()
    limiter = open_limiter(settings.rate_limit_store)  # shared by all cells: an address counts once
    open_slot = partial(open_cell, limiter=limiter, worker=worker, flush_s=flush_s)
    return CellsApp(settings, [Slot(cell, open_slot) for cell in cells.every(settings)])


class CellsApp:
    """The application of several cells."""

    def __init__(self, settings: Settings, slots: Sequence[Slot]) -> None:
        self._settings = settings
        self.slots = {slot.name: slot for slot in slots}
        self.monitor = CellsMonitor(settings, slots, processes_folder())
        self._process = running_process(settings, self.monitor)
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
        """Return the cell that the request names.

        A key, or a path that would name another cell, belongs to the first cell if it names none. Any other request is
        served by the first open cell.
        """
        path = path_of(scope)
        named_slot = self.slots.get(cell_named_by(path, scope["headers"]))
        if named_slot:
            return named_slot
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
            self._process,
        ):
            yield {}


@contextlib.asynccontextmanager
async def open_cell(cell: Cell, *, limiter: Limiter, worker: bool, flush_s: float) -> AsyncIterator[OpenedCell]:
    """Serve a cell while the body runs.

    Raises:
        SettingError, CellError: the database is not at this release's schema, or belongs to another cell.
        Unavailable: it cannot be reached.
    """
    # The application has the metrics and the shutdown of the process.
    settings = replace(cell.settings, metrics_address=None, metrics_token=None, shutdown_delay_s=0.0)
    parts = await asyncio.to_thread(open_parts, settings, limiter=limiter, check=partial(cells.require_own, cell))
    async with running_parts(parts, worker=worker, flush_s=flush_s):
        yield OpenedCell(parts.monitor, compose(parts))


# The cell of a request ------------------------------------------------------------------------------------------------

STRIPE_WEBHOOKS = stripe_accounts.WEBHOOK_PATH
NAMED_BY_PATH = (*GUEST_PAGES, STRIPE_WEBHOOKS)
"""Paths that name the cell of an organization."""


def cell_named_by(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the cell that the path, or the key, names; empty for none.

    A path is the address of Stripe's webhooks, or a guest's link, whose token is followed by the name of a page.
    """
    if path.startswith(STRIPE_WEBHOOKS):
        owner_and_cell = stripe_accounts.organization_and_cell(path.removeprefix(STRIPE_WEBHOOKS))
    elif path.startswith(GUEST_PAGES):
        owner_and_cell = guest_links.organization_and_cell(path.split("/")[2])
    else:
        key = bearer_token(headers)
        return tokens.cell_of_api_key(key) if isinstance(key, str) else ""
    return owner_and_cell[1] if owner_and_cell else ""


# The worker -----------------------------------------------------------------------------------------------------------

log = logging.getLogger("booking.worker")


async def serve_forever(settings: Settings, health_address: tuple[str, int] | None = None) -> None:
    """Run a worker for each cell in this process until SIGINT or SIGTERM.

    Args:
        health_address: the host and port that serve `/healthz`, `/readyz` and `/metrics`.
    """
    stop = stop_on_signal()
    slots = [Slot(cell, open_worker) for cell in cells.every(settings)]
    monitor = CellsMonitor(settings, slots)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(interpreter.reduced_collection())
        await stack.enter_async_context(running(slots))
        if health_address:
            await stack.enter_async_context(serving(monitor, listen(monitor, *health_address)))
        log.info("the workers of %d cells run", len(slots))
        await stop.wait()
        monitor.health.stop()
        log.info("the workers stop")


@contextlib.asynccontextmanager
async def open_worker(cell: Cell) -> AsyncIterator[OpenedCell]:
    """Run the worker of a cell while the body runs.

    Raises:
        CellError: the database belongs to another cell.
        Unavailable: it cannot be reached.
    """
    async with working(cell.settings, check=partial(cells.require_own, cell)) as (monitor, _):
        yield OpenedCell(monitor)
