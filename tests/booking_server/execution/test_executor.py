"""The batch executor runs waiting jobs together and resolves each future separately."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from booking_core.base.errors import NotFound, Unavailable
from booking_server.execution import executor
from booking_server.execution.executor import BatchExecutor, OwnerQueue, Place

Executor = BatchExecutor[int, int]
Waiting = Sequence[tuple[str | None, Sequence[int]]]
"""Jobs by owner, in the order of their submission."""


class Handler:
    """A batch handler that doubles numbers, records its batches, and can be blocked.

    Args:
        results: returns the results of a batch; the default refuses negative numbers.
    """

    def __init__(self, results: Callable[[Sequence[int]], list[Any]] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.free = threading.Event()
        self.free.set()
        self._results = results or (lambda jobs: [NotFound() if job < 0 else 2 * job for job in jobs])

    def __call__(self, jobs: Sequence[int]) -> list[Any]:
        self.batches.append(list(jobs))
        self.begun.release()
        assert self.free.wait(timeout=30)
        return self._results(jobs)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@contextmanager
def open_executor(handle: Callable[[Sequence[int]], Any], *, threads: int = 1, batch: int = 32) -> Iterator[Executor]:
    opened: Executor = BatchExecutor("test", handle, threads=threads, batch=batch)
    try:
        yield opened
    finally:
        opened.close()


def submitted(opened: Executor, waiting: Waiting) -> list[Any]:
    """Return the futures of jobs."""
    return [opened.submit(job, Place(owner)) for owner, jobs in waiting for job in jobs]


async def blocked(opened: Executor, handler: Handler, *waiting: tuple[str | None, Sequence[int]]) -> list[Any]:
    """Return the futures of a first job, which blocks the only thread, and of the jobs that wait for it."""
    handler.free.clear()
    first = opened.submit(0, Place(waiting[0][0] if waiting else None))
    await asyncio.to_thread(handler.begun.acquire, timeout=30)
    return [first, *submitted(opened, waiting)]


def outcomes_of(handler: Handler, *waiting: tuple[str | None, Sequence[int]], batch: int = 32) -> list[Any]:
    """Return the outcomes of jobs that waited for a first one."""

    async def scenario() -> list[Any]:
        with open_executor(handler, batch=batch) as opened:
            futures = await blocked(opened, handler, *waiting)
            handler.free.set()
            return await asyncio.gather(*futures, return_exceptions=True)

    return asyncio.run(scenario())


# Batches -------------------------------------------------------------------------------------------------------------


def test_an_idle_executor_runs_batches_of_one(handler: Handler) -> None:
    async def scenario() -> list[int]:
        with open_executor(handler) as opened:
            return [await opened.submit(job) for job in (1, 2, 3)]

    assert asyncio.run(scenario()) == [2, 4, 6]
    assert handler.batches == [[1], [2], [3]]


def test_waiting_jobs_run_together_in_order_up_to_the_batch_size(handler: Handler) -> None:
    assert outcomes_of(handler, (None, range(1, 71))) == [2 * job for job in range(71)]
    assert handler.batches == [[0], list(range(1, 33)), list(range(33, 65)), list(range(65, 71))]


def test_a_thread_takes_only_its_share_of_the_queue(handler: Handler) -> None:
    """Each of two threads takes half of the queue: neither is idle while the other has all jobs."""

    async def scenario() -> list[int]:
        with open_executor(handler, threads=2) as opened:
            handler.free.clear()
            busy = []
            for _ in range(2):
                busy.append(opened.submit(0))
                await asyncio.to_thread(handler.begun.acquire, timeout=30)
            waiting = [opened.submit(job) for job in range(1, 9)]
            handler.free.set()
            return await asyncio.gather(*busy, *waiting)

    assert asyncio.run(scenario()) == [0, 0, *(2 * job for job in range(1, 9))]
    assert max(map(len, handler.batches)) <= 5
    assert sorted(job for batch in handler.batches for job in batch) == [0, 0, *range(1, 9)]


def test_an_exception_goes_only_to_the_future_of_its_job(handler: Handler) -> None:
    _, *outcomes = outcomes_of(handler, (None, [1, -1, 2, -2, 3]))
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [2, 4, 6]
    assert [type(outcome) for outcome in outcomes] == [int, NotFound, int, NotFound, int]


def test_a_failed_batch_fails_all_its_futures_and_the_executor_goes_on() -> None:
    handler = Handler(lambda jobs: [60 // job for job in jobs])
    failed, *results = outcomes_of(handler, (None, [1, 2]))
    assert isinstance(failed, ZeroDivisionError)
    assert results == [60, 30]


def test_a_cancelled_future_does_not_affect_the_other_jobs_of_its_batch(handler: Handler) -> None:
    async def scenario() -> list[Any]:
        with open_executor(handler) as opened:
            futures = await blocked(opened, handler, (None, [1, 2, 3]))
            futures[2].cancel()
            handler.free.set()
            return await asyncio.gather(*futures, return_exceptions=True)

    outcomes = asyncio.run(scenario())
    assert [outcomes[1], outcomes[3]] == [2, 6]
    assert isinstance(outcomes[2], asyncio.CancelledError)
    assert handler.batches[1] == [1, 2, 3]  # an accepted job is run also when its client has gone


# Coalescing ----------------------------------------------------------------------------------------------------------


class Pauses:
    """Submits jobs while the executor coalesces, and counts its pauses."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: Callable[[], Executor]) -> None:
        self.coming: list[list[int]] = []
        self.futures: list[Any] = []
        self.count = 0
        self._loop = loop
        self._opened = opened

    def __call__(self, seconds: float) -> None:
        self.count += 1
        jobs = self.coming.pop(0) if self.coming else []

        async def submit() -> None:
            self.futures += [self._opened().submit(job) for job in jobs]

        asyncio.run_coroutine_threadsafe(submit(), self._loop).result(timeout=30)


