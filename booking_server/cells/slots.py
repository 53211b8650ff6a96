"""The cells of a process: each is opened, with retries while that fails, and closed with the process.

An unavailable cell delays no other: it has separate threads, connections and periodic jobs, and a separate pool for the
functions that it runs in threads of the event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI
from prometheus_client.metrics_core import Metric

from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import SettingError, Settings
from booking_core.upkeep.cells import Cell
from booking_server.app import HOPS
from booking_server.monitoring.exposition import Families, labelled
from booking_server.monitoring.health import OK, Part, Report, Status
from booking_server.monitoring.metrics import gauge
from booking_server.monitoring.monitor import Monitor, ProcessMonitor
from booking_server.worker import loops

log = logging.getLogger("booking.cells")

RETRY_S = 2.0
"""Seconds between two attempts to open a cell."""

_current: ContextVar[str] = ContextVar("cell", default="")


class OpenedCell(NamedTuple):
    """The parts of a cell that runs in this process."""

    monitor: Monitor
    app: FastAPI | None = None
    """None in a worker."""


Open = Callable[[Cell], AbstractAsyncContextManager[OpenedCell]]


class Slot:
    """The place of a cell in this process.

    Args:
        open_cell: runs the cell while its body runs.
    """

    def __init__(self, cell: Cell, open_cell: Open, *, retry_s: float = RETRY_S) -> None:
        self.cell = cell
        self.name = cell.name
        self.opened: OpenedCell | None = None
        self.error: Exception | None = None
        """The failure of the last attempt to open it."""
        self.tried = asyncio.Event()
        """Set after the first attempt to open it."""
        self._open_cell = open_cell
        self._retry_s = retry_s
        self._failures = RepeatedLog(log)

    async def run(self, stop: asyncio.Event) -> None:
        """Open the cell, with retries until that succeeds, and close it when `stop` is set."""
        _current.set(self.name)
        while not stop.is_set():
            try:
                async with self._open_cell(self.cell) as self.opened:
                    self.error = None
                    self.tried.set()
                    await stop.wait()
            except Exception as error:  # noqa: BLE001 - any error: the other cells go on
                self._note(error)
                self.tried.set()
                await loops.sleep(stop, self._retry_s)
            finally:
                self.opened = None

    def _note(self, error: Exception) -> None:
        self.error = error
        text = f"the cell {self.name} cannot be opened: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        self._failures.note(logging.ERROR, f"{self.name} {type(error).__name__}", text)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Run the functions that the body sends to threads in the pool of this cell."""
        token = _current.set(self.name)
        try:
            yield
        finally:
            _current.reset(token)


@contextlib.asynccontextmanager
async def running(slots: Sequence[Slot]) -> AsyncIterator[None]:
    """Run the cells while the body runs.

    Raises:
        SettingError: none could be opened.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().set_default_executor(_Pools([slot.name for slot in slots]))
    tasks = [asyncio.create_task(slot.run(stop)) for slot in slots]
    try:
        await asyncio.gather(*(slot.tried.wait() for slot in slots))
        if all(slot.error for slot in slots):
            raise SettingError(f"no cell can be opened: {slots[0].error}") from slots[0].error
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


class _Pools(ThreadPoolExecutor):
    """The executor of `asyncio.to_thread`, with a pool for each cell: a database that is silent holds threads."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(HOPS, "hop")
        self._pools = {name: ThreadPoolExecutor(HOPS, f"hop-{name}") for name in names}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        submit = self._pools[_current.get()].submit if _current.get() else super().submit
        return submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait, cancel_futures=cancel_futures)
        super().shutdown(wait, cancel_futures=cancel_futures)


# Health and metrics ---------------------------------------------------------------------------------------------------

# Metrics have the label `cell`, one value for each cell of the settings.

_OF_PROCESS = ("process_", "python_")
"""Metrics that all cells of a process have in common."""


class CellsHealth:
    """The health of a process by cell and part: `c2.database` is the database of the cell c2.

    The process is ready while at least one cell works: out of service it would answer for none.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._is_stopping = False

    def stop(self) -> None:
        """Let the process be unready from now on."""
        self._is_stopping = True

    def liveness(self) -> Report:
        """Report whether the process works, independently of the state of its cells."""
        reports = {name: monitor.health.liveness() for name, monitor in _opened(self._slots)}
        return Report({"process": OK} | _named(reports))

    async def readiness(self) -> Report:
        """Report whether the process should get requests: while it is not stopping and one cell works."""
        process = Part(Status.FAILED, "the process is stopping") if self._is_stopping else OK
        reports = await asyncio.gather(*map(_readiness_of, self._slots))
        parts = _named({slot.name: report for slot, report in zip(self._slots, reports, strict=True)})
        if any(report.status is not Status.FAILED for report in reports):
            failed = {name: part.message for name, part in parts.items() if part.status is Status.FAILED}
            parts |= {name: Part(Status.DEGRADED, message) for name, message in failed.items()}
        return Report({"process": process} | parts)


def _opened(slots: Iterable[Slot]) -> list[tuple[str, Monitor]]:
    """Return the names and monitors of the cells that are open."""
    return [(slot.name, slot.opened.monitor) for slot in slots if slot.opened]


def _named(reports: dict[str, Report]) -> dict[str, Part]:
    """Return the parts of all cells, without the parts of the process."""
    return {
        f"{cell}.{name}": part
        for cell, report in reports.items()
        for name, part in report.parts.items()
        if name != "process"
    }


async def _readiness_of(slot: Slot) -> Report:
    if slot.opened:
        return await slot.opened.monitor.health.readiness()
    return Report({"cell": Part(Status.FAILED, f"cannot be opened: {type(slot.error).__name__}")})


class CellsMonitor(ProcessMonitor):
    """Watches a process that serves several cells.

    Args:
        folder: of the processes that share a port with this one, if there are any.
    """

    def __init__(self, settings: Settings, slots: Sequence[Slot], folder: Path | None = None) -> None:
        self._slots = slots
        health = CellsHealth(slots)
        super().__init__(settings, health, Families(self._families), self._installations, folder)
        self.health: CellsHealth = health

    async def _installations(self) -> Iterator[Metric]:
        """Return the metrics of the cells' databases."""
        opened = _opened(self._slots)
        families = await asyncio.gather(*(monitor.installation.families() for _, monitor in opened))
        return labelled("cell", zip((name for name, _ in opened), families, strict=True))

    def _families(self) -> Iterator[Metric]:
        """Return the metrics of this process by cell."""
        text = "1 if this process has opened the cell."
        yield gauge("booking_cell_open", text, "cell", {slot.name: bool(slot.opened) for slot in self._slots})
        families = ((name, monitor.metrics.registry.collect()) for name, monitor in _opened(self._slots))
        yield from labelled("cell", families, shared=_OF_PROCESS)
