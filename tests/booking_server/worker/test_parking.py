"""A result that cannot be recorded keeps no other from being recorded, and is shown by the doctor."""

import asyncio
import logging
from typing import Any

import pytest
from support.world.hooks import Hooks
from support.world.world import SECRET, FixedClock, World, make_world

from booking_core import webhooks
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.models.webhooks import AttemptError
from booking_core.upkeep import doctor
from booking_core.webhooks import ClaimedDelivery
from booking_server.worker.queue import DeliveryQueue

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
        for each in claimed:
            queue.add_result(hooks.result(each, AttemptError.HTTP_STATUS))
        await queue.record()
        return claimed

    return asyncio.run(work())


def unrecorded(hooks: Hooks) -> list[str]:
    found = hooks.database.read(doctor.examine)
    return [each.subject for each in found if each.invariant == UNRECORDED]


def test_a_result_that_cannot_be_recorded_keeps_no_other_from_being_recorded(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    sound.publish(times=5)
    with caplog.at_level(logging.ERROR):
        claimed = work_off(queue, sound)
    assert len(claimed) == 6
    assert [row["attempt_count"] for row in sound.deliveries()] == [1] * 5
    assert not queue.has_results
    (bad,) = [each for each in claimed if each.organization_id == broken.world.org]
    (line,) = caplog.records
    assert bad.delivery_id in line.getMessage()
    assert bad.attempt_id in line.getMessage()


def test_an_endpoint_with_a_parked_result_rests_for_a_minute(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, clock: FixedClock
) -> None:
    work_off(queue, sound)
    (later,) = broken.publish()
    (sent,) = sound.publish()
    assert [each.event_id for each in work_off(queue, sound)] == [sent]
    clock.advance(MINUTE)
    assert later in {each.event_id for each in work_off(queue, sound)}


def test_an_unrescuable_lease_is_postponed_and_reported_by_the_doctor(
    queue: DeliveryQueue, sound: Hooks, broken: Hooks, clock: FixedClock
) -> None:
    sound.publish(times=3)
    claimed = sound.claim()  # by a worker that then dies
    (bad,) = [each.delivery_id for each in claimed if each.organization_id == broken.world.org]
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
    assert [each.event_id for each in work_off(queue, sound)] == [sent]


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
