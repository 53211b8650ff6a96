"""The job for everything that expires: unpaid checkouts, departures under their minimum, API keys."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from booking_core import bookings
from booking_core.base.clock import DAY, HOUR, MINUTE, SECOND, has_passed
from booking_core.base.context import Installation
from booking_core.db.due import DueWork, Processed
from booking_core.db.engine import Database, Tx
from booking_core.organizations import keys
from booking_core.upkeep import sandboxes
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import BATCH, Sweep

log = logging.getLogger("booking.clock")

LEAP = MINUTE
"""More than this is neither a slewing clock nor a slow query."""
FIRST_LEAP = DAY
"""A process that starts has only the retention clock to compare with, which is behind after a pause of the service."""
SETTLE_S = 1800.0
"""The default time to pay for a checkout: a guest who was paying when the clock leapt can still finish."""
ABANDON_EVERY = SECOND
"""Expired checkouts hold seats that others could book. Not at every turn, though: each commit wakes the worker, and a
rush of bookings must not be slowed down by what it causes."""
MINIMUM_EVERY = MINUTE
WARN_EVERY = HOUR
"""Staff is warned a week ahead, so an hour makes no difference."""
MOVED_AT_ONCE = 20
"""Sandboxes of one turn for which the tasks with long intervals are run because their clocks were moved."""
_ONE_DEPARTURE = 1
"""A batch of a departure are its bookings."""

_Process = Callable[[Tx, Installation, str, Sequence[str]], Processed[None]]


@dataclass(slots=True)
class Task:
    """Something that expires, checked at an interval."""

    sweep: Sweep[None]
    every: int
    """Microseconds."""
    needs_settled_clock: bool = True
    """False only for a task that finishes what was begun; every other one cannot be undone."""
    ran_at: int = 0


class ExpiryJob(Job):
    """Runs several tasks, each at its own interval, in short transactions.

    A clock that leaps ahead would let it cancel bookings whose time has not come. So what cannot be undone waits for
    half an hour after a leap (decision 0019).

    Args:
        elapsed_s: the monotonic clock of this process; without it the database's clock is trusted as it is.
    """

    name = "expiry"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        *,
        elapsed_s: Callable[[], float] | None = None,
    ) -> None:
        self._database = database
        self._elapsed_s = elapsed_s
        self._last: tuple[int, float] | None = None
        """The last reading of the database's clock, and the monotonic seconds before it was asked for."""
        self._settles_at_s: float | None = None
        """The monotonic seconds at which a clock that has leapt is trusted; None: it is."""
        self._observed_at = 0
        self._total_offset = 0
        self._offsets: dict[str, int] = {}
        """Of the sandboxes whose clocks are ahead, as last seen."""
        self._moved: dict[str, int] = {}
        """Sandboxes whose clocks were moved since their tasks were run, with their offsets."""

        def sweep(name: str, work: DueWork, process: _Process, limit: int = BATCH) -> Sweep[None]:
            as_worker = lambda tx, owner, ids: process(tx, installation, owner, ids)  # noqa: E731
            return Sweep(name, database, work, as_worker, limit=limit)

        self.tasks = [
            Task(sweep("abandon_checkouts", bookings.EXPIRED, bookings.abandon), ABANDON_EVERY),
            Task(sweep("check_minimum", bookings.CLOSED, bookings.cancel_under_minimum, _ONE_DEPARTURE), MINIMUM_EVERY),
            Task(
                sweep("cancel_bookings", bookings.CANCELLING, bookings.cancel_next_batch, _ONE_DEPARTURE),
                ABANDON_EVERY,
                needs_settled_clock=False,
            ),
            Task(Sweep("warn_of_keys", database, keys.EXPIRING, keys.warn_expiring), WARN_EVERY),
        ]

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run a turn of the tasks that are due, and return how many rows they processed."""
        now, total = self._database.clock(), 0
        await self._observe_clock(now)
        failures = FailureIsolation()
        for task in self._due(now):
            with failures.isolated():
                total += await task.sweep.run_turn(stop)
            if not task.sweep.has_more:
                task.ran_at = now
        for organization_id in list(self._moved)[:MOVED_AT_ONCE]:
            with failures.isolated():
                total += await self._follow(organization_id, self._moved.pop(organization_id))
        failures.raise_last()
        return total

    async def _follow(self, organization_id: str, offset: int) -> int:
        """Run a batch of the tasks with long intervals for a sandbox: its clock has moved over them."""
        total = 0
        for task in self.tasks:
            if task.every > ABANDON_EVERY:
                task.sweep.follow(organization_id, offset)
                batch = await task.sweep.run_batch(organization_id)
                total += batch.count
                if batch.has_more:
                    self._moved[organization_id] = offset
        return total

    async def _observe_clock(self, now: int) -> None:
        """Compare the database's clock with this process's own, as often as any task may run."""
        if self._elapsed_s is None or not has_passed(ABANDON_EVERY, self._observed_at, now):
            return
        read_at_s = self._elapsed_s()
        clocks = await asyncio.to_thread(self._database.read, sandboxes.read_clocks)
        self._note_leap(clocks.now, clocks.retention, read_at_s, self._elapsed_s())
        self._observed_at = now
        await self._find_moved(clocks.total_offset)

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

    async def _find_moved(self, total_offset: int) -> None:
        """Find the sandboxes whose clocks were moved, when any was."""
        if total_offset == self._total_offset:
            return
        offsets = await asyncio.to_thread(self._database.read, sandboxes.moves)
        self._moved |= {each: offset for each, offset in offsets.items() if self._offsets.get(each) != offset}
        self._total_offset, self._offsets = total_offset, offsets

    def _due(self, now: int) -> list[Task]:
        is_settled = self._settles_at_s is None
        return [
            task
            for task in self.tasks
            if has_passed(task.every, task.ran_at, now) and (is_settled or not task.needs_settled_clock)
        ]
