"""The job that replaces the personal data of guests: of those who asked for it, and of those past their retention."""

import asyncio
from functools import partial

from booking_core import erasures
from booking_core.clock import DAY, SECOND, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database
from booking_core.settings import Settings
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import Sweep

ERASE_EVERY = 5 * SECOND
EXPIRE_EVERY = DAY
"""A pass reads all customers that are old enough, since no index leads to those whose bookings ended."""


class ErasureJob(Job):
    """Works off erasures, and once a day anonymizes customers past their retention, if there is one."""

    name = "erasure"

    def __init__(self, settings: Settings, database: Database, installation: Installation) -> None:
        self._database = database
        erase = lambda tx, owner, ids: erasures.process(tx, installation, owner, ids)  # noqa: E731
        self._erase = Sweep("erase_guests", database, erasures.DUE, erase)
        self._expire = _expiry(settings.guest_retention_days, database)
        self._erased_at = self._expired_at = 0

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run a turn of each sweep that is due, and return the number of customers that were processed."""
        now, total, failures = self._database.clock(), 0, FailureIsolation()
        if self._expire is not None and has_passed(EXPIRE_EVERY, self._expired_at, now):
            with failures.isolated():
                total += await self._expire.run_turn(stop)
            self._expired_at = 0 if self._expire.has_more else now
        if has_passed(ERASE_EVERY, self._erased_at, now):
            with failures.isolated():
                total += await self._erase.run_turn(stop)
            self._erased_at = 0 if self._erase.has_more else now
        failures.raise_last()
        return total


def _expiry(retention_days: int | None, database: Database) -> Sweep[None] | None:
    if retention_days is None:
        return None
    expire = partial(erasures.expire, retention_days=retention_days)
    return Sweep("expire_guests", database, erasures.candidates(retention_days), expire)
