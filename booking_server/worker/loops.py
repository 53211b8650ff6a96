"""The loops of a worker, for periodic jobs and the heartbeat: their waits and their logs."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.errors import BookingError, Unavailable
from booking_core.base.repeated_log import RepeatedLog
from booking_core.db.engine import Database, Tx
from booking_core.upkeep import worker_heartbeats
from booking_server.monitoring.health import STALLED_S
from booking_server.worker.jobs.periodic import Job

log = logging.getLogger("booking.worker")

START_S = 0.5
"""The time before the first turn of a job without a commit: a process that starts answers its first requests first."""
PAUSE_S = 0.1
"""The time between a commit and the turn of an idle job: every commit wakes it, and a rush is full of commits."""
BACKOFF_S = 0.5
BACKOFF_MAX_S = 5.0
"""The longest pause between two attempts: a database that is back is noticed within this time."""


class FailureLog:
    """Logs failed turns, and an unavailable database only once for a period."""

    def __init__(self) -> None:
        self._repeated = RepeatedLog(log)

    def add(self, name: str, error: BaseException) -> None:
        """Log the failure of a turn of the named loop."""
        if isinstance(error, Unavailable) and error.fault:
            return  # the database logs such a fault itself, once for all callers
        if isinstance(error, BookingError):
            self._repeated.note(logging.WARNING, name, f"the database is unavailable, {name} waits: {error}")
        else:
            log.error("a turn of %s failed", name, exc_info=error)


class Turns:
    """The last turn of each loop of a worker, to detect a loop that hangs.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_s: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Note that the named loop begins a turn."""
        self._at_s[name] = self._clock()

    def ages_s(self) -> dict[str, float]:
        """Return the seconds since each loop began its last turn."""
        now_s = self._clock()
        return {name: now_s - at_s for name, at_s in self._at_s.items()}

    def stalled(self, seconds: float) -> list[str]:
        """Return the loops that began no turn for so long."""
        return [name for name, age_s in self.ages_s().items() if age_s >= seconds]


def backoff_s(failures: int) -> float:
    """Return the pause in seconds after this many failed turns in a row."""
    return float(min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(failures - 1, 10)))


async def back_off(stop: asyncio.Event, failures: int) -> None:
    """Sleep before the next attempt; return early on `stop`, but not on a commit."""
    await sleep(stop, backoff_s(failures))


async def sleep(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, and return early on `stop`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def wait_for_change(changed: asyncio.Event, stop: asyncio.Event, poll_s: float) -> None:
    """Wait until `changed` or `stop` is set, at most for `poll_s` seconds."""
    waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(changed.wait())}
    _, pending = await asyncio.wait(waiting, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()


class JobLoop:
    """Runs a job again and again; its failures stop neither the loop nor other jobs."""

    def __init__(self, job: Job, failures: FailureLog, turns: Turns) -> None:
        self.job = job
        self._failures = failures
        self._turns = turns
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Let the job look for work now."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run the job until `stop` is set."""
        failures = 0
        self._turns.note(self.job.name)
        await wait_for_change(self._changed, stop, START_S)
        while not stop.is_set():
            self._changed.clear()
            self._turns.note(self.job.name)
            try:
                count = await self.job.run_turn(stop)
            except Exception as error:  # noqa: BLE001 - the loop outlives every failure of a turn
                self._failures.add(self.job.name, error)
                failures += 1
                await back_off(stop, failures)
                continue
            failures = 0
            if not count:
                await wait_for_change(self._changed, stop, self.job.poll_s)
                if self._changed.is_set():
                    await sleep(stop, PAUSE_S)

    async def close(self) -> None:
        """Settle calls in flight, and log a failure: leases expire, so nothing is lost."""
        try:
            await self.job.close()
        except Exception as error:  # noqa: BLE001 - the other jobs are closed too
            self._failures.add(self.job.name, error)


class Heartbeat:
    """Writes the heartbeat of one worker."""

    def __init__(self, database: Database, turns: Turns, failures: FailureLog) -> None:
        self._database = database
        self._turns = turns
        self._failures = failures
        self._worker_id = tokens.new_id()

    async def run(self, stop: asyncio.Event) -> None:
        """Write heartbeats until `stop` is set, then delete the row."""
        while not stop.is_set():
            await self.beat()
            await sleep(stop, worker_heartbeats.EVERY / SECOND)
        await self._try(lambda tx: worker_heartbeats.remove(tx, self._worker_id))

    async def beat(self) -> None:
        """Write a heartbeat, unless one of the loops has stalled."""
        if not self._turns.stalled(STALLED_S):
            await self._try(lambda tx: worker_heartbeats.beat(tx, self._worker_id))

    async def _try(self, fn: Callable[[Tx], None]) -> None:
        try:
            await asyncio.to_thread(self._database.write, fn)
        except Exception as error:  # noqa: BLE001 - the loops continue after a failed heartbeat
            # The loops that need the database log that it is unavailable.
            if not isinstance(error, BookingError):
                self._failures.add("the heartbeat", error)
