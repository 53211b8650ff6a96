"""Where the event loop hands work to threads: one hop for a request, and what waits is taken together.

The core is synchronous, so that a client that hangs up can never cancel a transaction half way. Threads take from one
queue whatever waits, up to a bound: an idle service has batches of one. Each caller is answered by itself, all callers
of a batch with one wake-up of the loop.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from booking_core.errors import Unavailable

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")

Waiting = tuple[JobT, "asyncio.Future[ResultT]", float]
"""A job, what its caller awaits, and when it came."""

WAITING_MAX = 2048
"""More than this many waiting, and the next is refused at once with 503: a longer queue only makes all of them late."""
WAIT_MAX_S = 10.0
"""Who waited for longer is refused with 503 and nothing done. While the database is silent each batch takes seconds to
learn that, and who stands far behind would wait for many of them."""
LOOK_S = 0.0005
"""How long a desk that gathers pauses before it looks again who has come."""
LOOKS = 4
"""After so many looks at which nobody had come it goes on with who is there."""


class Again:
    """Instead of a result: the job is the first of the thread's next batch."""


AGAIN = Again()
Handle = Callable[[Sequence[JobT]], Sequence[ResultT | Exception | Again]]
"""Does a batch, and gives a result or an exception for each job, or says that it comes again."""


class Desk(Generic[JobT, ResultT]):
    """Threads that do jobs in batches.

    Args:
        gathers: whether a thread first waits a moment for as many as came together before. For a desk with one thread
            whose batches cost much before their first job: who is answered together asks again together, and would be
            taken in a small batch and a large one by turns. Who comes alone waits for nobody.
        pause: sleeps so many seconds.
        clock: gives seconds that never go back.
    """

    def __init__(
        self,
        name: str,
        handle: Handle[JobT, ResultT],
        *,
        threads: int,
        batch: int,
        gathers: bool = False,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handle = handle
        self._batch = batch
        self._gathers = gathers
        self._pause = pause
        self._clock = clock
        self._together = 1
        self._waiting: queue.SimpleQueue[Waiting[JobT, ResultT] | None] = queue.SimpleQueue()
        self._stopping = False
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: JobT) -> "asyncio.Future[ResultT]":
        """The result of the job, to be awaited.

        Raises:
            Unavailable: too many wait already, or this one did for too long.
        """
        if self._stopping or self._waiting.qsize() >= WAITING_MAX:
            raise Unavailable
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.put((job, future, self._clock()))
        return future

    def close(self) -> None:
        """Finishes what waits, then ends the threads."""
        self._stopping = True
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _take(self, again: list["Waiting[JobT, ResultT]"]) -> list["Waiting[JobT, ResultT]"]:
        """What comes again and what waits, a fair share for each thread; empty when the desk closes."""
        if not again:
            first = self._waiting.get()
            if first is None:
                return []
            again = [first]
        taken = again
        if self._gathers:
            self._gather(len(taken))
        share = -(-self._waiting.qsize() // len(self._threads))
        for _ in range(min(self._batch - len(taken), share)):
            try:
                following = self._waiting.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._waiting.put(None)  # another thread's end, or this one's at its next turn
                break
            taken.append(following)
        return taken

    def _gather(self, taken: int) -> None:
        """Waits while more come, until there are as many as there lately were."""
        vain, waiting = 0, self._waiting.qsize()
        while vain < LOOKS and waiting < min(self._together, self._batch) - taken and not self._stopping:
            self._pause(LOOK_S)
            before, waiting = waiting, self._waiting.qsize()
            vain = 0 if waiting > before else vain + 1

    def _run(self) -> None:
        again: list[Waiting[JobT, ResultT]] = []
        while taken := self._take(again):
            in_time = self._in_time(taken)
            again = self._do(in_time) if in_time else []

    def _in_time(self, taken: list["Waiting[JobT, ResultT]"]) -> list["Waiting[JobT, ResultT]"]:
        """Refuses those who waited for too long, and gives the others."""
        oldest = self._clock() - WAIT_MAX_S
        late = [each for each in taken if each[2] < oldest]
        if not late:
            return taken
        _tell(late, [Unavailable()] * len(late))
        return [each for each in taken if each[2] >= oldest]

    def _count(self, taken: int) -> None:
        """Remembers how many are there at once: those who are about to be answered, and those who came meanwhile. It
        forgets a larger number by and by."""
        now = taken + self._waiting.qsize()
        self._together = max(now, self._together - max(1, self._together // 8))

    def _do(self, taken: list["Waiting[JobT, ResultT]"]) -> list["Waiting[JobT, ResultT]"]:
        """Answers, and gives what comes again."""
        try:
            results = self._handle([job for job, _, _ in taken])
        except Exception as error:  # noqa: BLE001 - every caller of the batch is told, the thread lives on
            results = [error] * len(taken)
        if self._gathers:
            self._count(len(taken))  # before anybody is answered, or who asks again at once is counted twice
        _tell(taken, results)
        return [each for each, result in zip(taken, results, strict=True) if result is AGAIN]


def _tell(waiting: Sequence["Waiting[Any, Any]"], results: Sequence[Any]) -> None:
    """All callers with one wake-up of the loop."""
    futures = [future for _, future, _ in waiting]
    futures[0].get_loop().call_soon_threadsafe(_answer, futures, results)


def _answer(futures: Sequence["asyncio.Future[Any]"], results: Sequence[Any]) -> None:
    for future, result in zip(futures, results, strict=True):
        if result is AGAIN or future.done():  # its caller has gone; what was done is done
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
