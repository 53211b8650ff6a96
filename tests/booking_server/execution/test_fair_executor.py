"""Jobs are refused, and answered when the executor closes, as in the batch executor; slow ones are passed."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from booking_core.errors import NotFound, Unavailable
from booking_server.execution import fair_executor
from booking_server.execution.fair_executor import FairExecutor, QueuedJob


class Handler:
    """Doubles numbers; each tenant's jobs wait until the tenant is free. A job below zero is refused."""

    def __init__(self) -> None:
        self.free = {"a": threading.Event(), "b": threading.Event()}
        self.begun = threading.Semaphore(0)
        self.first = threading.Semaphore(0)
        """Lets single jobs of the tenant `a` go on while it is not free."""

    def __call__(self, jobs: Sequence[QueuedJob[tuple[str, int]]]) -> list[Any]:
        self.begun.release()
        for each in jobs:
            self._wait(each.job[0])
        return [NotFound() if each.job[1] < 0 else 2 * each.job[1] for each in jobs]

    def _wait(self, tenant: str) -> None:
        while not self.free[tenant].wait(timeout=0.001):
            if tenant == "a" and self.first.acquire(blocking=False):
                return

    async def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.begun.acquire, timeout=60)


class Clock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def handler() -> Iterator[Handler]:
    made = Handler()
    yield made
    for free in made.free.values():
        free.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def executor(handler: Handler, clock: Clock) -> Iterator[FairExecutor[tuple[str, int]]]:
    made: FairExecutor[tuple[str, int]] = FairExecutor(
        "fair", handler, lanes=2, lanes_max=4, per_tenant=2, batch=1, clock=clock
    )
    yield made
    for free in handler.free.values():
        free.set()
    made.close()


Executor = FairExecutor[tuple[str, int]]


def submitted(executor: Executor, tenant: str, *numbers: int) -> list["asyncio.Future[Any]"]:
    return [executor.submit(tenant, (tenant, number)) for number in numbers]


def test_each_job_gets_its_own_result_or_error(executor: Executor, handler: Handler) -> None:
    handler.free["a"].set()

    async def scenario() -> list[Any]:
        return await asyncio.gather(*submitted(executor, "a", 1, -1, 3), return_exceptions=True)

    first, error, third = asyncio.run(scenario())
    assert (first, type(error), third) == (2, NotFound, 6)


def test_a_job_gets_a_lane_when_those_that_run_have_become_slow(
    executor: Executor, handler: Handler, clock: Clock
) -> None:
    async def scenario() -> int:
        slow = submitted(executor, "a", 1, 2, 3)
        await handler.wait_for(2)
        handler.free["b"].set()
        (fast,) = submitted(executor, "b", 4)
        clock.at_s += fair_executor.SLOW_S
        following = submitted(executor, "b", 5)  # the executor looks at its clock when a job comes
        found = await fast
        assert not any(each.done() for each in slow)
        handler.free["a"].set()
        await asyncio.gather(*slow, *following)
        return int(found)

    assert asyncio.run(scenario()) == 8


def test_a_job_is_refused_at_once_when_its_tenant_would_wait_too_long(
    executor: Executor, handler: Handler, clock: Clock
) -> None:
    async def scenario() -> tuple[Unavailable, list[Any]]:
        first = submitted(executor, "a", *range(40))
        await handler.wait_for(2)
        clock.at_s += 2.0
        handler.first.release(2)
        await handler.wait_for(2)
        with pytest.raises(Unavailable) as refusal:
            submitted(executor, "a", 40)
        handler.free["b"].set()
        others = await asyncio.gather(*submitted(executor, "b", 1, 2))
        handler.free["a"].set()
        handler.first.release(40)
        await asyncio.gather(*first)
        return refusal.value, others

    refusal, others = asyncio.run(scenario())
    assert fair_executor.WAIT_MAX_S < refusal.retry_after_s <= fair_executor.RETRY_AFTER_MAX_S
    assert others == [2, 4]


def test_a_tenant_with_a_full_queue_is_refused_and_another_one_is_not(
    executor: Executor, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_executor, "TENANT_QUEUE_MAX", 3)

    async def scenario() -> list[Any]:
        running = submitted(executor, "a", 1, 2)
        await handler.wait_for(2)
        waiting = submitted(executor, "a", 3, 4, 5)
        with pytest.raises(Unavailable) as refusal:
            submitted(executor, "a", 6)
        assert refusal.value.retry_after_s >= 1
        other = submitted(executor, "b", 7)
        for free in handler.free.values():
            free.set()
        return await asyncio.gather(*running, *waiting, *other)

    assert asyncio.run(scenario()) == [2, 4, 6, 8, 10, 14]


def test_a_job_that_waited_too_long_is_refused_and_not_run(executor: Executor, handler: Handler, clock: Clock) -> None:
    async def scenario() -> list[Any]:
        running = submitted(executor, "a", 1, 2)
        await handler.wait_for(2)
        late = submitted(executor, "a", 3)
        clock.at_s += fair_executor.WAIT_MAX_S + 1
        handler.free["a"].set()
        return await asyncio.gather(*running, *late, return_exceptions=True)

    *answered, refused = asyncio.run(scenario())
    assert answered == [2, 4]
    assert isinstance(refused, Unavailable)


def test_close_runs_waiting_jobs_and_refuses_new_ones(executor: Executor, handler: Handler) -> None:
    async def scenario() -> list[int]:
        futures = submitted(executor, "a", *range(20)) + submitted(executor, "b", *range(20))
        await handler.wait_for(2)
        closing = asyncio.create_task(asyncio.to_thread(executor.close))
        for free in handler.free.values():
            free.set()
        answers = await asyncio.gather(*futures)
        await closing
        with pytest.raises(Unavailable):
            submitted(executor, "a", 1)
        return answers

    assert asyncio.run(scenario()) == [2 * number for number in range(20)] * 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fair-")]
