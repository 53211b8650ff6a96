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

SLOW_S = 0.01
"""Seconds after which a batch counts as waiting for the database. A thread that only waits for the interpreter gets it
after 5 ms, the switch interval of CPython."""
TENANT_QUEUE_MAX = 256
"""A job is refused with 503 at once when this many of its tenant are waiting."""
RETRY_AFTER_MAX_S = 30
_NO_CAP = 2**31
_FOREVER = -1.0
_Alarm = threading.Lock
"""A lock that its idle thread waits for, and that is released to wake it."""


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
        per_tenant: batches of one tenant that run at once. With it a batch holds jobs of one tenant, else of many.
        batch: the largest number of jobs in one batch.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        handle: BatchHandler[JobT],
        *,
        lanes: int,
        lanes_max: int = 0,
        per_tenant: int | None = None,
        batch: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._handle = handle
        self._lanes = lanes
        self._lanes_max = max(lanes, lanes_max)
        self._grows = self._lanes_max > lanes
        self._is_mixed = per_tenant is None
        self._batch = batch
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: FairQueue[QueuedJob[JobT]] = FairQueue(per_tenant or _NO_CAP)
        self._started_s: dict[int, float] = {}
        """When the batch of each running thread began."""
        self._threads: dict[int, threading.Thread] = {}
        self._idle: list[Any] = []
        """The alarms of idle threads. The one that ran last is woken first, since its data may still be in a cache."""
        self._watcher: Any = None
        """The alarm of the idle thread that waits for a running batch to become slow."""
        self._is_closing = False
        # One more than the lanes, to be idle while all of them run, and to see when one of them has become slow.
        self._kept = lanes + self._grows
        with self._lock:
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
        with self._lock:
            waiting, wait_s = self._queue.ahead(tenant, self._lanes_max)
            is_full = waiting >= TENANT_QUEUE_MAX or len(self._queue) >= QUEUE_MAX
            if is_full or wait_s > WAIT_MAX_S or self._is_closing:
                raise _refusal(wait_s)
            self._queue.put(tenant, queued)
            self._wake(self._clock())

    def put_back(self, tenant: str, jobs: Sequence[QueuedJob[JobT]]) -> None:
        """Queue jobs of a batch again, before the others of their tenant."""
        with self._lock:
            for each in reversed(jobs):
                self._queue.put(tenant, each, first=True)
            self._wake(self._clock())

    def close(self) -> None:
        """Run the jobs that are waiting, then end the threads."""
        with self._lock:
            self._is_closing = True
            self._wake_all()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    # With the lock held ----------------------------------------------------------------------------------------------

    def _wake(self, now: float) -> None:
        """Have an idle thread look at the queue: to run a job, or to see when a running batch becomes slow."""
        if not self._queue.has_runnable:
            return
        if not self._has_lane(now) and (self._watcher or self._slow_in(now) is None):
            return
        if self._idle:
            self._idle.pop().release()
        elif self._grows and len(self._threads) - self._slow(now) < self._kept:
            self._start_thread()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.pop().release()

    def _has_lane(self, now: float) -> bool:
        running = len(self._started_s)
        return running < self._lanes or (running < self._lanes_max and running - self._slow(now) < self._lanes)

    def _slow(self, now: float) -> int:
        """Return the number of running batches that wait for the database."""
        return sum(now - started_s >= SLOW_S for started_s in self._started_s.values()) if self._grows else 0

    def _slow_in(self, now: float) -> float | None:
        """Return the seconds until a running batch becomes slow, if a waiting job can have a lane then."""
        if not self._grows or not self._queue.has_runnable or len(self._started_s) >= self._lanes_max:
            return None
        left = [SLOW_S - (now - started_s) for started_s in self._started_s.values()]
        return min((each for each in left if each > 0), default=None)

    def _take(self) -> Taken[JobT]:
        if self._is_mixed:
            return self._queue.take_of_all(min(self._batch, -(-len(self._queue) // self._lanes)))
        return self._queue.take_of_one(self._batch, self._lanes)

    def _is_over(self, now: float) -> bool:
        """Return True if this thread is not needed: the executor has closed, or what was slow has ended."""
        if self._is_closing:
            return not len(self._queue)
        return len(self._threads) - self._slow(now) > self._kept

    def _finish(self, done: Taken[JobT], now: float) -> None:
        seconds = (now - self._started_s.pop(threading.get_ident())) / len(done)
        tenants = [tenant for tenant, _ in done]
        self._queue.finish(tenants if self._is_mixed else tenants[:1], seconds)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads[thread.ident or 0] = thread

    # In a thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        alarm = _Alarm()
        alarm.acquire()
        following = self._next(alarm)
        while following is not None:
            if isinstance(following, float):
                alarm.acquire(timeout=following)
                following = self._next(alarm)
                continue
            futures, results = self._run_batch(following)
            following = self._next(alarm, following)
            # After the lock, so that the event loop finds this thread waiting when it answers.
            resolve(futures, results)

    def _next(self, alarm: Any, done: Taken[JobT] | None = None) -> Taken[JobT] | float | None:
        """Return the next batch; or the seconds to wait for the alarm; or None when the thread is to end.

        Args:
            done: the batch that the thread has run, whose lane it gives back.
        """
        with self._lock:
            now = self._clock()
            if done:
                self._finish(done, now)
            else:
                self._leave_idle(alarm)
            if self._has_lane(now) and (taken := self._take()):
                self._started_s[threading.get_ident()] = now
                self._wake(now)
                return taken
            if self._is_over(now):
                del self._threads[threading.get_ident()]
                self._wake_all()  # another one may be needed to watch, or ends too
                return None
            return self._enter_idle(alarm, now)

    def _enter_idle(self, alarm: Any, now: float) -> float:
        self._idle.append(alarm)
        seconds = self._slow_in(now)
        if seconds is None:
            return _FOREVER
        self._watcher = alarm
        return seconds

    def _leave_idle(self, alarm: Any) -> None:
        if self._watcher is alarm:
            self._watcher = None
        if alarm in self._idle:
            self._idle.remove(alarm)
        else:
            alarm.acquire(blocking=False)  # it may have been released just after the time was over

    def _run_batch(self, taken: Taken[JobT]) -> tuple[list["asyncio.Future[Any]"], list[Any]]:
        """Return the futures of a batch and their results."""
        oldest = self._clock() - WAIT_MAX_S
        on_time = [job for _, job in taken if job.submitted_s >= oldest]
        late = [job for _, job in taken if job.submitted_s < oldest]
        results = [*(self._results(on_time) if on_time else ()), *(_refusal(WAIT_MAX_S) for _ in late)]
        return [job.future for job in (*on_time, *late)], results

    def _results(self, jobs: Sequence[QueuedJob[JobT]]) -> Sequence[Any]:
        try:
            return self._handle(jobs)
        except Exception as error:  # noqa: BLE001 - every future of the batch gets it, and the thread goes on
            return [error] * len(jobs)


def _refusal(wait_s: float) -> Unavailable:
    """Return the refusal of a job, to be sent again when those before it have run."""
    return Unavailable(retry_after_s=min(max(1, math.ceil(wait_s)), RETRY_AFTER_MAX_S))