def coalescing(handler: Handler, scenario: Callable[[Executor, Pauses], Awaitable[None]]) -> None:
    """Run a scenario with a coalescing executor."""

    async def run() -> None:
        pauses = Pauses(asyncio.get_running_loop(), lambda: opened)
        opened: Executor = BatchExecutor("test", handler, threads=1, batch=4, coalesce=True, pause=pauses)
        try:
            await scenario(opened, pauses)
        finally:
            await asyncio.to_thread(opened.close)

    asyncio.run(run())


def test_coalescing_waits_for_as_many_jobs_as_came_together_before(handler: Handler) -> None:
    async def scenario(opened: Executor, pauses: Pauses) -> None:
        futures = await blocked(opened, handler, (None, [1, 2]))
        assert pauses.count == 0  # no other job was expected
        pauses.coming = [[], [3], [4]]
        handler.free.set()
        await asyncio.gather(*futures, *pauses.futures)
        assert pauses.count == 2  # three were there at once, so a fourth is not awaited
        assert handler.batches == [[0], [1, 2, 3]]

    coalescing(handler, scenario)


def test_coalescing_goes_on_when_no_more_jobs_come(handler: Handler) -> None:
    async def scenario(opened: Executor, pauses: Pauses) -> None:
        futures = await blocked(opened, handler, (None, [1, 2]))
        handler.free.set()
        await asyncio.gather(*futures)
        for job in range(3, 10):
            await opened.submit(job)
        assert handler.batches == [[0], [1, 2], *([job] for job in range(3, 10))]
        assert pauses.count == 2 * executor.COALESCE_PAUSES  # for a third job, then for a second, then no more

    coalescing(handler, scenario)


def test_a_single_client_that_submits_again_at_once_is_not_counted_twice(handler: Handler) -> None:
    async def scenario(opened: Executor, pauses: Pauses) -> None:
        loop, has_submitted_again = asyncio.get_running_loop(), threading.Event()
        answer = loop.call_soon_threadsafe

        def answer_and_block(*args: Any) -> None:
            loop.call_soon_threadsafe = answer  # type: ignore[method-assign]
            answer(*args)
            assert has_submitted_again.wait(timeout=30)

        loop.call_soon_threadsafe = answer_and_block  # type: ignore[assignment]
        await opened.submit(1)
        again = opened.submit(2)
        has_submitted_again.set()
        await again
        assert (handler.batches, pauses.count) == ([[1], [2]], 0)

    coalescing(handler, scenario)


