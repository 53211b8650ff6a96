"""The desk takes what waits together, and answers each caller by itself."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from booking_core.errors import NotFound, Unavailable
from booking_server.execution import executor
from booking_server.execution.executor import Desk


class Handler:
    """Doubles numbers, remembers its batches, and can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Semaphore(0)
        self.free = threading.Event()
        self.free.set()

    def __call__(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(jobs))
        self.begun.release()
        assert self.free.wait(timeout=30)
        return [NotFound() if job < 0 else 2 * job for job in jobs]


@pytest.fixture
def handler() -> Handler:
    return Handler()


@contextmanager
def open_desk(handle: Callable[[Sequence[int]], Any], *, threads: int = 1, batch: int = 32) -> Iterator[Desk[int, int]]:
    opened: Desk[int, int] = Desk("test", handle, threads=threads, batch=batch)
    try:
        yield opened
    finally:
        opened.close()


async def held_up(opened: Desk[int, int], handler: Handler, waiting: Sequence[int]) -> list[Awaitable[int]]:
    """The first job's future and those of what waits behind it, while the desk does the first one."""
    handler.free.clear()
    first = opened.submit(0)
    await asyncio.to_thread(handler.begun.acquire, timeout=30)
    return [first, *(opened.submit(job) for job in waiting)]


def test_an_idle_desk_does_one_job_at_a_time(handler: Handler) -> None:
    async def scene() -> list[int]:
        with open_desk(handler) as opened:
            return [await opened.submit(job) for job in (1, 2, 3)]

    assert asyncio.run(scene()) == [2, 4, 6]
    assert handler.batches == [[1], [2], [3]]


def test_what_waits_is_done_together_in_order_up_to_a_bound(handler: Handler) -> None:
    async def scene() -> list[int]:
        with open_desk(handler, batch=32) as opened:
            futures = await held_up(opened, handler, range(1, 71))
            handler.free.set()
            return await asyncio.gather(*futures)

    assert asyncio.run(scene()) == [2 * job for job in range(71)]
    assert handler.batches == [[0], list(range(1, 33)), list(range(33, 65)), list(range(65, 71))]


def test_a_thread_takes_no_more_than_its_share(handler: Handler) -> None:
    """Two threads take half each of what waits, so that neither idles while the other has it all."""

    async def scene() -> list[int]:
        with open_desk(handler, threads=2) as opened:
            handler.free.clear()
            busy = []
            for _ in range(2):
                busy.append(opened.submit(0))
                await asyncio.to_thread(handler.begun.acquire, timeout=30)
            waiting = [opened.submit(job) for job in range(1, 9)]
            handler.free.set()
            return await asyncio.gather(*busy, *waiting)

    assert asyncio.run(scene()) == [0, 0, *(2 * job for job in range(1, 9))]
    assert max(map(len, handler.batches)) <= 5
    assert sorted(job for batch in handler.batches for job in batch) == [0, 0, *range(1, 9)]


