"""Misbehaviours of webhook receivers and endpoints."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from support.databases import run
from support.receivers import Answer, Receiver, hang, plain, wait_until
from support.world import HOUR

from booking_core.base.clock import system_clock
from booking_core.models.limits import WEBHOOK_ATTEMPTS
from isolation import bulk
from isolation.measuring import Misbehaviour
from isolation.world import Scene


async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Send an endless head, slowly enough to leave the test's process time for other connections."""
    while not writer.is_closing():
        writer.write(b"X")
        await writer.drain()
        await asyncio.sleep(0.2)
    return False


_LARGE = plain(200, body=b"x" * 65_536)


def _answering(
    answer: Answer, endpoints: int, full: int, reduced: int
) -> Callable[[Scene], AbstractContextManager[None]]:
    """Return a misbehaviour of endpoints with these answers, and with that number of events for each."""

    @contextmanager
    def run_it(scene: Scene) -> Iterator[None]:
        receivers = [scene.receiver(answer) for _ in range(endpoints)]
        for each in receivers:
            scene.endpoint(url=each.url)
        bulk.waiting(scene.url, scene.offender.world, scene.size(full, reduced))
        wait_until(lambda: all(each.receipts for each in receivers), "each receiver was called")
        yield

    return run_it


@contextmanager
def _auto_disable(scene: Scene) -> Iterator[None]:
    """Let an endpoint fail that has failed for 73 hours: its next failure disables it."""
    since = system_clock() - 73 * HOUR
    scene.endpoint(consecutive_failures=20, enabled_at=since, created_at=since, last_failure_at=since)
    bulk.waiting(scene.url, scene.offender.world, scene.size(100_000, 20_000))
    yield


@contextmanager
def _unrecordable(scene: Scene) -> Iterator[None]:
    """Let deliveries die whose death cannot be published, since the organization's timezone is unknown."""
    receiver = scene.receiver(plain(500))
    scene.endpoint(url=receiver.url)
    bulk.waiting(scene.url, scene.offender.world, 4)
    run(scene.url, f"UPDATE organizations SET timezone = 'Mars/Olympus' WHERE id = '{scene.offender.world.org}'")
    wait_until(lambda: _attempts(receiver) >= WEBHOOK_ATTEMPTS, "the last attempt of a delivery was made")
    yield


def _attempts(receiver: Receiver) -> int:
    """Return the largest number of attempts of one event."""
    counts = Counter(receipt.event_id for receipt in list(receiver.receipts))
    return max(counts.values(), default=0)


MISBEHAVIOURS = (
    Misbehaviour("hanging-receiver", "a receiver never answers", _answering(hang, 1, 10_000, 1_000)),
    Misbehaviour("dripping-receiver", "a receiver answers a byte at a time", _answering(drip, 1, 10_000, 1_000)),
    Misbehaviour("large-answers", "a receiver answers 64 KiB to each event", _answering(_LARGE, 1, 50_000, 3_000)),
    Misbehaviour("ten-hanging-receivers", "ten endpoints never answer", _answering(hang, 10, 10_000, 300)),
    Misbehaviour("refusing-receivers", "ten endpoints refuse every event", _answering(plain(500), 10, 10_000, 300)),
    Misbehaviour("auto-disable", "an endpoint with 100,000 events becomes due to be disabled", _auto_disable),
    Misbehaviour(
        "unrecordable-attempt",
        "the results of some attempts cannot be recorded",
        _unrecordable,
        settings={"webhook_waits_s": (0, 0, 0, 0, 0)},
    ),
)
