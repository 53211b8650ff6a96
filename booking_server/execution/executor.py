"""Thread pools that run the jobs of the event loop in batches.

The core is synchronous, so a client that disconnects can never cancel a transaction half way. Each request takes one
hop to a thread. A thread takes all waiting jobs up to a limit, so an idle service runs batches of one. Each job has its
own future; all futures of a batch are resolved with one wake-up of the event loop.

The queue in front of the threads is bounded, and fair between owners: the organizations whose requests wait. A job is
refused at once when its owner has its part of the queue, and is not run when it has waited for too long: its client has
gone when the answer comes.
"""

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from booking_core.base.errors import Unavailable, is_outage

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

QUEUE_MAX = 2048
"""A job is refused with 503 at once when this many are waiting: a longer queue would only make all of them late."""
OWNER_PART = 0.5
"""The part of the queue that the jobs of one owner may fill."""
WAIT_MAX_S = 6.0
"""A job that waited longer than this is refused with 503 and not run. With three seconds for locks and the time of its
transaction it would be answered after ten seconds, when its client has gone."""
RETRY_AFTER_MAX_S = 30
RUSH = 8
"""With this many jobs of one owner, another executor runs the jobs of other owners."""
COALESCE_PAUSE_S = 0.0005
"""The pause of a coalescing executor between two looks at its queue."""
COALESCE_PAUSES = 4
"""After this many pauses in a row without a new job, a coalescing executor runs the batch that it has."""

# Queues --------------------------------------------------------------------------------------------------------------

# Each owner's jobs stay in their order, and the owners take turns. A job waits for at most one job, or one batch, of
# each other owner before it, however many jobs they have. The queues are not locked; their executor does that.


class Place(NamedTuple):
    """The place of a job in a queue."""

    owner: Hashable = None
    """The organization, or the client as long as that is unknown."""
    group: Hashable = None
    """The lock that a job waits for. Jobs of a group run together."""


class QueuedJob(NamedTuple):
    """A job that waits for a thread."""

    job: Any
    future: "asyncio.Future[Any]"
    submitted_s: float
    place: Place
    span: Any = None
    """The span of its request, if that is recorded."""


