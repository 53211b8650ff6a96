"""The job that fills the rows which revisions of the schema have left to the worker (decision 0049)."""

import asyncio
from collections.abc import Mapping

from booking_core.clock import MINUTE, SECOND, has_passed
from booking_core.db.backfills import Backfill
from booking_core.db.engine import Database
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import Sweep

TRANSACTION_MAX = 200
"""Rows in one transaction: on SQLite, which has one writer, a booking waits for it."""
TRANSACTIONS_MAX = 10
"""Transactions of each back-fill in one turn."""
EVERY = MINUTE
"""Processes of the release before may still write rows that lack a value."""
PAUSE = SECOND // 4
"""The interval while there is more to fill."""


class BackfillJob(Job):
    """Fills the rows of all organizations, a batch of each in turn.

    Args:
        backfills: by the revisions that have begun them.
    """

    name = "backfill"

    def __init__(self, database: Database, backfills: Mapping[str, Backfill]) -> None:
        self._database = database
        self._sweeps = [
            Sweep(f"backfill_{revision}", database, each, each.fill, limit=TRANSACTION_MAX)
            for revision, each in backfills.items()
        ]
        self._ran_at = 0
        self._pause = EVERY

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Fill a share of the rows when the pause is over, and return how many."""
        now = self._database.clock()
        if not has_passed(self._pause, self._ran_at, now):
            return 0
        total, failures = 0, FailureIsolation()
        for sweep in self._sweeps:
            with failures.isolated():
                total += await sweep.run_turn(stop, batches=TRANSACTIONS_MAX)
        self._ran_at, self._pause = now, PAUSE if any(sweep.has_more for sweep in self._sweeps) else EVERY
        failures.raise_last()
        return total

    async def run_all(self) -> int:
        """Fill every row without pauses, except locked and parked ones, and return how many."""
        stop, total = asyncio.Event(), 0
        for sweep in self._sweeps:
            while count := await sweep.run_turn(stop):
                total += count
        return total
