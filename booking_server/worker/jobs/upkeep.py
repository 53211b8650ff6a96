"""The job for the upkeep of the delivery queue: cursors without events to send, deliveries given up, recoveries.

It runs beside the claims and not before them: a step waits for locks that requests of one organization hold, and the
deliveries of the others must not wait with it.
"""

import asyncio
import logging

from booking_core import webhooks
from booking_core.base.clock import SECOND, has_passed
from booking_core.base.errors import Unavailable, is_outage
from booking_core.db.engine import Database, Tx
from booking_server.worker.jobs.periodic import Job
from booking_server.worker.jobs.sweep import LOCK_WAIT_MS

log = logging.getLogger("booking.worker")

EVERY = 2 * SECOND
"""So long, at least, does an organization count as one with undelivered events: in a rush its row is flagged once."""
PAUSE = SECOND // 4
"""The interval while large recoveries, or long queues of disabled endpoints, are worked off."""


class UpkeepJob(Job):
    """Runs the steps of the queue's upkeep at an interval, each in a transaction of its own."""

    name = "upkeep"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._upkeep = webhooks.Upkeep()
        self._last_at = 0
        self._interval = EVERY

    @property
    def poll_s(self) -> float:
        return self._interval / SECOND

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run the steps of one turn when the interval has passed; return 0, since the next turn waits for the next
        interval."""
        now = self._database.clock()
        if has_passed(self._interval, self._last_at, now):
            self._last_at, self._interval = now, EVERY
            steps = await asyncio.to_thread(self._upkeep.steps, self._database)
            done = [await self._run(step) for step in steps if not stop.is_set()]
            self._interval = PAUSE if any(done) else EVERY
        return 0

    async def _run(self, step: webhooks.Step) -> bool:
        """Run one step, and return whether there may be more of it to do. What is locked is left for the next turn."""

        def write(tx: Tx) -> int:
            tx.limit_lock_waits(LOCK_WAIT_MS)
            return step.run(tx)

        try:
            return await asyncio.to_thread(self._database.write, write) > 0 and step.has_more
        except Exception as error:
            if is_outage(error):
                raise
            if not isinstance(error, Unavailable):
                log.exception("a step of the upkeep of deliveries failed")
            return False
