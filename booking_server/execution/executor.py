"""Thread pools that run the jobs of the event loop in batches.

The core is synchronous, so a client that disconnects can never cancel a transaction half way. Each request takes one
hop to a thread. A thread takes all waiting jobs up to a limit, so an idle service runs batches of one. Each job has a
future of its own; all futures of a batch are resolved with one wake-up of the event loop.

The queue in front of the threads is bounded and fair (see `queues`). A job is refused at once when its owner has its
part of the queue, and when it would wait for too long: an answer that comes after its client has gone is work for
nothing, and under load there would be no other answers.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from booking_core.base.errors import Unavailable, is_outage
from booking_server.execution.futures import Unresolved, resolve
from booking_server.execution.load import Load
from booking_server.execution.queues import JobQueue, MixedQueue, Place

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

QUEUE_MAX = 2048
"""A job is refused with 503 at once when this many are waiting: a longer queue would only make all of them late."""
OWNER_PART = 0.5
"""The part of the queue that the jobs of one owner may fill."""
WAIT_MAX_S = 6.0
"""A job that waited longer than this is refused with 503 and not run. With three seconds for locks and the time of its
transaction it would be answered after ten seconds, when its client has gone."""
HOPELESS_PART = 0.75
"""A job is refused with 503 at once when it would probably wait for more than this part of its longest wait."""
RETRY_AFTER_MAX_S = 30
SLOW_S = 0.01
"""Seconds after which a batch counts as waiting for the database. One that waits for the interpreter gets it much
sooner (`interpreter.SWITCH_S`)."""
RUSH = 8
"""The number of jobs of one owner from which on another owner's jobs are run beside them."""
COALESCE_PAUSE_S = 0.0005
"""The pause of a coalescing executor between two looks at its queue."""
COALESCE_PAUSES = 4
"""After this many pauses in a row without a new job, a coalescing executor runs the batch that it has."""


class QueuedJob(NamedTuple, Generic[JobT, ResultT]):
    """A job that waits for a thread."""

    job: JobT
    future: "asyncio.Future[ResultT]"
    submitted_s: float
    place: Place
    span: Any = None
    """The span of its request, if that is recorded."""


class Retry(Unresolved):
    """Returned in the place of a result: the job becomes the first of its thread's next batch."""


RETRY = Retry()


@dataclass(frozen=True, slots=True)
class HandOver(Unresolved):
    """Returned in the place of a result: the job is queued in the executor's overflow."""

    place: Place


class BatchTracer(Protocol):
    """The spans of requests and of the batches that carry them."""

    def current(self) -> Any: ...
    def batch(self, lane: str, spans: Sequence[Any], size: int, /) -> contextlib.AbstractContextManager[None]: ...


_UNTRACED = contextlib.nullcontext()

BatchHandler = Callable[[Sequence[JobT]], Sequence[ResultT | Exception | Retry | HandOver]]
"""Runs a batch and returns one result, exception, `RETRY` or `HandOver` for each job, in the same order. One that takes
too long has results for the first jobs alone: the others keep their places in the queue."""


