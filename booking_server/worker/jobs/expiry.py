"""The job for everything that expires: unpaid checkouts, departures under their minimum, API keys."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from booking_core import bookings, sandboxes
from booking_core.base.clock import DAY, HOUR, MINUTE, SECOND, has_passed
from booking_core.base.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.due_work.rows import DueWork, Processed
from booking_core.due_work.sweep import BATCH, Sweep
from booking_core.organizations import keys
from booking_server.worker.jobs.periodic import SweepJob, Task

log = logging.getLogger("booking.clock")

LEAP = MINUTE
"""More than this is neither a slewing clock nor a slow query."""
FIRST_LEAP = DAY
"""A new process can only compare with the retention clock, which is late after a pause of the service."""
SETTLE_S = 1800.0
"""The default time to pay for a checkout: a guest who was paying when the clock leapt can still finish."""
ABANDON_EVERY = SECOND
"""Expired checkouts hold seats that others could book. Not at every turn, though: each commit wakes the worker, and
this work must not slow down the rush of bookings that causes it."""
MINIMUM_EVERY = MINUTE
WARN_EVERY = HOUR
"""Staff is warned a week ahead, so an hour makes no difference."""
_ONE_DEPARTURE = 1
"""A batch of a departure are its bookings."""

_Process = Callable[[Tx, Installation, str, Sequence[str]], Processed[None]]


class ExpiryJob(SweepJob):
    """Runs several tasks, each at its own interval, in short transactions.

    A clock that leaps ahead would let it cancel bookings whose time has not come. So what cannot be undone waits for
    half an hour after a leap (decision 0007).

    Args:
        elapsed_s: the monotonic clock of this process.
    """

    def __init__(self, database: Database, installation: Installation, *, elapsed_s: Callable[[], float]) -> None:
        def sweep(name: str, work: DueWork, process: _Process, limit: int = BATCH) -> Sweep[None]:
            as_worker = lambda tx, owner, ids: process(tx, installation, owner, ids)  # noqa: E731
            return Sweep(name, database, work, as_worker, limit=limit)

        under_minimum = sweep("check_minimum", bookings.CLOSED, bookings.cancel_under_minimum, _ONE_DEPARTURE)
        cancelling = sweep("cancel_bookings", bookings.CANCELLING, bookings.cancel_next_batch, _ONE_DEPARTURE)
        warn = Sweep("warn_of_keys", database, keys.EXPIRING, keys.warn_expiring)
        self._cancelling = Task(sweep=cancelling, every=ABANDON_EVERY)
        """Finishes a cancellation that was begun, which is safe by any clock. No other task can be undone."""
        super().__init__(
            "expiry",
            database,
            Task(sweep=sweep("abandon_checkouts", bookings.EXPIRED, bookings.abandon), every=ABANDON_EVERY),
            Task(sweep=under_minimum, every=MINIMUM_EVERY),
            self._cancelling,
            Task(sweep=warn, every=WARN_EVERY),
        )
        self._elapsed_s = elapsed_s
        self._last: tuple[int, float] | None = None
        """The last reading of the database's clock, and the monotonic seconds before its query."""
        self._settles_at_s: float | None = None
        """The monotonic seconds when a clock that has leapt will be trusted; None: it is trusted now."""
        self._observed_at = 0
        self._total_offset = 0
        """The sum of the offsets of all sandboxes, as last seen."""

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run a turn of the tasks that are due, and return how many rows they processed."""
        await self._observe_clock(self._database.clock())
        return await super().run_turn(stop)

    def due(self, now: int) -> list[Task]:
        """Return the tasks whose interval has passed; after a leap of the clock only the task that is safe then."""
        return [task for task in super().due(now) if self._settles_at_s is None or task is self._cancelling]

    async def _observe_clock(self, now: int) -> None:
        """Compare the database's clock with this process's own, as often as any task may run."""
        if not has_passed(ABANDON_EVERY, self._observed_at, now):
            return
        read_at_s = self._elapsed_s()
        clocks = await asyncio.to_thread(self._database.read, sandboxes.read_clocks)
        self._note_leap(clocks.now, clocks.retention, read_at_s, self._elapsed_s())
        self._observed_at = now
        if clocks.total_offset != self._total_offset:  # the clock of a sandbox may have moved over an interval
            self._total_offset = clocks.total_offset
            for task in self.tasks:
                task.make_due()

    def _note_leap(self, now: int, retention_clock: int | None, read_at_s: float, elapsed_s: float) -> None:
        """Distrust a clock that went further than this process's own since the last reading."""
        if self._last is None:
            leap = now - (now if retention_clock is None else retention_clock)
            is_leap = leap > FIRST_LEAP
        else:
            last, last_read_at_s = self._last
            leap = now - last - round((elapsed_s - last_read_at_s) * SECOND)
            is_leap = leap > LEAP
        self._last = now, read_at_s
        if is_leap:
            self._settles_at_s = elapsed_s + SETTLE_S
            log.warning("the clock leapt ahead by %.0f s: nothing expires for %.0f s", leap / SECOND, SETTLE_S)
        elif self._settles_at_s is not None and elapsed_s >= self._settles_at_s:
            self._settles_at_s = None
