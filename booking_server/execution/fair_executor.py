"""A thread pool that runs the jobs of its tenants in turn, so that no tenant holds every thread.

`lanes` batches run at once: more would only compete for the interpreter and the processor. A batch that has run for
`SLOW_S` waits for the database, and its lane is given to another one beside it, up to `lanes_max` at once. So slow
statements never hold fast ones, and fast ones are never spread over more threads than they can use.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from booking_core.errors import Unavailable
from booking_server.execution.executor import QUEUE_MAX, WAIT_MAX_S
from booking_server.execution.fair_queue import FairQueue
from booking_server.execution.futures import Unresolved, resolve

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

SLOW_S = 0.01
"""Seconds after which a batch counts as waiting for the database. A thread that waits for the interpreter alone gets it
after 5 ms, the switch interval of CPython."""
TENANT_QUEUE_MAX = 256
"""A job is refused with 503 at once when this many of its tenant are waiting."""
RETRY_AFTER_MAX_S = 30
_NO_CAP = 2**31


class QueuedJob(NamedTuple, Generic[JobT]):
    """A job that waits for a thread, and the future that it resolves."""

    job: JobT
    future: "asyncio.Future[Any]"
    submitted_s: float


Taken = list[tuple[str, QueuedJob[JobT]]]
"""The jobs of a batch with their tenants."""
BatchHandler = Callable[[Sequence[QueuedJob[JobT]]], Sequence[Any | Exception | Unresolved]]
"""Runs a batch and returns one result or exception for each job, or `UNRESOLVED` for one that goes on elsewhere."""


class FairExecutor(Generic[JobT]):
    """A thread pool that runs jobs in batches, those of its tenants in turn.

    Args:
        lanes: batches that run at once.
        lanes_max: batches that run at once, those that wait for the database included; by default as many as lanes.
        per_tenant: jobs of one tenant that run at once; by default any number.
        batch: the largest number of jobs in one batch.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        handle: BatchHandler[JobT],
        *,
        lanes: int,
        lanes_max: int | None = None,
        per_tenant: int = _NO_CAP,
        batch: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._handle = handle
        self._lanes = lanes
        self._lanes_max = lanes_max or lanes
        self._batch = batch
        self._clock = clock
        self._queue: FairQueue[QueuedJob[JobT]] = FairQueue(per_tenant)
        self._changed = threading.Condition(threading.Lock())
        self._started_s: dict[int, float] = {}
        """When the batch of each running thread began."""
        self._threads: dict[int, threading.Thread] = {}
        self._idle = 0
        self._watching = 0
        """Idle threads that wait for a running batch to become slow."""
        self._is_closing = False
        # One more than the lanes is idle while all of them run: it sees when one of them has become slow.
        self._kept = lanes + (self._lanes_max > lanes)
        with self._changed:
            for _ in range(self._kept):
                self._start_thread()

    def submit(self, tenant: str, job: JobT) -> "asyncio.Future[Any]":
        """Queue a job of the event loop and return the future of its result.

        Raises:
            Unavailable: as `forward`. The future raises it too, for a job that waited too long.
        """
        queued = QueuedJob(job, asyncio.get_running_loop().create_future(), self._clock())
        self.forward(tenant, queued)
        return queued.future

    def forward(self, tenant: str, queued: QueuedJob[JobT]) -> None:
        """Queue a job that has a future already; from any thread.

        Raises:
            Unavailable: the queue is full, the job would wait too long, or the executor is closing.
        """
        with self._changed:
            self._check_room(tenant)
            self._queue.put(tenant, queued)
            self._wake()

    def close(self) -> None:
        """Run the jobs that are waiting, then end the threads."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    # With the lock held ----------------------------------------------------------------------------------------------

    def _check_room(self, tenant: str) -> None:
        wait_s = self._queue.expected_wait_s(tenant, self._lanes_max)
        is_full = self._queue.waiting(tenant) >= TENANT_QUEUE_MAX or len(self._queue) >= QUEUE_MAX
        if self._is_closing or is_full or wait_s > WAIT_MAX_S:
            raise _refusal(wait_s)

    def _wake(self) -> None:
        """Have an idle thread look at the queue: to run a job, or to see when a lane becomes slow."""
        if not self._queue.has_runnable:
            return
        now = self._clock()
        if not self._has_lane(now) and (self._watching or self._slow_in(now) is None):
            return
        if self._idle:
            self._changed.notify()
        elif len(self._threads) - self._slow(now) < self._kept:
            self._start_thread()

    def _has_lane(self, now: float) -> bool:
        running = len(self._started_s)
        if running < self._lanes:
            return True
        return running < self._lanes_max and running - self._slow(now) < self._lanes

    def _slow(self, now: float) -> int:
        """Return the number of running batches that wait for the database."""
        if self._lanes_max == self._lanes:
            return 0
        return sum(now - started_s >= SLOW_S for started_s in self._started_s.values())

    def _slow_in(self, now: float) -> float | None:
        """Return the seconds until a running batch becomes slow, if a waiting job can have a lane then."""
        if not self._queue.has_runnable or len(self._started_s) >= self._lanes_max or self._lanes_max == self._lanes:
            return None
        left = [SLOW_S - (now - started_s) for started_s in self._started_s.values()]
        return min((each for each in left if each > 0), default=None)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads[thread.ident or 0] = thread

    # In a thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while taken := self._take():
            self._run_batch(taken)

    def _take(self) -> Taken[JobT]:
        """Return the next batch; empty when the thread is to end."""
        with self._changed:
            while True:
                now = self._clock()
                if self._has_lane(now) and (taken := self._queue.take(self._share())):
                    self._started_s[threading.get_ident()] = now
                    self._wake()
                    return taken
                if self._is_over(now):
                    del self._threads[threading.get_ident()]
                    self._changed.notify_all()
                    return []
                self._wait(self._slow_in(now))

    def _share(self) -> int:
        """Return this thread's share of the queue, at most a batch."""
        return min(self._batch, -(-len(self._queue) // self._lanes))

    def _is_over(self, now: float) -> bool:
        """Return True if the thread is not needed: the executor has closed, or what was slow has ended."""
        if self._is_closing:
            return not len(self._queue)
        return len(self._threads) - self._slow(now) > self._kept

    def _wait(self, seconds: float | None) -> None:
        self._idle += 1
        self._watching += seconds is not None
        self._changed.wait(seconds)
        self._watching -= seconds is not None
        self._idle -= 1

    def _run_batch(self, taken: Taken[JobT]) -> None:
        oldest = self._clock() - WAIT_MAX_S
        on_time = [job for _, job in taken if job.submitted_s >= oldest]
        late = [job for _, job in taken if job.submitted_s < oldest]
        results = self._results(on_time) if on_time else []
        refusals = self._finish(taken, len(late))
        resolve([job.future for job in (*on_time, *late)], [*results, *refusals])

    def _results(self, jobs: Sequence[QueuedJob[JobT]]) -> Sequence[Any]:
        try:
            return self._handle(jobs)
        except Exception as error:  # noqa: BLE001 - every future of the batch gets it, and the thread goes on
            return [error] * len(jobs)

    def _finish(self, taken: Taken[JobT], late: int) -> list[Unavailable]:
        """Give the lane back and return the refusals of the jobs that waited too long."""
        with self._changed:
            seconds = (self._clock() - self._started_s.pop(threading.get_ident())) / len(taken)
            for tenant, _ in taken:
                self._queue.finish(tenant, seconds)
        return [_refusal(WAIT_MAX_S) for _ in range(late)]


def _refusal(wait_s: float) -> Unavailable:
    """Return the refusal of a job, to be sent again when those before it have run."""
    return Unavailable(retry_after_s=min(max(1, math.ceil(wait_s)), RETRY_AFTER_MAX_S))
