"""Thread pools that run the jobs of the event loop in batches.

The core is synchronous, so a client that disconnects can never cancel a transaction half way. Each request takes one
hop to a thread. A thread takes all waiting jobs up to a limit, so an idle service runs batches of one. Each job has a
future of its own; all futures of a batch are resolved with one wake-up of the event loop.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from booking_core.errors import Unavailable
from booking_server.execution.futures import Unresolved, resolve

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

QUEUE_MAX = 2048
"""A job is refused with 503 at once when this many are waiting: a longer queue would only make all of them late."""
WAIT_MAX_S = 10.0
"""A job that waited longer than this is refused with 503 and not run. While the database does not answer, each batch
takes seconds to notice it, and a job at the end of the queue would wait for many batches."""
COALESCE_PAUSE_S = 0.0005
"""The pause of a coalescing executor between two looks at its queue."""
COALESCE_PAUSES = 4
"""After this many pauses in a row without a new job, a coalescing executor runs the batch that it has."""


class QueuedJob(NamedTuple, Generic[JobT, ResultT]):
    """A job that waits for a thread."""

    job: JobT
    future: "asyncio.Future[ResultT]"
    submitted_s: float


class Retry(Unresolved):
    """Returned in the place of a result: the job becomes the first of its thread's next batch."""


RETRY = Retry()
BatchHandler = Callable[[Sequence[JobT]], Sequence[ResultT | Exception | Retry]]
"""Runs a batch and returns one result, exception or `RETRY` for each job, in the same order."""


class BatchExecutor(Generic[JobT, ResultT]):
    """A thread pool that runs jobs in batches.

    Args:
        batch: the largest number of jobs in one batch.
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
        coalesce: bool = False,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handle = handle
        self._batch = batch
        self._coalesce = coalesce
        self._pause = pause
        self._clock = clock
        self._expected = 1
        """How many jobs are expected to come together, from the batches before."""
        self._waiting: queue.SimpleQueue[QueuedJob[JobT, ResultT] | None] = queue.SimpleQueue()
        self._is_closing = False
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: JobT) -> "asyncio.Future[ResultT]":
        """Queue a job and return the future of its result.

        Raises:
            Unavailable: the queue is full or the executor is closing. The future raises it too, for a job that waited
                too long.
        """
        if self._is_closing or self._waiting.qsize() >= QUEUE_MAX:
            raise Unavailable
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.put(QueuedJob(job, future, self._clock()))
        return future

    def close(self) -> None:
        """Run the jobs that are waiting, then end the threads."""
        self._is_closing = True
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    # In a thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        retried: list[QueuedJob[JobT, ResultT]] = []
        while taken := self._take(retried):
            on_time = self._refuse_late(taken)
            retried = self._run_batch(on_time) if on_time else []

    def _take(self, retried: list[QueuedJob[JobT, ResultT]]) -> list[QueuedJob[JobT, ResultT]]:
        """Return the next batch: retried jobs first, then this thread's share of the queue; empty when closing."""
        if not retried:
            first = self._waiting.get()
            if first is None:
                return []
            retried = [first]
        taken = retried
        if self._coalesce:
            self._wait_for_more(len(taken))
        share = -(-self._waiting.qsize() // len(self._threads))
        for _ in range(min(self._batch - len(taken), share)):
            try:
                following = self._waiting.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._waiting.put(None)  # the end of another thread, or of this one at its next turn
                break
            taken.append(following)
        return taken

    def _wait_for_more(self, taken: int) -> None:
        """Pause while jobs keep coming, until there are as many as expected."""
        vain, waiting = 0, self._waiting.qsize()
        while vain < COALESCE_PAUSES and waiting < min(self._expected, self._batch) - taken and not self._is_closing:
            self._pause(COALESCE_PAUSE_S)
            before, waiting = waiting, self._waiting.qsize()
            vain = 0 if waiting > before else vain + 1

    def _refuse_late(self, taken: list[QueuedJob[JobT, ResultT]]) -> list[QueuedJob[JobT, ResultT]]:
        """Refuse the jobs that waited too long and return the others."""
        oldest = self._clock() - WAIT_MAX_S
        late = [each for each in taken if each.submitted_s < oldest]
        if not late:
            return taken
        resolve([each.future for each in late], [Unavailable()] * len(late))
        return [each for each in taken if each.submitted_s >= oldest]

    def _run_batch(self, taken: list[QueuedJob[JobT, ResultT]]) -> list[QueuedJob[JobT, ResultT]]:
        """Run a batch, resolve its futures, and return the jobs to retry."""
        try:
            results = self._handle([each.job for each in taken])
        except Exception as error:  # noqa: BLE001 - every future of the batch gets it, and the thread goes on
            results = [error] * len(taken)
        if self._coalesce:
            self._update_expected(len(taken))  # before the answers, or a client that asks again at once counts twice
        resolve([each.future for each in taken], results)
        return [each for each, result in zip(taken, results, strict=True) if result is RETRY]

    def _update_expected(self, taken: int) -> None:
        """Expect as many jobs as there are now, in this batch and in the queue; a larger number decays slowly."""
        now = taken + self._waiting.qsize()
        self._expected = max(now, self._expected - max(1, self._expected // 8))