def test_coalescing_takes_no_more_than_a_batch(handler: Handler) -> None:
    async def scenario(opened: Executor, pauses: Pauses) -> None:
        futures = await blocked(opened, handler, (None, range(1, 10)))
        handler.free.set()
        await asyncio.gather(*futures)
        assert pauses.count <= executor.COALESCE_PAUSES  # at most for the last one, which was alone
        assert handler.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]

    coalescing(handler, scenario)


# Jobs that are not resolved with their batch -------------------------------------------------------------------------


def test_retried_jobs_are_run_before_close_returns() -> None:
    tries: list[int] = []

    def fourth(jobs: Sequence[int]) -> list[Any]:
        tries.extend(jobs)
        return [executor.RETRY if len(tries) < 4 else 2 * job for job in jobs]

    async def scenario() -> int:
        with open_executor(fourth) as opened:
            future = opened.submit(1)
            await asyncio.to_thread(opened.close)
            return await future

    assert asyncio.run(scenario()) == 2
    assert tries == [1] * 4


def test_the_other_executor_runs_handed_over_jobs_even_while_closing() -> None:
    first = Handler(lambda jobs: [executor.HandOver(Place("a", "odd")) if job % 2 else 2 * job for job in jobs])
    second = Handler(lambda jobs: [3 * job for job in jobs])

    async def scenario() -> list[int]:
        overflow: Executor = BatchExecutor("second", second, threads=2, batch=9, waiting=OwnerQueue(1))
        opened: Executor = BatchExecutor("first", first, threads=1, batch=9, overflow=overflow)
        futures = [opened.submit(job) for job in range(1, 5)]
        await asyncio.to_thread(opened.close)
        await asyncio.to_thread(overflow.close)
        return await asyncio.gather(*futures)

    assert asyncio.run(scenario()) == [3, 4, 9, 8]
    assert sorted(job for batch in second.batches for job in batch) == [1, 3]


@pytest.mark.parametrize("threads", [1, 3])
def test_close_runs_waiting_jobs_and_refuses_new_ones(handler: Handler, threads: int) -> None:
    async def scenario() -> list[int]:
        opened: Executor = BatchExecutor("test", handler, threads=threads, batch=4)
        futures = await blocked(opened, handler, (None, range(1, 30)))
        closing = asyncio.create_task(asyncio.to_thread(opened.close))
        handler.free.set()
        answers = await asyncio.gather(*futures)
        await closing
        with pytest.raises(Unavailable):
            opened.submit(99)
        return answers

    assert asyncio.run(scenario()) == [2 * job for job in range(30)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]


# Fairness and load ---------------------------------------------------------------------------------------------------


def test_a_rush_of_one_owner_lets_another_one_through(handler: Handler) -> None:
    outcomes_of(handler, (None, []), ("a", range(1, 1001)), ("b", [7777]), batch=4)
    assert handler.batches[1] == [1, 7777, 2, 3]