class BatchExecutor(Generic[JobT, ResultT]):
    """A thread pool that runs jobs in batches.

    Args:
        threads: batches that run at once.
        batch: the largest number of jobs in one batch.
        lanes: batches that run at once and do not wait for the database; by default all of them. More threads than
            processors only take the interpreter from each other, but a thread that waits for the database takes
            nothing: another one runs in its place, up to `threads`.
        waiting: the queue; by default batches have jobs of all owners.
        overflow: runs the jobs that are handed over; by default this executor.
        wait_max_s: the longest wait of a job for its thread.
        coalesce: let a thread wait a moment for as many jobs as recently came together. For an executor with one thread
            whose batches have a high fixed cost: clients that are answered together send their next requests together,
            and without this they would alternate between a small batch and a large one. A client that comes alone is
            never delayed.
        pause: sleeps for the given number of seconds.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        handle: BatchHandler[JobT, ResultT],
        *,
        threads: int,
        batch: int,
        lanes: int | None = None,
        waiting: JobQueue[QueuedJob[JobT, ResultT]] | None = None,
        overflow: "BatchExecutor[JobT, ResultT] | None" = None,
        wait_max_s: float = WAIT_MAX_S,
        coalesce: bool = False,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.threads = threads
        self.observe: Callable[[int, float], None] = _ignore
        """Called with the size of each batch and the seconds for which its first job has waited."""
        self.tracer: BatchTracer | None = None
        """Makes spans of the batches whose requests are recorded."""
        self._handle = handle
        self._batch = batch
        self._lanes = lanes or threads
        self._loop: asyncio.AbstractEventLoop
        self._has_timer = False
        """The executor looks again soon whether a running batch waits for the database."""
        self._overflow = overflow or self
        self._wait_max_s = wait_max_s
        self._coalesce = coalesce
        self._pause = pause
        self._clock = clock
        self._expected = 1
        """How many jobs are expected to come together, from the batches before."""
        self._lock = threading.Lock()
        self._waiting: JobQueue[QueuedJob[JobT, ResultT]] = MixedQueue() if waiting is None else waiting
        self._load = Load(threads, batch, clock)
        self._idle = 0
        """Threads that wait to be woken."""
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Wakes one idle thread for each item."""
        self._series: tuple[Hashable, int] = None, 0
        """The owner of all jobs of the last batches, and the number of these jobs."""
        self._is_closing = False
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_jobs(self) -> int:
        """Return the number of jobs that wait for a thread."""
        return len(self._waiting)

    @property
    def busy_threads(self) -> int:
        """Return the number of threads that run a batch."""
        return self._load.running

    def submit(self, job: JobT, place: Place = Place()) -> "asyncio.Future[ResultT]":  # noqa: B008 - immutable
        """Queue a job and return the future of its result.

        Raises:
            Unavailable: the queue is full, for all or for this owner; or the job would wait for too long; or the
                executor is closing. The future raises it too, for a job that waited too long.
        """
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._is_closing:
                raise Unavailable
            if len(self._waiting) or not self._idle:
                self._refuse_hopeless(place.owner)
            span = self.tracer.current() if self.tracer else None
            self._put(QueuedJob(job, future, self._clock(), place, span))
            is_woken = self._reserve_thread()
        if is_woken:  # without the lock, which the thread takes first
            self._wake.put(None)
        return future

    def _refuse_hopeless(self, owner: Hashable) -> None:
        """Refuse a job that finds no room in the queue, or that would wait for too long."""
        wait_s = self._load.wait_s(self._waiting.ahead_of(owner))
        if self._is_full(owner) or wait_s > self._wait_max_s * HOPELESS_PART:
            raise busy(wait_s)

    def _is_full(self, owner: Hashable) -> bool:
        """Return True if there is no room for another job of the owner. There is for an equal part of the queue, one
        part more than there are owners, also when others have filled it."""
        if owner is None:
            return len(self._waiting) >= QUEUE_MAX
        own = self._waiting.count(owner)
        is_above_part = own >= QUEUE_MAX // (self._waiting.owners + 1)
        return is_above_part and (len(self._waiting) >= QUEUE_MAX or own >= QUEUE_MAX * OWNER_PART)

    def _put(self, job: QueuedJob[JobT, ResultT]) -> None:
        self._loop = job.future.get_loop()
        self._waiting.put(job)

    def _wake_one(self) -> None:
        """Wake a thread if one is idle, a job is ready and a lane is free."""
        if self._reserve_thread():
            self._wake.put(None)

    def _reserve_thread(self) -> bool:
        """Return whether an idle thread is to be woken, which counts as awake from now on."""
        if not self._idle or not self._waiting.is_ready:
            return False
        if self._has_lanes_for(len(self._threads) - self._idle + 1):
            self._idle -= 1
            return True
        if not self._has_timer:
            self._has_timer = True
            with contextlib.suppress(RuntimeError):  # the event loop has closed, and nothing waits for an answer
                self._loop.call_soon_threadsafe(self._loop.call_later, SLOW_S, self._look_again)
        return False

    def _has_lanes_for(self, awake: int) -> bool:
        """Return whether so many threads may be awake. Those that wait for the database need no lane."""
        return awake <= self._lanes or awake - self._load.slow(SLOW_S) <= self._lanes

    def _look_again(self) -> None:
        with self._lock:
            self._has_timer = False
            self._wake_one()

    def close(self) -> None:
        """Run the jobs that are waiting, then end the threads."""
        with self._lock:
            self._is_closing = True
            self._wake_all()
        for thread in self._threads:
            thread.join()

    def _wake_all(self) -> None:
        for _ in range(self._idle):
            self._wake.put(None)
        self._idle = 0

    # In a thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        retried: list[QueuedJob[JobT, ResultT]] = []
        put_back: list[QueuedJob[JobT, ResultT]] = []
        is_idle = False
        while taken := self._next_batch(retried, is_idle=is_idle, is_full=bool(put_back)):
            on_time = self._refuse_late(taken)
            results = self._run_batch(on_time) if on_time else []
            begun, put_back = on_time[: len(results)], on_time[len(results) :]
            retried = [each for each, result in zip(begun, results, strict=True) if result is RETRY]
            ended = [each for each, result in zip(begun, results, strict=True) if result is not RETRY]
            is_idle = self._end_batch(taken[0], ended, put_back, is_retried=bool(retried))
            self._settle(begun, results)

    def _next_batch(
        self, retried: list[QueuedJob[JobT, ResultT]], *, is_idle: bool, is_full: bool
    ) -> list[QueuedJob[JobT, ResultT]]:
        """Return the next batch, once a job is ready: retried jobs first, then this thread's share of the queue. Return
        an empty one when the executor is closing and no job is left.

        Args:
            is_idle: the thread counts as idle already, and goes on when it is woken.
            is_full: more jobs wait than a batch has time for, so that none is waited for.
        """
        while True:
            if is_idle:
                self._wake.get()
            if self._coalesce and not is_full:
                self._wait_for_more(len(retried))
            with self._lock:
                if retried or self._is_ready():
                    taken = self._waiting.take(self._batch, first=retried, threads=len(self._threads))
                    self._series = _continued(self._series, taken)
                    self._wake_one()
                    return taken
                if self._is_closing and not len(self._waiting):
                    self._wake_all()
                    return []
                self._rest()
            is_idle = True

    def _is_ready(self) -> bool:
        """Return whether this thread, one of those that are awake, may take a batch."""
        return self._waiting.is_ready and (self._is_closing or self._has_lanes_for(len(self._threads) - self._idle))

    def _rest(self) -> None:
        """Count this thread as idle."""
        self._idle += 1
        self._wake_one()

    def _end_batch(
        self,
        first: QueuedJob[JobT, ResultT],
        ended: list[QueuedJob[JobT, ResultT]],
        put_back: list[QueuedJob[JobT, ResultT]],
        *,
        is_retried: bool,
    ) -> bool:
        """Count jobs of a batch as done, and put others back. Return whether the thread counts as idle from now on.

        It is done before the futures are resolved, since the event loop then takes the interpreter from this thread.
        """
        with self._lock:
            self._waiting.done(ended)
            if put_back:
                self._waiting.put_back(put_back)
            if is_retried:
                return False
            self._waiting.leave(first)
            if self._is_closing or self._is_ready():
                return False
            self._rest()
            return True

    def _wait_for_more(self, taken: int) -> None:
        """Pause while jobs keep coming, until there are as many as expected."""
        vain, waiting = 0, len(self._waiting)
        if not taken and not waiting:
            return
        while vain < COALESCE_PAUSES and waiting < min(self._expected, self._batch) - taken and not self._is_closing:
            self._pause(COALESCE_PAUSE_S)
            before, waiting = waiting, len(self._waiting)
            vain = 0 if waiting > before else vain + 1

    def _refuse_late(self, taken: list[QueuedJob[JobT, ResultT]]) -> list[QueuedJob[JobT, ResultT]]:
        """Refuse the jobs that waited too long and return the others."""
        oldest = self._clock() - self._wait_max_s
        late = [each for each in taken if each.submitted_s < oldest]
        if not late:
            return taken
        self._refuse(late)
        return [each for each in taken if each.submitted_s >= oldest]

    def _refuse(self, jobs: Sequence[QueuedJob[JobT, ResultT]], error: Exception | None = None) -> None:
        with self._lock:
            self._waiting.done(jobs)
            refusal = error or busy(self._load.wait_s(len(self._waiting)))
        resolve([each.future for each in jobs], [refusal] * len(jobs))

    def _run_batch(self, jobs: list[QueuedJob[JobT, ResultT]]) -> Sequence[Any]:
        """Run a batch and return the result of each job."""
        results: Sequence[Any]
        self.observe(len(jobs), self._clock() - jobs[0].submitted_s)
        self._load.begin()
        try:
            with self._traced(jobs):
                results = self._handle([each.job for each in jobs])
        except Exception as error:  # noqa: BLE001 - every future of the batch gets it, and the thread goes on
            results = [error] * len(jobs)
        self._load.end(len(results) if len(results) < len(jobs) else None)
        if self._coalesce:
            self._update_expected(len(jobs))  # before the answers, or a client that asks again at once counts twice
        return results

    def _traced(self, jobs: Sequence[QueuedJob[JobT, ResultT]]) -> contextlib.AbstractContextManager[None]:
        """Return the span of a batch, in which it is to be run."""
        spans = [each.span for each in jobs if each.span] if self.tracer else None
        return self.tracer.batch(self.name, spans, len(jobs)) if self.tracer and spans else _UNTRACED

    def _settle(self, jobs: Sequence[QueuedJob[JobT, ResultT]], results: Sequence[Any]) -> None:
        """Resolve the futures of a batch, and hand jobs over."""
        resolve([each.future for each in jobs], results, self._lag_meter())
        if HandOver in map(type, results):
            self._hand_over(jobs, results)
        if results and all(isinstance(result, Exception) and is_outage(result) for result in results):
            self._refuse_waiting(results[0])

    def _hand_over(self, jobs: Sequence[QueuedJob[JobT, ResultT]], results: Sequence[Any]) -> None:
        handed_over = [
            each._replace(place=result.place)
            for each, result in zip(jobs, results, strict=True)
            if isinstance(result, HandOver)
        ]
        self._overflow.take_over(handed_over)

    def _lag_meter(self) -> Callable[[], None] | None:
        """Return a function that measures the event loop's lag when it is called there; None while no job waits."""
        if not len(self._waiting):
            self._load.note_lag(0.0)
            return None
        called_s = self._clock()
        return lambda: self._load.note_lag(self._clock() - called_s)

    def _refuse_waiting(self, outage: Exception) -> None:
        """Refuse all jobs that waited behind a batch which found the database away: each batch of them would wait as
        long for the same refusal."""
        waited: list[QueuedJob[JobT, ResultT]] = []
        with self._lock:
            while jobs := self._waiting.take(self._batch):
                self._waiting.leave(jobs[0])
                waited += jobs
        if waited:
            self._refuse(waited, outage)

    def is_rushed_by_another(self, owner: Hashable) -> bool:
        """Return whether all jobs that wait or run are of a rush of one other owner, and the owner has none of them."""
        if self._waiting.owners > 1:  # the usual case under load, for which no lock is taken
            return False
        with self._lock:
            return not self._waiting.count(owner) and self._is_rush_of_another(owner)

    def _is_rush_of_another(self, owner: Hashable) -> bool:
        """Return whether one other owner has many jobs, or had in the last batches, and all that are there since."""
        jobs = self._waiting.of_only_owner
        if jobs >= RUSH:
            return True
        rushing, jobs_before = self._series
        return jobs_before >= RUSH and rushing != owner and jobs == self._waiting.count(rushing)

    def take_over(self, jobs: Sequence[QueuedJob[JobT, ResultT]]) -> None:
        """Queue jobs that another executor hands over; refuse those whose owner has its part of the queue."""
        refused = []
        with self._lock:
            for job in jobs:
                if self._is_full(job.place.owner):
                    refused.append(job)
                else:
                    self._put(job._replace(submitted_s=self._clock()))
                    self._wake_one()
            refusal = busy(self._load.wait_s(len(self._waiting)))
        resolve([each.future for each in refused], [refusal] * len(refused))

    def _update_expected(self, taken: int) -> None:
        """Expect as many jobs as there are now, in this batch and in the queue; a larger number decays slowly."""
        now = taken + len(self._waiting)
        self._expected = max(now, self._expected - max(1, self._expected // 8))


def busy(wait_s: float, reason: str = "queue") -> Unavailable:
    """Return the refusal of a request that would wait for so long."""
    return Unavailable(retry_after_s=min(RETRY_AFTER_MAX_S, max(1, ceil(wait_s))), reason=reason)


def _continued(series: tuple[Hashable, int], taken: Sequence[QueuedJob[Any, Any]]) -> tuple[Hashable, int]:
    """Return the owner of all jobs of the last batches and their number, with those of the next batch."""
    owner, jobs = series
    first = taken[0].place.owner
    if any(each.place.owner != first for each in taken):
        return None, 0
    return first, len(taken) + (jobs if first == owner else 0)


def _ignore(_size: int, _waited_s: float) -> None:
    """Observe nothing."""
