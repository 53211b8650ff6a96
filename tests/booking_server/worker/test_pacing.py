"""The loop looks for the deliveries of an endpoint with a limit after its pause."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from booking_server.worker import deliveries, loops
from booking_server.worker.deliveries import DeliveryLoop, Pauses


def claimed(endpoint_id: str, pause: int) -> Any:
    return SimpleNamespace(endpoint_id=endpoint_id, pause=pause)


@pytest.mark.parametrize(
    ("notes", "now_s", "wait_s"),
    [
        pytest.param([([("a", 0)], 10, 10)], 10, 0.5, id="without a pause the loop polls"),
        pytest.param([([("a", 400_000), ("b", 100_000)], 10, 10.01)], 10.02, 0.09, id="the first pause that ends"),
        pytest.param(
            [([("a", 100_000)], 10, 10), ([], 10.09, 10.11)], 10.11, 0, id="a pause that ended after the claim"
        ),
        pytest.param(
            [([("a", 100_000)], 10, 10), ([], 10.12, 10.13)], 10.13, 0.5, id="a pause that ended before the claim"
        ),
    ],
)
def test_the_loop_waits_for_the_first_pause_that_ends(notes: list[Any], now_s: float, wait_s: float) -> None:
    pauses = Pauses()
    for found, began_s, noted_s in notes:
        pauses.note([claimed(*each) for each in found], began_s=began_s, now_s=noted_s)
    assert pauses.wait_s(now_s, 0.5) == pytest.approx(wait_s)


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
    assert 0 < waited <= 0.1 < deliveries.POLL_S
