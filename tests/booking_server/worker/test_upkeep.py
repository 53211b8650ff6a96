"""The upkeep of the delivery queue beside the deliveries."""

import asyncio
import logging
import threading
from collections.abc import Sequence

import pytest
from support.databases import databases
from support.receivers.senders import FakeSender, worker_of
from support.world.hooks import Hooks, queue_rows
from support.world.world import HOUR, World

from booking_core import webhooks
from booking_core.db.engine import Tx
from booking_core.models.webhooks import DeliveryRecover, WantedStatus, WebhookEndpointChange
from booking_core.webhooks import Step, recovering
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.process import running
from booking_server.worker.queue import UPKEEP_EVERY as EVERY
from booking_server.worker.queue import UPKEEP_PAUSE as PAUSE
from booking_server.worker.queue import UpkeepJob


@pytest.fixture
def hooks(alone: World, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    """An organization whose endpoint has recovered two of four deliveries that failed when it was disabled."""
    monkeypatch.setattr(recovering, "ROWS_AT_ONCE", 2)
    hooks, world = Hooks(alone), alone
    endpoint = hooks.endpoint()
    hooks.publish(times=4)
    queue_rows(world)

    def switch(tx: Tx) -> None:
        for status in (WantedStatus.DISABLED, WantedStatus.ENABLED):
            change = WebhookEndpointChange(status=status)
            webhooks.change(tx, world.caller(), endpoint, change, is_public=lambda _: True)
            world.clock.advance(1)
        webhooks.recover(tx, world.caller(), endpoint, DeliveryRecover(since="2026-01-01"))

    world.database.write(switch)
    return hooks


def queued(hooks: Hooks) -> int:
    return [row["status"] for row in hooks.rows()].count("queued")


def run(job: UpkeepJob) -> None:
    assert asyncio.run(job.run_turn(asyncio.Event())) == 0


def test_deliveries_go_on_while_a_step_of_the_upkeep_waits(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, waits, released = Hooks(alone), threading.Event(), threading.Event()
    hooks.endpoint(url="https://hooks.example/quiet")

    def wait(*_: object) -> list[Step]:
        waits.set()
        assert released.wait(60)
        return []

    monkeypatch.setattr(webhooks, "upkeep_steps", wait)

    class Receiver(FakeSender):
        reached = asyncio.Event()

        async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
            self.reached.set()
            return await super().send(url, headers, body)

    async def work() -> None:
        receiver = Receiver()
        busy = worker_of(alone, receiver)
        async with running(busy, receiver), asyncio.timeout(60):
            assert await asyncio.to_thread(waits.wait, 30)
            await asyncio.to_thread(hooks.publish)
            busy.wake()
            await receiver.reached.wait()
            assert not released.is_set()
            released.set()

    asyncio.run(work())


@pytest.mark.usefixtures("postgresql_only")
def test_a_locked_endpoint_is_left_for_the_next_turn(
    alone: World, hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    job = UpkeepJob(alone.database)
    locking = "SELECT 1 FROM webhook_endpoints FOR UPDATE"
    with databases.rows_held(str(alone.database.url), locking), caplog.at_level(logging.INFO):
        run(job)
    assert caplog.records == []
    assert queued(hooks) == 2
    alone.clock.advance(HOUR)
    run(job)
    assert queued(hooks) == 4


def test_a_turn_follows_sooner_while_there_is_more_to_do(alone: World, hooks: Hooks) -> None:
    job = UpkeepJob(alone.database)
    run(job)
    assert (queued(hooks), job.poll_s) == (4, PAUSE / 1e6)
    run(job)
    assert job.poll_s == PAUSE / 1e6, "the interval has not passed"
    alone.clock.advance(PAUSE)
    run(job)
    assert job.poll_s == EVERY / 1e6


def test_a_step_that_fails_keeps_no_other_from_its_turn(
    alone: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def fail(_: Tx) -> int:
        raise RuntimeError("a defect")

    def note(_: Tx) -> int:
        ran.append("second")
        return 0

    monkeypatch.setattr(webhooks, "upkeep_steps", lambda _: [fail, note])
    run(UpkeepJob(alone.database))
    assert ran == ["second"]
    assert "a step of the upkeep of deliveries failed" in caplog.text
