"""The loop of one periodic job."""

import asyncio

from booking_server.worker import loops
from booking_server.worker.jobs.job import Job

PAUSE_S = 0.1
"""The shortest time between two turns of an idle job: every commit wakes it, and a rush is full of commits."""


class JobLoop:
    """Runs a job again and again; its failures stop neither the loop nor other jobs."""

    def __init__(self, job: Job, failures: loops.FailureLog, turns: loops.Turns) -> None:
        self._job = job
        self._failures = failures
        self._turns = turns
        self._changed = asyncio.Event()

    @property
    def job(self) -> Job:
        return self._job

    def wake(self) -> None:
        """Let the job look for work now."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run the job until `stop` is set."""
        failures = 0
        while not stop.is_set():
            self._changed.clear()
            self._turns.note(self._job.name)
            try:
                count = await self._job.run_turn(stop)
            except Exception as error:  # noqa: BLE001 - the loop outlives every failure of a turn
                self._failures.add(self._job.name, error)
                failures += 1
                await loops.back_off(stop, failures)
                continue
            failures = 0
            if not count:
                await loops.sleep(stop, PAUSE_S)
                await loops.wait_for_change(self._changed, stop, self._job.poll_s)

    async def run_once(self) -> None:
        """Run turns until nothing is due, and let a failure reach the caller."""
        await self._job.run_once()

    async def close(self) -> None:
        """Settle what is in flight, and log a failure: leases expire, so that nothing is lost."""
        try:
            await self._job.close()
        except Exception as error:  # noqa: BLE001 - the other jobs are closed too
            self._failures.add(self._job.name, error)