class JobQueue(ABC):
    """The jobs of an executor."""

    def __init__(self) -> None:
        self._length = 0
        """The number of waiting jobs."""
        self._counts: dict[Hashable, int] = {}
        """The number of jobs of each owner, waiting and running."""

    def __len__(self) -> int:
        return self._length

    @property
    def owners(self) -> int:
        """Return the number of owners with jobs, waiting or running."""
        return len(self._counts)

    @property
    def of_only_owner(self) -> int:
        """Return the number of all jobs, waiting and running, where one owner has all of them, and else 0."""
        return next(iter(self._counts.values())) if len(self._counts) == 1 else 0

    def count(self, owner: Hashable) -> int:
        """Return the number of the owner's jobs, waiting and running."""
        return self._counts.get(owner, 0)

    def put(self, job: QueuedJob) -> None:
        """Queue a job."""
        self._length += 1
        self._counts[job.place.owner] = self.count(job.place.owner) + 1
        self._append(job)

    def take(self, batch: int, threads: int = 1) -> list[QueuedJob]:
        """Return the next batch, empty when none is ready.

        Args:
            batch: the largest number of jobs.
            threads: that share the queue.
        """
        jobs = self._take(batch, threads) if self.is_ready else []
        self._length -= len(jobs)
        return jobs

    def end(self, jobs: Sequence[QueuedJob], again: Sequence[QueuedJob] = ()) -> None:
        """Note that a batch has ended.

        Args:
            again: jobs of the batch that return to their places.
        """
        for job in jobs:
            _decrease(self._counts, job.place.owner)
        for job in reversed(again):
            self._length += 1
            self._counts[job.place.owner] = self.count(job.place.owner) + 1
            self._append_left(job)

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether `take` would return a batch."""

    @abstractmethod
    def _append(self, job: QueuedJob) -> None: ...

    @abstractmethod
    def _append_left(self, job: QueuedJob) -> None: ...

    @abstractmethod
    def _take(self, batch: int, threads: int) -> list[QueuedJob]: ...


def _decrease(counts: dict[Hashable, int], key: Hashable) -> None:
    remaining = counts[key] - 1
    if remaining:
        counts[key] = remaining
    else:
        del counts[key]


class MixedQueue(JobQueue):
    """A queue whose batches have jobs of many owners, one of each in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: OrderedDict[Hashable, deque[QueuedJob]] = OrderedDict()
        """The waiting jobs by owner, in the order of the owners' turns."""

    @property
    def is_ready(self) -> bool:
        return bool(self._jobs)

    def _append(self, job: QueuedJob) -> None:
        jobs = self._jobs.get(job.place.owner)
        if jobs is None:
            self._jobs[job.place.owner] = deque((job,))
        else:
            jobs.append(job)

    def _append_left(self, job: QueuedJob) -> None:
        """Queue a job before all others: its owner has the next turn."""
        self._jobs.setdefault(job.place.owner, deque()).appendleft(job)
        self._jobs.move_to_end(job.place.owner, last=False)

    def _take(self, batch: int, threads: int) -> list[QueuedJob]:
        """Return a thread's share of the queue: no thread is idle while another one has all jobs."""
        share = []
        for _ in range(min(batch, -(-self._length // threads))):
            owner, jobs = next(iter(self._jobs.items()))
            share.append(jobs.popleft())
            if jobs:
                self._jobs.move_to_end(owner)
            else:
                del self._jobs[owner]
        return share


class OwnerQueue(JobQueue):
    """A queue whose batches have jobs of one owner each, for work that may take long or wait for locks.

    An owner has at most `threads_per_owner` threads. A batch has jobs of one group, which one thread runs at a time.
    Jobs without a group may be run by several threads.
    """

    def __init__(self, threads_per_owner: int) -> None:
        super().__init__()
        self.threads: Counter[Hashable] = Counter()
        """The number of threads that run jobs of each owner."""
        self._threads_per_owner = threads_per_owner
        self._jobs: dict[Place, deque[QueuedJob]] = {}
        """The waiting jobs."""
        self._ready: dict[Hashable, dict[Place, None]] = {}
        """The places of each owner with waiting jobs whose group does not run."""
        self._turns: dict[Hashable, None] = {}
        """The owners with a ready place and a thread left, in the order of their turns."""
        self._running: set[Place] = set()
        """The places whose group runs."""

    def __contains__(self, place: Place) -> bool:
        """Return whether jobs of the group wait or run."""
        return place in self._running or place in self._jobs

    @property
    def is_ready(self) -> bool:
        return bool(self._turns)

    def _append(self, job: QueuedJob) -> None:
        self._jobs.setdefault(job.place, deque()).append(job)
        self._offer(job.place)

    def _append_left(self, job: QueuedJob) -> None:
        self._jobs.setdefault(job.place, deque()).appendleft(job)

    def _take(self, batch: int, threads: int) -> list[QueuedJob]:
        owner = next(iter(self._turns))
        place = next(iter(self._ready[owner]))
        self._withdraw(place)
        self.threads[owner] += 1
        jobs, sharing = self._jobs[place], 1
        if place.group is None:
            sharing = min(threads, self._threads_per_owner)
        else:
            self._running.add(place)
        share = [jobs.popleft() for _ in range(min(batch, -(-len(jobs) // sharing)))]
        if not jobs:
            del self._jobs[place]
        self._offer(place)
        return share

    def end(self, jobs: Sequence[QueuedJob], again: Sequence[QueuedJob] = ()) -> None:
        super().end(jobs, again)
        place = jobs[0].place
        _decrease(self.threads, place.owner)
        self._running.discard(place)
        self._offer(place)

    def _offer(self, place: Place) -> None:
        """Let threads take jobs of a place, if it has some that may run."""
        owner = place.owner
        if place in self._jobs and place not in self._running:
            self._ready.setdefault(owner, {})[place] = None
        if owner in self._ready and self.threads[owner] < self._threads_per_owner:
            self._turns.setdefault(owner)

    def _withdraw(self, place: Place) -> None:
        """Take a place from those that threads may take, and its owner's turn."""
        del self._turns[place.owner]
        del self._ready[place.owner][place]
        if not self._ready[place.owner]:
            del self._ready[place.owner]


# Executors -----------------------------------------------------------------------------------------------------------


class Unresolved:
    """Returned instead of a result: the job's future is resolved later."""


RETRY = Unresolved()
"""Returned instead of a result: the job returns to its place, and its owner has the next turn."""


@dataclass(frozen=True, slots=True)
class HandOver(Unresolved):
    """Returned instead of a result: the job is queued in the executor's overflow."""

    place: Place


class BatchTracer(Protocol):
    """The spans of requests and of the batches that carry them."""

    def current(self) -> Any: ...
    def batch(self, lane: str, spans: Sequence[Any], size: int, /) -> contextlib.AbstractContextManager[None]: ...


_UNTRACED = contextlib.nullcontext()

BatchHandler = Callable[[Sequence[JobT]], Sequence[ResultT | Exception | Unresolved]]
"""Runs a batch and returns one result, exception, `RETRY` or `HandOver` for each job, in the same order."""


class BatchExecutor(Generic[JobT, ResultT]):
    """A thread pool that runs jobs in batches.

    Args:
        threads: batches that run at once.
        batch: the largest number of jobs in one batch.
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
        waiting: JobQueue | None = None,
        overflow: "BatchExecutor[JobT, ResultT] | None" = None,
        wait_max_s: float = WAIT_MAX_S,
        coalesce: bool = False,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.threads = threads
        self.busy_threads = 0
        """The number of threads that run a batch."""
        self.observe: Callable[[int, float], None] = lambda size, waited_s: None
        """Called with the size of each batch and the wait of its first job, in seconds."""
        self.tracer: BatchTracer | None = None
        """Makes spans of the batches whose requests are recorded."""
        self._handle = handle
        self._batch = batch
        self._overflow = overflow or self
        self._wait_max_s = wait_max_s
        self._coalesce = coalesce
        self._pause = pause
        self._clock = clock
        self._expected = 1
        """How many jobs are expected to come together, from the batches before."""
        self._waited_s = 0.0
        """The wait of the first job of the latest batch."""
        self._waiting: JobQueue = MixedQueue() if waiting is None else waiting
        self._changed = threading.Condition(threading.Lock())
        """Locks the queue, and wakes threads when it has changed."""
        self._is_closing = False
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_jobs(self) -> int:
        """Return the number of jobs that wait for a thread."""
        return len(self._waiting)

    def submit(self, job: JobT, place: Place = Place()) -> "asyncio.Future[ResultT]":  # noqa: B008 - immutable
        """Queue a job and return the future of its result.

        Raises:
            Unavailable: the queue is full, for all or for this owner; or the executor is closing. The future raises it
                too, for a job that waited too long.
        """
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        span = self.tracer.current() if self.tracer else None
        with self._changed:
            if self._is_closing:
                raise Unavailable
            if self._is_full(place.owner):
                raise busy(self._waited_s)
            self._put(QueuedJob(job, future, self._clock(), place, span))
        return future

    def take_over(self, jobs: Sequence[QueuedJob]) -> None:
        """Queue jobs that another executor hands over; refuse those whose owner has its part of the queue."""
        refused = []
        with self._changed:
            for job in jobs:
                if self._is_full(job.place.owner):
                    refused.append(job)
                else:
                    self._put(job._replace(submitted_s=self._clock()))
        self._refuse(refused, busy(self._waited_s))

    def _put(self, job: QueuedJob) -> None:
        self._waiting.put(job)
        if self._waiting.is_ready:
            self._changed.notify()

    def _is_full(self, owner: Hashable) -> bool:
        """Return True if there is no room for another job of the owner. There is for an equal part of the queue, one
        part more than there are owners, also when others have filled it."""
        count = self._waiting.count(owner)
        is_above_part = count >= QUEUE_MAX // (self._waiting.owners + 1)
        return is_above_part and (len(self._waiting) >= QUEUE_MAX or count >= QUEUE_MAX * OWNER_PART)

    def is_rushed_by_another(self, owner: Hashable) -> bool:
        """Return whether all jobs that wait or run are of a rush of one other owner."""
        with self._changed:
            return self._waiting.of_only_owner >= RUSH and not self._waiting.count(owner)

    def close(self) -> None:
        """Run the jobs that are waiting, then end the threads."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # In a thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while jobs := self._next_batch():
            results = self._results(jobs)
            again = [job for job, result in zip(jobs, results, strict=True) if result is RETRY]
            with self._changed:
                self._waiting.end(jobs, again)
                self.busy_threads -= 1
            self._settle(jobs, results)

    def _next_batch(self) -> list[QueuedJob]:
        """Return the next batch, once a job is ready; an empty one when the executor is closing and no job is left."""
        while True:
            if self._coalesce:
                self._wait_for_more()
            with self._changed:
                if self._waiting.is_ready:
                    self.busy_threads += 1
                    return self._waiting.take(self._batch, self.threads)
                if self._is_closing and not len(self._waiting):
                    self._changed.notify_all()
                    return []
                self._changed.wait()

    def _wait_for_more(self) -> None:
        """Pause while jobs keep coming, until there are as many as expected."""
        vain, waiting = 0, len(self._waiting)
        while 0 < waiting < min(self._expected, self._batch) and vain < COALESCE_PAUSES and not self._is_closing:
            self._pause(COALESCE_PAUSE_S)
            before, waiting = waiting, len(self._waiting)
            vain = 0 if waiting > before else vain + 1

    def _results(self, jobs: Sequence[QueuedJob]) -> list[Any]:
        """Run the jobs of a batch, except those that waited too long, and return the result or refusal of each."""
        now_s = self._clock()
        self._waited_s, earliest_s = now_s - jobs[0].submitted_s, now_s - self._wait_max_s
        results = [None if job.submitted_s >= earliest_s else busy(self._wait_max_s) for job in jobs]
        return fill_open(results, lambda places: self._run_batch([jobs[place] for place in places]))

    def _run_batch(self, jobs: Sequence[QueuedJob]) -> Sequence[Any]:
        """Run a batch, in a span if one of its requests is recorded, and return the result of each job."""
        self.observe(len(jobs), self._waited_s)
        spans = [job.span for job in jobs if job.span] if self.tracer else None
        results: Sequence[Any]
        try:
            with self.tracer.batch(self.name, spans, len(jobs)) if self.tracer and spans else _UNTRACED:
                results = self._handle([job.job for job in jobs])
        except Exception as error:  # noqa: BLE001 - every future of the batch gets it, and the thread goes on
            results = [error] * len(jobs)
        if self._coalesce:
            self._update_expected(len(jobs))  # before the answers, or a client that asks again at once counts twice
        return results

    def _update_expected(self, size: int) -> None:
        """Expect as many jobs as there are now, in this batch and in the queue; a larger number decays slowly."""
        now = size + len(self._waiting)
        self._expected = max(now, self._expected - max(1, self._expected // 8))

    def _settle(self, jobs: Sequence[QueuedJob], results: Sequence[Any]) -> None:
        """Resolve the futures of a batch, and hand jobs over."""
        if all(isinstance(result, Exception) and is_outage(result) for result in results):
            # Before the answers: a client that asks again at once is not refused without a try.
            self._refuse(self._drained(), results[0])
        resolve([job.future for job in jobs], results)
        handed_over = [
            job._replace(place=result.place)
            for job, result in zip(jobs, results, strict=True)
            if isinstance(result, HandOver)
        ]
        if handed_over:
            self._overflow.take_over(handed_over)

    def _drained(self) -> list[QueuedJob]:
        """Take all waiting jobs after a batch that found the database unavailable: each further batch would wait as
        long for the same refusal."""
        drained: list[QueuedJob] = []
        with self._changed:
            while jobs := self._waiting.take(self._batch):
                self._waiting.end(jobs)
                drained += jobs
        return drained

    def _refuse(self, jobs: Sequence[QueuedJob], refusal: Exception) -> None:
        resolve([job.future for job in jobs], [refusal] * len(jobs))


def fill_open(results: Sequence[ResultT | None], run: Callable[[Sequence[int]], Sequence[ResultT]]) -> list[ResultT]:
    """Return the results, with those that are None filled in.

    Args:
        run: returns the results of these places, in their order. It is not called without a place.
    """
    places = [place for place, result in enumerate(results) if result is None]
    filled: list[Any] = list(results)
    for place, result in zip(places, run(places) if places else (), strict=True):
        filled[place] = result
    return filled


def resolve(futures: Sequence["asyncio.Future[Any]"], results: Sequence[Any]) -> None:
    """Resolve futures with one wake-up of their event loop, each with its result or its exception.

    A result of type `Unresolved` leaves its future as it is. Nothing is done once the event loop has closed.
    """
    if futures:
        with contextlib.suppress(RuntimeError):  # the loop has closed, and the thread has other jobs to end
            futures[0].get_loop().call_soon_threadsafe(_set_results, futures, results)


def _set_results(futures: Sequence["asyncio.Future[Any]"], results: Sequence[Any]) -> None:
    for future, result in zip(futures, results, strict=True):
        if isinstance(result, Unresolved) or future.done():  # done: the client has disconnected, and the job was run
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def busy(wait_s: float, reason: str = "queue") -> Unavailable:
    """Return the refusal of a request that would wait for so long."""
    return Unavailable(retry_after_s=min(RETRY_AFTER_MAX_S, max(1, ceil(wait_s))), reason=reason)
