"""The delivery queue: results that cannot be recorded, the upkeep beside the deliveries, and pauses of an endpoint."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.databases import databases
from support.receivers.senders import FakeSender, worker_of
from support.serving import jumping_loop
from support.world.hooks import Hooks, queue_rows
from support.world.world import HOUR, SECRET, FixedClock, World, make_world

from booking_core import webhooks
from booking_core.base import tokens
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import AttemptError, DeliveryRecover, WantedStatus, WebhookEndpointChange
from booking_core.upkeep import doctor
from booking_core.webhooks import ClaimedDelivery, Step, recovering
from booking_server.adapters.webhook_client import Sent
from booking_server.worker import deliveries, loops
from booking_server.worker.deliveries import DeliveryLoop, Pauses
from booking_server.worker.process import running
from booking_server.worker.queue import UPKEEP_EVERY as EVERY
from booking_server.worker.queue import UPKEEP_PAUSE as PAUSE
from booking_server.worker.queue import DeliveryQueue, Slots, UpkeepJob

UNRECORDED = "the result of every delivery can be recorded"


@pytest.fixture
def sound(alone: World) -> Hooks:
    hooks = Hooks(alone)
    hooks.endpoint()
    return hooks


@pytest.fixture
def broken(alone: World, clock: FixedClock) -> Hooks:
    """An organization whose dead deliveries cannot be published: its time zone is unknown."""
    hooks = Hooks(make_world(alone.database, clock))
    hooks.endpoint()
    hooks.publish()
    (row,) = hooks.claim()
    hooks.fail(row)
    hooks.world.change(tables.deliveries, row.delivery_id, attempt_count=5, next_attempt_at=clock())
    hooks.world.change(tables.organizations, hooks.world.org, timezone="Europe/Nowhere")
    return hooks


@pytest.fixture
def queue(alone: World) -> DeliveryQueue:
    settings = Settings(database_url=str(alone.database.url), secret_key=SECRET)
    return DeliveryQueue(settings, alone.database, alone.installation)


def work_off(queue: DeliveryQueue, hooks: Hooks) -> list[ClaimedDelivery]:
    """Claim all due deliveries, fail them and record that."""

    async def work() -> list[ClaimedDelivery]:
        claimed = await queue.claim()
        for delivery in claimed:
            queue.add_result(hooks.result(delivery, AttemptError.HTTP_STATUS))
        await queue.record()
        return claimed

    return asyncio.run(work())


def unrecorded(hooks: Hooks) -> list[str]:
    findings = hooks.database.read(doctor.examine)
    return [finding.subject for finding in findings if finding.invariant == UNRECORDED]


def test_a_result_that_cannot_be_recorded_keeps_no_other_from_being_recorded(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    sound.publish(times=5)
    with caplog.at_level(logging.ERROR):
        claimed = work_off(queue, sound)
    assert len(claimed) == 6
    assert [row["attempt_count"] for row in sound.deliveries()] == [1] * 5
    assert not queue.has_results
    (bad,) = [delivery for delivery in claimed if delivery.organization_id == broken.world.org]
    (line,) = caplog.records
    assert bad.delivery_id in line.getMessage()
    assert bad.attempt_id in line.getMessage()


def test_an_endpoint_with_a_parked_result_rests_for_a_minute(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, clock: FixedClock
) -> None:
    work_off(queue, sound)
    (later,) = broken.publish()
    (sent,) = sound.publish()
    assert [delivery.event_id for delivery in work_off(queue, sound)] == [sent]
    clock.advance(MINUTE)
    assert later in {delivery.event_id for delivery in work_off(queue, sound)}


def test_an_unrescuable_lease_is_postponed_and_reported_by_the_doctor(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, clock: FixedClock
) -> None:
    sound.publish(times=3)
    claimed = sound.claim()  # by a worker that then dies
    (bad,) = [delivery.delivery_id for delivery in claimed if delivery.organization_id == broken.world.org]
    broken.world.change(tables.deliveries, bad, lost_leases=2)  # the next expired lease counts as the sixth failure
    clock.advance(MINUTE)
    assert unrecorded(sound) == []
    work_off(queue, sound)
    assert unrecorded(sound) == [bad]
    assert {row["attempt_count"] for row in sound.deliveries()} == {1}
    broken.world.change(tables.organizations, broken.world.org, timezone="Europe/Oslo")
    clock.advance(11 * MINUTE)
    work_off(queue, sound)
    assert broken.deliveries()[0]["status"] == "dead"
    assert unrecorded(sound) == []


def test_a_result_that_waits_for_a_lock_is_kept_for_three_turns(
    queue: DeliveryQueue, sound: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound.publish()
    record = webhooks.record

    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable

    monkeypatch.setattr(webhooks, "record", refuse)
    with pytest.raises(Unavailable):
        work_off(queue, sound)
    with pytest.raises(Unavailable):
        work_off(queue, sound)
    assert queue.has_results
    monkeypatch.setattr(webhooks, "record", record)
    work_off(queue, sound)
    assert sound.delivery()["attempt_count"] == 1


def test_secrets_that_cannot_be_read_stop_no_claim_of_others(queue: DeliveryQueue, sound: Hooks, broken: Hooks) -> None:
    (secret,) = broken.world.rows(tables.webhook_secrets)
    broken.world.change(tables.webhook_secrets, secret["id"], secret_sealed="not sealed : at all")
    (sent,) = sound.publish()
    assert [delivery.event_id for delivery in work_off(queue, sound)] == [sent]


def test_while_the_database_is_away_everything_is_kept(
    queue: DeliveryQueue, sound: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound.publish(times=3)
    calls = []

    def away(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise Unavailable(for_all=True)

    monkeypatch.setattr(webhooks, "record", away)
    with pytest.raises(Unavailable):
        work_off(queue, sound)
    assert (queue.has_results, len(calls)) == (True, 1)


# Upkeep --------------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(deliveries, "POLL_S", 3600)

    class Receiver(FakeSender):
        reached = asyncio.Event()

        async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
            sent = await super().send(url, headers, body)
            if len(self.requests) == 2:
                self.reached.set()
            return sent

    async def work() -> None:
        receiver = Receiver()
        busy = worker_of(alone, receiver)
        async with running(busy, receiver), asyncio.timeout(60):
            assert await asyncio.to_thread(waits.wait, 30)
            # The second one waits for the result of the first, which wakes the loop.
            await asyncio.to_thread(hooks.publish, tokens.new_id(), times=2)
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


# Pauses --------------------------------------------------------------------------------------------------------------


def paused(endpoint_id: str, pause: int) -> Any:
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
    for batch, began_s, noted_s in notes:
        pauses.note([paused(*pause) for pause in batch], began_s=began_s, now_s=noted_s)
    assert pauses.wait_s(now_s, 0.5) == pytest.approx(wait_s)


def test_the_loop_waits_for_a_pause_and_longer_with_each_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[tuple[float, list[Any] | None]] = [(0, None), (0.5, None), (1.5, [paused("a", 100_000)])]
    turns += [(1.5, []), (1.6, []), (2.6, None), (3.1, [])]
    """The times of the turns, and what each claims; None for a turn that fails."""
    times, stop = list[float](), asyncio.Event()

    class Queue:
        has_results = False

        async def claim(self) -> list[Any]:
            _, claimed = turns[len(times)]
            times.append(round(asyncio.get_running_loop().time(), 1))
            if len(times) == len(turns):
                stop.set()
            if claimed is None:
                raise Unavailable
            return claimed

        async def record(self) -> None: ...

    async def start(*_: object) -> None: ...

    monkeypatch.setattr(DeliveryLoop, "_start", start)
    queue: Any = Queue()
    loop = DeliveryLoop(queue, None, loops.FailureLog(), loops.Turns())  # type: ignore[arg-type]
    jumping_loop.run(loop.run(stop))
    assert times == [time for time, _ in turns]


# Slots ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_flight", "slow", "limits"),
    [
        pytest.param(0, 0, (128, 256, 16), id="an idle worker"),
        pytest.param(300, 0, (106, 256, 16), id="half of the free slots"),
        pytest.param(500, 100, (6, 156, 3), id="few free slots"),
        pytest.param(511, 256, (1, 0, 1), id="the last slot, with no receiver that hangs"),
        pytest.param(300, 300, (106, 0, 16), id="more slow attempts than their half"),
    ],
)
def test_the_fewer_slots_are_free_the_fewer_an_endpoint_gets(
    in_flight: int, slow: int, limits: tuple[int, int, int]
) -> None:
    claim = Slots(Counter({"busy": in_flight}), slow).limits(full=["parked"])
    assert (claim["free"], claim["slow_free"], claim["per_endpoint"]) == limits
    assert claim["in_flight"] == {"busy": in_flight, "parked": 16}