def test_a_rush_is_many_jobs_of_one_other_owner(handler: Handler) -> None:
    async def scenario() -> None:
        with open_executor(handler) as opened:
            assert not opened.is_rushed_by_another("b")
            futures = await blocked(opened, handler, ("a", range(1, executor.RUSH - 1)))
            assert not opened.is_rushed_by_another("b")  # they are few, and make a batch with it
            futures.append(opened.submit(9, Place("a")))
            assert opened.is_rushed_by_another("b")
            assert not opened.is_rushed_by_another("a")
            futures.append(opened.submit(2, Place("b")))
            assert not opened.is_rushed_by_another("c")  # jobs of many owners are run together
            handler.free.set()
            await asyncio.gather(*futures)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("waiting", "accepted"),
    [
        pytest.param({"a": 5}, {"b": 4}, id="half"),
        pytest.param({"a": 5, "b": 5}, {"c": 2}, id="an-equal-part-of-a-full-queue"),
        pytest.param({"a": 5, "b": 5, "c": 2}, {"d": 1}, id="a-smaller-part-for-more-owners"),
    ],
)
def test_one_owner_fills_at_most_its_part_of_the_queue(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, waiting: dict[str, int], accepted: dict[str, int]
) -> None:
    """Of a queue for ten jobs an owner has half, and an equal part although others have filled it."""
    monkeypatch.setattr(executor, "QUEUE_MAX", 10)

    async def scenario() -> None:
        with open_executor(handler) as opened:
            futures = await blocked(opened, handler)
            futures += submitted(opened, [(owner, range(count)) for owner, count in waiting.items()])
            for owner in waiting:
                with pytest.raises(Unavailable) as raised:
                    opened.submit(9, Place(owner))
                assert (raised.value.reason, raised.value.retry_after_s) == ("queue", 1)
            futures += submitted(opened, [(owner, range(count)) for owner, count in accepted.items()])
            handler.free.set()
            await asyncio.gather(*futures)
            assert await opened.submit(9, Place("a")) == 18

    asyncio.run(scenario())


def test_a_job_that_waited_too_long_is_refused_and_not_run(handler: Handler) -> None:
    at = 0.0

    async def scenario() -> list[Any]:
        nonlocal at
        opened: Executor = BatchExecutor("test", handler, threads=1, batch=3, clock=lambda: at)
        futures = await blocked(opened, handler, (None, [1, 2]))
        at = executor.WAIT_MAX_S + 0.1
        futures.append(opened.submit(3))
        handler.free.set()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await asyncio.to_thread(opened.close)
        return outcomes

    outcomes = asyncio.run(scenario())
    assert [type(outcome) for outcome in outcomes] == [int, Unavailable, Unavailable, int]
    assert outcomes[1].retry_after_s == executor.WAIT_MAX_S
    assert handler.batches == [[0], [3]]


def test_jobs_that_waited_behind_an_outage_are_refused_with_it() -> None:
    handler = Handler(lambda jobs: [job or Unavailable(for_all=True) for job in jobs])

    async def scenario() -> list[Any]:
        with open_executor(handler, batch=2) as opened:
            futures = await blocked(opened, handler, (None, range(1, 8)))
            handler.free.set()
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            return [*outcomes, await opened.submit(9)]

    *refused, result = asyncio.run(scenario())
    assert [type(error) for error in refused] == [Unavailable] * 8
    assert (result, handler.batches) == (9, [[0], [9]])


def test_a_job_that_follows_the_answer_of_an_outage_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Handler(lambda jobs: [job or Unavailable(for_all=True) for job in jobs])
    resolve, has_followed = executor.resolve, threading.Event()

    def resolve_and_wait(futures: Sequence[Any], results: Sequence[Any]) -> None:
        """Let the client submit its next job before the thread continues."""
        resolve(futures, results)
        assert not futures or has_followed.wait(timeout=30)

    async def scenario() -> int:
        with open_executor(handler) as opened:
            with pytest.raises(Unavailable):
                await opened.submit(0)
            following = opened.submit(9)
            has_followed.set()
            return await following

    monkeypatch.setattr(executor, "resolve", resolve_and_wait)
    assert asyncio.run(scenario()) == 9


@pytest.mark.parametrize(
    ("results", "filled", "places"),
    [
        ([None, 7, None], [10, 7, 12], [[0, 2]]),
        ([1, 2], [1, 2], []),
        ([], [], []),
    ],
)
def test_open_results_are_filled_in_at_their_places(
    results: list[int | None], filled: list[int], places: list[list[int]]
) -> None:
    calls: list[Sequence[int]] = []

    def run(open_places: Sequence[int]) -> list[int]:
        calls.append(open_places)
        return [10 + place for place in open_places]

    assert executor.fill_open(results, run) == filled
    assert calls == places
