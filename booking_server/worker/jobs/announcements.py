"""The job that announces departures whose seats, status or time changed."""

import asyncio
from collections.abc import Sequence

from booking_core.base.clock import SECOND, has_passed
from booking_core.catalogue import departures
from booking_core.db.engine import Database
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.sweep import Sweep

EVERY = SECOND
"""Not at every turn: each commit wakes the worker, and a rush of bookings must not be slowed down by what it causes."""


class AnnouncementJob(Job):
    """Publishes the departures of organizations that have `departure.updated` sent."""

    name = "announcements"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ran_at = 0
        touched, announce = departures.TOUCHED, departures.announce
        self.announcing = Sweep("announce_departures", database, touched, announce, observe=self._count)

    def _count(self, are_published: Sequence[bool]) -> None:
        for is_published in are_published:
            self.results["published" if is_published else "unchanged"] += 1

    async def run_turn(self, stop: asyncio.Event) -> int:
        now = self._database.clock()
        if not has_passed(EVERY, self._ran_at, now):
            return 0
        total = await self.announcing.run_turn(stop)
        if not self.announcing.has_more:
            self._ran_at = now
        return total
