"""The cells of a process: each is opened, tried again while it cannot be, and closed with the process.

A cell that is away delays no other: it has separate threads, connections and periodic jobs, and a separate pool for the
functions that it runs in threads of the event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

from fastapi import FastAPI

from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import SettingError
from booking_core.upkeep.cells import Cell
from booking_server.app import HOPS
from booking_server.monitoring.monitor import Monitor
from booking_server.worker import loops

log = logging.getLogger("booking.cells")

RETRY_S = 2.0
"""Seconds between two attempts to open a cell."""

_current: ContextVar[str] = ContextVar("cell", default="")


class Opened(NamedTuple):
    """The parts of a cell that runs in this process."""

    monitor: Monitor
    app: FastAPI | None = None
    """None in a worker."""


Open = Callable[[Cell], AbstractAsyncContextManager[Opened]]


class Slot:
    """The place of a cell in this process.

    Args:
        open_cell: runs the cell while its body runs.
    """

    def __init__(self, cell: Cell, open_cell: Open, *, retry_s: float = RETRY_S) -> None:
        self.cell = cell
        self.name = cell.name
        self.opened: Opened | None = None
        self.error: Exception | None = None
        """The failure of the last attempt to open it."""
        self.tried = asyncio.Event()
        """Set after the first attempt to open it."""
        self._open_cell = open_cell
        self._retry_s = retry_s
        self._failures = RepeatedLog(log)

    async def run(self, stop: asyncio.Event) -> None:
        """Open the cell, again and again while that fails, and close it when `stop` is set."""
        _current.set(self.name)
        while not stop.is_set():
            try:
                async with self._open_cell(self.cell) as self.opened:
                    self.error = None
                    self.tried.set()
                    await stop.wait()
            except Exception as error:  # noqa: BLE001 - the other cells go on, whatever it is
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
        """Run the functions that the body leaves to threads in the pool of this cell."""
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
