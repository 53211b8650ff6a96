"""The job that replaces the personal data of guests: of those whose erasure was requested, and of those past their
retention."""

import asyncio
from dataclasses import dataclass
from functools import partial

from booking_core.base.clock import DAY, SECOND, has_passed
from booking_core.base.context import Installation
from booking_core.base.settings import Settings
from booking_core.customers import erasures
from booking_core.db.engine import Database
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import Sweep

ERASE_EVERY = 5 * SECOND
EXPIRE_EVERY = DAY
"""A pass reads all customers that are old enough, since no index leads to those whose bookings ended."""
BATCHES = 20
"""Transactions of a sweep in one turn."""
PAUSE = SECOND // 4
"""The interval while there is more to do: bookings have the database to themselves meanwhile."""


@dataclass(slots=True)
class Task:
    """A sweep that begins a pass at an interval, in microseconds."""

    sweep: Sweep[None]
    every: int
    pause: int = 0
    ran_at: int = 0

    async def run_turn(self, now: int, stop: asyncio.Event) -> int:
        """Run a turn of the sweep when its pause is over, and return the number of customers."""
        if not has_passed(self.pause, self.ran_at, now):
            return 0
        try:
            return await self.sweep.run_turn(stop, batches=BATCHES)
        finally:
            self.ran_at, self.pause = now, PAUSE if self.sweep.has_more else self.every


class ErasureJob(Job):
    """Works off erasures, and once a day anonymizes customers past their retention, if there is one."""

    name = "erasure"

    def __init__(self, settings: Settings, database: Database, installation: Installation) -> None:
        self._database = database
        erase = lambda tx, owner, ids: erasures.process(tx, installation, owner, ids)  # noqa: E731
        self.tasks = [Task(Sweep("erase_guests", database, erasures.DUE, erase), ERASE_EVERY)]
        days = settings.guest_retention_days
        if days is not None:
            expire = partial(erasures.expire, retention_days=days)
            self.tasks.append(Task(Sweep("expire_guests", database, erasures.candidates(days), expire), EXPIRE_EVERY))

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run a turn of each sweep that is due, and return the number of customers that were processed."""
        now, total, failures = self._database.clock(), 0, FailureIsolation()
        for task in self.tasks:
            with failures.isolated():
                total += await task.run_turn(now, stop)
        failures.raise_last()
        return total
