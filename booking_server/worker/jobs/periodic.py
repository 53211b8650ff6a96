"""Periodic jobs: work that becomes due with time, done in turns.

To add one:

1. In the core, write the `DueRows` that find the rows, and a function that processes rows of one organization in a
   transaction: `process(tx, organization_id, ids) -> Processed`. It checks again that they are due, and skips locked
   ones. `booking_core.customers.erasures` has both.
2. Add a `SweepJob` with a `Task` to `booking_server.worker.jobs`. The sweep serves organizations in turn and parks
   rows that fail.
3. Add rows to the table of `tests/booking_server/worker/test_job_isolation.py`, and a line to
   `tests/isolation/README.md`.

A job that calls another service is a `LeaseJob`: it leases rows, calls without a transaction, and records.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from booking_core.base.clock import has_passed
from booking_core.base.errors import is_outage
from booking_core.db.engine import Database
from booking_core.due_work.sweep import BATCHES_MAX, Sweep

POLL_S = 2.0
"""A commit wakes every job at once. Only rows that become due by the time alone wait for the poll: a retry of a refund,
an expired checkout. Each poll is a query of every job, so it decides most of the cost of an idle service."""


class Job(ABC):
    """A periodic job. Each runs in a separate loop, so a slow mail server delays no refund."""

    name: str

    @property
    def poll_s(self) -> float:
        """Return the seconds between two looks for work while nothing is committed."""
        return POLL_S

    @cached_property
    def results(self) -> Counter[str]:
        """The results of the job by their outcome, for metrics."""
        return Counter()

    @abstractmethod
    async def run_turn(self, stop: asyncio.Event) -> int:
        """Process a share of the due rows, and return their number; 0 when nothing is due.

        When `stop` is set, the turn ends after the batch in hand.
        """

    async def run_once(self) -> int:
        """Run turns until nothing is due, and return how many rows were processed."""
        stop, total = asyncio.Event(), 0
        while count := await self.run_turn(stop):
            total += count
        return total

    async def close(self) -> None:  # noqa: B027 - most jobs hold no resources
        """Release the job's resources."""


class FailureIsolation:
    """Holds back the failures of tasks that run one after the other.

    Run each task inside `isolated`, then call `raise_last`: the loop around the job still sees a failure.
    """

    def __init__(self) -> None:
        self._last: Exception | None = None

    @contextlib.contextmanager
    def isolated(self) -> Iterator[None]:
        """Hold back the body's exception, unless the database is unavailable: then every other task would fail too."""
        try:
            yield
        except Exception as error:
            if is_outage(error):
                raise
            self._last = error

    def raise_last(self) -> None:
        """Raise the last failure that was held back, if there is one."""
        if self._last:
            raise self._last


@dataclass(slots=True, kw_only=True)
class Task:
    """A sweep that runs at an interval."""

    sweep: Sweep[Any]
    every: int
    """Microseconds between two turns once nothing is left."""
    pause: int = 0
    """The interval while there is more to do: bookings have the database to themselves meanwhile."""
    batches: int = BATCHES_MAX
    """Transactions in one turn."""
    _interval: int = field(default=0, init=False)
    _ran_at: int = field(default=0, init=False)

    def is_due(self, now: int) -> bool:
        return has_passed(self._interval, self._ran_at, now)

    def make_due(self) -> None:
        """Let the task run in the next turn."""
        self._interval = 0

    async def run_turn(self, now: int, stop: asyncio.Event) -> int:
        """Run a turn of the sweep, and return the number of rows."""
        try:
            return await self.sweep.run_turn(stop, batches=self.batches)
        finally:
            self._ran_at, self._interval = now, self.pause if self.sweep.has_more else self.every


class SweepJob(Job):
    """A job that runs sweeps, each at its own interval."""

    def __init__(self, name: str, database: Database, *tasks: Task) -> None:
        self.name = name
        self.tasks: Sequence[Task] = tasks
        self._database = database

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run a turn of each task that is due, and return how many rows they processed."""
        now, total, failures = self._database.clock(), 0, FailureIsolation()
        for task in self.due(now):
            with failures.isolated():
                total += await task.run_turn(now, stop)
        failures.raise_last()
        return total

    def due(self, now: int) -> list[Task]:
        """Return the tasks whose interval has passed."""
        return [task for task in self.tasks if task.is_due(now)]
