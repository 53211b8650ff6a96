"""The loop looks for the deliveries of an endpoint with a limit when its pause is over."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from booking_server.worker import delivery_loop, loops
from booking_server.worker.delivery_loop import DeliveryLoop
from booking_server.worker.pacing import Pauses


def claimed(endpoint_id: str, pause: int) -> Any:
    return SimpleNamespace(endpoint_id=endpoint_id, pause=pause)


def test_without_a_pause_the_loop_polls() -> None:
    pauses = Pauses()
    pauses.note([claimed("a", 0)], began_s=10, now_s=10)
    assert pauses.wait_s(10, 0.5) == 0.5


def test_the_first_pause_that_ends_is_waited_for() -> None:
    pauses = Pauses()
    pauses.note([claimed("a", 400_000), claimed("b", 100_000)], began_s=10, now_s=10.01)
    assert pauses.wait_s(10.02, 0.5) == pytest.approx(0.09)


def test_a_pause_that_ended_behind_the_last_claim_is_not_forgotten() -> None:
    pauses = Pauses()
    pauses.note([claimed("a", 100_000)], began_s=10, now_s=10)
    pauses.note([], began_s=10.09, now_s=10.11)
    assert pauses.wait_s(10.11, 0.5) == 0
    pauses.note([], began_s=10.12, now_s=10.13)
    assert pauses.wait_s(10.13, 0.5) == 0.5


def test_the_loop_waits_no_longer_than_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    claims = [[claimed("a", 100_000)], []]

    class Queue:
        has_results = False

        async def claim(self) -> list[Any]:
            return claims.pop(0)

        async def record(self) -> None: ...

    async def start(*_: object) -> None: ...

    async def wait(_: asyncio.Event, stop: asyncio.Event, poll_s: float) -> None:
        waits.append(poll_s)
        stop.set()

    monkeypatch.setattr(loops, "wait_for_change", wait)
    monkeypatch.setattr(DeliveryLoop, "_start", start)
    queue: Any = Queue()
    loop = DeliveryLoop(queue, None, loops.FailureLog(), loops.Turns())  # type: ignore[arg-type]
    asyncio.run(loop.run(asyncio.Event()))
    (waited,) = waits
    assert 0 < waited <= 0.1 < delivery_loop.POLL_S
