"""The worker: delivers webhooks and runs the periodic jobs.

Any number of workers may run beside one PostgreSQL.
"""

import asyncio
from collections.abc import Sequence

from booking_core.base.context import Installation
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.worker.delivery_loop import DeliveryLoop, Sender
from booking_server.worker.delivery_queue import DeliveryQueue
from booking_server.worker.heartbeat import Heartbeat
from booking_server.worker.job_loop import JobLoop
from booking_server.worker.jobs.job import Job
from booking_server.worker.loops import FailureLog, Turns
from booking_server.worker.upkeep import UpkeepJob


class Worker:
    """The delivery loop, and a loop for each periodic job."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        installation: Installation,
        sender: Sender,
        jobs: Sequence[Job] = (),
    ) -> None:
        failures = FailureLog()
        self.turns = Turns()
        self.queue = DeliveryQueue(settings, database, installation)
        self._deliveries = DeliveryLoop(self.queue, sender, failures, self.turns)
        self._upkeep = JobLoop(UpkeepJob(database), failures, self.turns)
        self._jobs = [JobLoop(job, failures, self.turns) for job in jobs]
        self._heartbeat = Heartbeat(database, self.turns, failures)

    @property
    def jobs(self) -> Sequence[Job]:
        return [loop.job for loop in self._jobs]

    def wake(self) -> None:
        """Let all loops look for work now, since something was committed."""
        self._deliveries.wake()
        for job in self._jobs:
            job.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Run all loops until `stop` is set, and until the attempts in flight are recorded."""
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                group.create_task(job.run(stop))
            group.create_task(self._heartbeat.run(stop))
            group.create_task(self._upkeep.run(stop))
            group.create_task(self._deliveries.run(stop))
        for job in self._jobs:
            await job.close()

    async def run_once(self) -> int:
        """Run each job until nothing is due, deliver all that is due, and return the number of delivery attempts."""
        for job in self._jobs:
            await job.run_once()
        await self._upkeep.run_once()
        return await self._deliveries.run_once()
