"""The job for everything that expires: unpaid checkouts, departures under their minimum, API keys."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from booking_core import bookings, keys, sandboxes
from booking_core.clock import HOUR, MINUTE, SECOND, has_passed
from booking_core.context import Installation
from booking_core.db.due import DueWork, Processed
from booking_core.db.engine import Database, Tx
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import BATCH, Sweep

log = logging.getLogger("booking.clock")

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
Batch = Callable[[Tx], int]
"""Processes some rows in a short transaction, and returns how many; 0 when none is left."""


@dataclass(slots=True)
class Task:
    """Something that expires, checked at an interval."""

    sweep: Sweep[None]
    every: int
    """Microseconds."""
    needs_settled_clock: bool = True
    """False only for a task that finishes what was begun; every other one cannot be undone."""
    ran_at: int = 0


REALIGN_BATCHES = 20
"""In one turn, for each kind of rows: the tasks run in between, however many times lie too far ahead."""


class ExpiryJob(Job):
    """Runs several tasks, each at its own interval, in short transactions.

    Args:
        watch: without it the clock is trusted as it is.
        realign: batches that correct times which a clock ahead of this one wrote.
    """

    name = "expiry"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        *,
        watch: ClockWatch | None = None,
        realign: Sequence[Batch] = (),
    ) -> None:
        self._database = database
        self._watch = watch
        self._realign = realign
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
        return total + await self._realign_times(stop)

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
        if self._watch is not None and has_passed(ABANDON_EVERY, self._observed_at, now):
            read_at_s = self._watch.elapsed_s()
            clocks = await asyncio.to_thread(self._database.read, sandboxes.read_clocks)
            self._watch.observe(clocks.now, clocks.retention, read_at_s=read_at_s)
            self._observed_at = now
            await self._find_moved(clocks.total_offset)

    async def _find_moved(self, total_offset: int) -> None:
        """Find the sandboxes whose clocks were moved, when any was."""
        if total_offset == self._total_offset:
            return
        offsets = await asyncio.to_thread(self._database.read, sandboxes.moves)
        self._moved |= {each: offset for each, offset in offsets.items() if self._offsets.get(each) != offset}
        self._total_offset, self._offsets = total_offset, offsets

    def _due(self, now: int) -> list[Task]:
        is_settled = self._watch is None or self._watch.is_settled
        return [
            task
            for task in self.tasks
            if has_passed(task.every, task.ran_at, now) and (is_settled or not task.needs_settled_clock)
        ]

    async def _realign_times(self, stop: asyncio.Event) -> int:
        """Correct the times that a clock ahead of this one wrote, when there may be some."""
        if self._watch is None or not self._watch.must_realign:
            return 0
        self._watch.must_realign = False  # set again when the clock is set back meanwhile
        total, failures = 0, FailureIsolation()
        try:
            for batch in self._realign:
                with failures.isolated():
                    total += await self._run_batches(batch, stop)
            failures.raise_last()
        except BaseException:
            self._watch.must_realign = True
            raise
        self._watch.must_realign |= stop.is_set()
        if total:
            log.warning("%d times lay too far ahead and were corrected", total)
        return total

    async def _run_batches(self, batch: Batch, stop: asyncio.Event) -> int:
        """Run a batch again until it finds nothing, or its budget for one turn is used up: the next turn goes on."""
        total = 0
        for _ in range(REALIGN_BATCHES):
            if stop.is_set() or not (count := await asyncio.to_thread(self._database.write, batch)):
                return total
            total += count
        if self._watch is not None:
            self._watch.must_realign = True
        return total