class Pauses:
    """Lets jobs come while a desk gathers, and remembers how often it waited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: Callable[[], Desk[int, int]]) -> None:
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


async def gathering(handler: Handler, scene: Callable[[Desk[int, int], Pauses], Awaitable[None]]) -> None:
    pauses = Pauses(asyncio.get_running_loop(), lambda: opened)
    opened: Desk[int, int] = Desk("test", handler, threads=1, batch=4, gathers=True, pause=pauses)
    try:
        await scene(opened, pauses)
    finally:
        await asyncio.to_thread(opened.close)


def test_a_desk_that_gathers_waits_for_as_many_as_came_together(handler: Handler) -> None:
    async def scene(opened: Desk[int, int], pauses: Pauses) -> None:
        futures = await held_up(opened, handler, [1, 2])
        assert pauses.count == 0  # nobody was expected
        pauses.coming = [[], [3], [4]]
        handler.free.set()
        await asyncio.gather(*futures, *pauses.futures)
        assert pauses.count == 2  # three were there at once, so a fourth is not awaited
        assert handler.batches == [[0], [1, 2, 3]]

    asyncio.run(gathering(handler, scene))


def test_a_desk_that_gathers_goes_on_when_nobody_comes(handler: Handler) -> None:
    async def scene(opened: Desk[int, int], pauses: Pauses) -> None:
        futures = await held_up(opened, handler, [1, 2])
        handler.free.set()
        await asyncio.gather(*futures)
        for job in range(3, 10):
            await opened.submit(job)
        assert handler.batches == [[0], [1, 2], *([job] for job in range(3, 10))]
        assert pauses.count == 2 * executor.LOOKS  # for a third, then for a second, and then for nobody any more

    asyncio.run(gathering(handler, scene))


def test_who_comes_alone_and_asks_again_at_once_is_not_taken_for_two(handler: Handler) -> None:
    async def scene(opened: Desk[int, int], pauses: Pauses) -> None:
        loop, has_asked_again = asyncio.get_running_loop(), threading.Event()
        answer = loop.call_soon_threadsafe

        def answer_and_dawdle(*given: Any) -> None:
            loop.call_soon_threadsafe = answer  # type: ignore[method-assign]
            answer(*given)
            assert has_asked_again.wait(timeout=30)

        loop.call_soon_threadsafe = answer_and_dawdle  # type: ignore[assignment]
        await opened.submit(1)
        again = opened.submit(2)
        has_asked_again.set()
        await again
        assert (handler.batches, pauses.count) == ([[1], [2]], 0)

    asyncio.run(gathering(handler, scene))


def test_a_desk_that_gathers_takes_no_more_than_a_batch(handler: Handler) -> None:
    async def scene(opened: Desk[int, int], pauses: Pauses) -> None:
        futures = await held_up(opened, handler, range(1, 10))
        handler.free.set()
        await asyncio.gather(*futures)
        assert pauses.count <= executor.LOOKS  # at most for the last one, which was alone
        assert handler.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]

    asyncio.run(gathering(handler, scene))


def test_an_error_goes_to_the_caller_whose_job_it_was(handler: Handler) -> None:
    async def scene() -> list[Any]:
        with open_desk(handler) as opened:
            futures = await held_up(opened, handler, [1, -1, 2, -2, 3])
            handler.free.set()
            return await asyncio.gather(*futures, return_exceptions=True)

    _, *outcomes = asyncio.run(scene())
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [2, 4, 6]
    assert [type(outcome) for outcome in outcomes] == [int, NotFound, int, NotFound, int]


def test_a_batch_that_fails_as_a_whole_tells_every_caller_and_the_desk_goes_on() -> None:
    calls: list[int] = []

    def handle(jobs: Sequence[int]) -> list[int]:
        calls.append(len(jobs))
        if len(calls) == 1:
            raise ZeroDivisionError
        return list(jobs)

    async def scene() -> list[Any]:
        with open_desk(handle) as opened:
            failed = await asyncio.gather(opened.submit(1), return_exceptions=True)
            return [*failed, await opened.submit(2)]

    failed, done = asyncio.run(scene())
    assert isinstance(failed, ZeroDivisionError)
    assert done == 2


def test_a_caller_that_has_gone_leaves_its_neighbours_alone(handler: Handler) -> None:
    async def scene() -> list[Any]:
        with open_desk(handler) as opened:
            futures = await held_up(opened, handler, [1, 2, 3])
            futures[2].cancel()  # type: ignore[attr-defined]
            handler.free.set()
            return await asyncio.gather(*futures, return_exceptions=True)

    outcomes = asyncio.run(scene())
    assert [outcomes[1], outcomes[3]] == [2, 6]
    assert isinstance(outcomes[2], asyncio.CancelledError)
    assert handler.batches[1] == [1, 2, 3]  # what was accepted is done, whether or not somebody still listens


def test_a_full_queue_refuses_the_next_at_once(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "WAITING_MAX", 10)

    async def scene() -> list[int]:
        with open_desk(handler) as opened:
            futures = await held_up(opened, handler, range(1, 11))
            with pytest.raises(Unavailable):
                opened.submit(11)
            handler.free.set()
            answers = await asyncio.gather(*futures)
            return [*answers, await opened.submit(11)]

    assert asyncio.run(scene()) == [2 * job for job in range(12)]


def test_who_waited_for_too_long_is_refused_and_nothing_done(handler: Handler) -> None:
    at = 0.0

    async def scene() -> list[Any]:
        nonlocal at
        opened: Desk[int, int] = Desk("test", handler, threads=1, batch=3, clock=lambda: at)
        futures = await held_up(opened, handler, [1, 2])
        at = executor.WAIT_MAX_S + 0.1
        futures += [opened.submit(3)]
        handler.free.set()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        await asyncio.to_thread(opened.close)
        return outcomes

    outcomes = asyncio.run(scene())
    assert [type(outcome) for outcome in outcomes] == [int, Unavailable, Unavailable, int]
    assert handler.batches == [[0], [3]]


@pytest.mark.parametrize("threads", [1, 3])
def test_closing_finishes_what_waits_and_takes_nothing_more(handler: Handler, threads: int) -> None:
    async def scene() -> list[int]:
        opened: Desk[int, int] = Desk("test", handler, threads=threads, batch=4)
        futures = await held_up(opened, handler, range(1, 30))
        closing = asyncio.create_task(asyncio.to_thread(opened.close))
        handler.free.set()
        answers = await asyncio.gather(*futures)
        await closing
        with pytest.raises(Unavailable):
            opened.submit(99)
        return answers

    assert asyncio.run(scene()) == [2 * job for job in range(30)]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]


def test_what_comes_again_is_the_first_of_the_next_batch() -> None:
    batches: list[list[int]] = []
    begun, free = threading.Semaphore(0), threading.Event()

    def handle(jobs: Sequence[int]) -> list[Any]:
        batches.append(list(jobs))
        begun.release()
        assert free.wait(timeout=30)
        return [executor.AGAIN if job in (2, 4) and len(batches) < 3 else 2 * job for job in jobs]

    async def scene() -> list[int]:
        with open_desk(handle, batch=3) as opened:
            futures = [opened.submit(0)]
            await asyncio.to_thread(begun.acquire, timeout=30)
            futures += [opened.submit(job) for job in range(1, 7)]
            free.set()
            return await asyncio.gather(*futures)

    assert asyncio.run(scene()) == [2 * job for job in range(7)]
    assert batches == [[0], [1, 2, 3], [2, 4, 5], [6]]


def test_what_comes_again_is_done_before_the_desk_closes() -> None:
    batches: list[list[int]] = []

    def handle(jobs: Sequence[int]) -> list[Any]:
        batches.append(list(jobs))
        return [executor.AGAIN if len(batches) < 4 else 2 * job for job in jobs]

    async def scene() -> int:
        with open_desk(handle) as opened:
            future = opened.submit(1)
            await asyncio.to_thread(opened.close)
            return await future

    assert asyncio.run(scene()) == 2
    assert batches == [[1]] * 4
