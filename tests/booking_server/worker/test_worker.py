"""The worker: due deliveries are sent, signed, recorded, and sent again after a failure."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import pytest
from support.api.api import Api
from support.receivers.senders import FAILED, OK, FakeSender, worker_of
from support.world.hooks import Hooks
from support.world.world import DAY, HOUR, FixedClock, World, make_world

import webhook_verify
from booking_core import webhooks
from booking_core.base import tokens
from booking_core.base.clock import MINUTE, system_clock
from booking_core.base.errors import Unavailable
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.jobs.periodic import Job
from booking_server.worker.notifier import listen, open_notifier
from booking_server.worker.process import running

EVENT_TYPES = (EventType.BOOKING_CREATED, EventType.BOOKING_CONFIRMED, EventType.BOOKING_CANCELLED)


def url_of(world: World) -> str:
    return f"https://hooks.example/{world.org}"


@pytest.fixture
def hooks(world: World) -> Hooks:
    """An organization with an endpoint."""
    hooks = Hooks(world)
    hooks.endpoint(*EVENT_TYPES, url=url_of(world))
    return hooks


def turn(world: World, receiver: FakeSender) -> int:
    return asyncio.run(worker_of(world, receiver).run_once())


def deliveries(world: World) -> list[dict[str, object]]:
    return sorted(world.rows(tables.deliveries), key=lambda row: row["event_sequence"])


def test_events_are_delivered_in_order_and_verify(api: Api, world: World, hooks: Hooks) -> None:
    booking = api.book(world.departure(world.experience())).json()
    api.cancel(booking["id"])
    receiver = FakeSender(url=url_of(world))
    turn(world, receiver)
    requests = [request for request in receiver.requests if booking["id"].encode() in request.body]
    assert [request.headers["Svc-Event-Type"] for request in requests] == list(EVENT_TYPES)
    (secret,) = hooks.secrets.values()
    for _, headers, body in requests:
        delivery = webhook_verify.verify(body, headers, secret, now=world.clock() / 1e6)
        assert delivery.event_id == headers["Svc-Event-Id"]
        assert delivery.json()["data"]["object"]["manage_url"] is None
        assert headers["User-Agent"] == "Svc-Webhooks/1.0"
    assert {row["status"] for row in deliveries(world)} == {"succeeded"}


def test_standard_webhooks_headers_verify(api: Api, world: World, hooks: Hooks) -> None:
    api.book(world.departure(world.experience()))
    receiver = FakeSender(url=url_of(world))
    turn(world, receiver)
    _, headers, body = receiver.requests[-1]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    (secret,) = hooks.secrets.values()
    digest = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256)
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


def test_a_failed_attempt_is_repeated_later_with_the_same_bytes(api: Api, world: World, hooks: Hooks) -> None:
    api.book(world.departure(world.experience()))
    receiver = FakeSender(FAILED, url=url_of(world))
    turn(world, receiver)
    first = deliveries(world)[0]
    assert (first["status"], first["attempt_count"]) == ("queued", 1)
    assert isinstance(first["next_attempt_at"], int)
    assert first["next_attempt_at"] >= world.clock() + 60_000_000
    sent_before = len(receiver.requests)
    world.clock.advance(59_000_000)
    turn(world, receiver)
    assert len(receiver.requests) == sent_before
    world.clock.advance(10_000_000)
    turn(world, receiver)
    (_, before, body), (_, after, body_again) = receiver.requests[0], receiver.requests[-1]
    assert (body, before["Svc-Event-Id"]) == (body_again, after["Svc-Event-Id"])
    assert before["Svc-Delivery-Id"] != after["Svc-Delivery-Id"]
    assert deliveries(world)[0]["status"] == "succeeded"


def test_a_sender_that_raises_does_not_stop_the_others(api: Api, world: World, hooks: Hooks) -> None:
    class Broken(FakeSender):
        async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
            await super().send(url, headers, body)
            if url == self.url and len(self.requests) == 1:
                raise ValueError(tokens.new_id())
            return OK

    api.book(world.departure(world.experience()))
    api.book(world.departure(world.experience()))
    receiver = Broken(url=url_of(world))
    turn(world, receiver)
    # The second event of the first booking waits for the first one, whose attempt could not be made.
    assert [row["status"] for row in deliveries(world)] == ["queued", "queued", "succeeded", "succeeded"]


def test_deliveries_claimed_before_a_stop_are_sent_and_recorded(
    api: Api, world: World, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.book(world.departure(world.experience()))
    receiver, claim = FakeSender(url=url_of(world)), webhooks.claim

    async def work() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def claim_and_stop(*args: Any, **kwargs: Any) -> list[webhooks.ClaimedDelivery]:
            claimed = claim(*args, **kwargs)
            if any(delivery.organization_id == world.org for delivery in claimed):
                loop.call_soon_threadsafe(stop.set)
            return claimed

        monkeypatch.setattr(webhooks, "claim", claim_and_stop)
        async with asyncio.timeout(60):
            await worker_of(world, receiver).run(stop)

    asyncio.run(work())
    # The second event waits for the first, which is about the same booking.
    assert [row["status"] for row in deliveries(world)] == ["succeeded", "queued"]
    assert [row["lease_until"] for row in deliveries(world)] == [None, None]
    assert len(receiver.requests) == 1


def test_attempts_while_the_database_was_away_are_not_repeated(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, receiver, record = Hooks(alone), FakeSender(url=url_of(alone)), webhooks.record
    hooks.endpoint(url=receiver.url)
    hooks.publish()

    async def work() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        away = iter([True, True])

        def record_late(*args: Any, **kwargs: Any) -> None:
            if next(away, False):
                alone.clock.advance(MINUTE)  # longer than any lease
                raise Unavailable
            record(*args, **kwargs)
            loop.call_soon_threadsafe(stop.set)

        monkeypatch.setattr(webhooks, "record", record_late)
        async with asyncio.timeout(30):
            await worker_of(alone, receiver).run(stop)

    asyncio.run(work())
    assert len(receiver.requests) == 1
    assert hooks.delivery()["status"] == "succeeded"


def test_a_worker_that_stops_while_the_database_is_away_closes_its_jobs(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Idle(Job):
        name = "idle"
        is_closed = False

        async def run_turn(self, _: asyncio.Event) -> int:
            return 0

        async def close(self) -> None:
            self.is_closed = True

    hooks, receiver, job = Hooks(alone), FakeSender(url=url_of(alone)), Idle()
    hooks.endpoint(url=receiver.url)
    hooks.publish()
    stopping = worker_of(alone, receiver, [job])

    async def work() -> None:
        failed, loop = asyncio.Event(), asyncio.get_running_loop()

        def fail(*_: Any, **__: Any) -> None:
            loop.call_soon_threadsafe(failed.set)
            raise Unavailable

        monkeypatch.setattr(webhooks, "record", fail)
        async with asyncio.timeout(30), running(stopping, receiver):
            await failed.wait()

    asyncio.run(work())
    assert job.is_closed


def test_expired_leases_are_rescued_after_the_clock_was_set_back(alone: World) -> None:
    hooks, receiver = Hooks(alone), FakeSender(url=url_of(alone))
    hooks.endpoint(url=receiver.url)
    lasting = worker_of(alone, receiver)
    alone.clock.advance(400 * DAY)
    asyncio.run(lasting.run_once())
    alone.clock.advance(-400 * DAY)
    hooks.publish()
    hooks.claim()  # by a worker that then dies
    alone.clock.advance(MINUTE)
    asyncio.run(lasting.run_once())
    assert hooks.delivery()["status"] == "succeeded"


@pytest.mark.usefixtures("postgresql_only")
def test_an_idle_worker_is_woken_by_a_commit_of_another_process(alone: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("booking_server.worker.deliveries.POLL_S", 3600)
    hooks, receiver = Hooks(alone), FakeSender(url=url_of(alone))
    hooks.endpoint(url=receiver.url)

    async def work() -> None:
        idle, claimed = worker_of(alone, receiver), asyncio.Event()
        wrapped = receiver.send

        async def send(url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
            claimed.set()
            return await wrapped(url, headers, body)

        monkeypatch.setattr(receiver, "send", send)
        async with (
            running(idle, receiver),
            listen(alone.database, idle.wake),
            open_notifier(alone.database) as notify,
        ):
            for _ in range(2):
                await asyncio.to_thread(hooks.publish)
                notify()
                async with asyncio.timeout(60):
                    await claimed.wait()
                claimed.clear()

    asyncio.run(work())
    assert len(receiver.requests) == 2


@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_with_a_wrong_clock_uses_the_databases_clock(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """With SQLite there is one process, and one clock."""
    monkeypatch.setattr("booking_core.db.engine.system_clock", lambda: system_clock() + hours * HOUR)
    world = make_world(Database(fresh_database_url), FixedClock(system_clock()))
    hooks, receiver = Hooks(world), FakeSender(FAILED, url=url_of(world))
    endpoint = hooks.endpoint(url=receiver.url)
    hooks.publish()
    turn(world, receiver)
    ((_, headers, body),), now = receiver.requests, system_clock()
    assert webhook_verify.is_valid(body, headers, hooks.secrets[endpoint], tolerance=60, now=now / 1e6)
    row, (attempt,) = hooks.delivery(), hooks.attempts()
    world.database.close()
    assert 0 <= now - attempt["started_at"] < MINUTE
    assert now < row["next_attempt_at"] < now + 2 * MINUTE
