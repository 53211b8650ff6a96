"""A worker with many attempts in flight makes its transactions on the event loop: what it records is the same."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest
from support.hooks import Hooks
from support.world import HOUR, SECRET, FixedClock, make_world

from booking_core import tokens
from booking_core.db import loop_writes, tables
from booking_core.db.engine import Database
from booking_core.models.webhooks import AttemptError
from booking_core.settings import Settings
from booking_server.adapters.webhook_client import Sent
from booking_server.worker import delivery_queue
from booking_server.worker.worker import Worker

OK = Sent(204, None, None, 3)
BROKEN = Sent(500, "no", AttemptError.HTTP_STATUS, 3)


@pytest.fixture(autouse=True)
def always_busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Let every transaction be made on the loop, and yield a list with one item for each."""
    monkeypatch.setattr(delivery_queue, "BUSY", 0)
    made: list[bool] = []
    write = loop_writes.write

    def noted(*args: object, **kwargs: object) -> object:
        made.append(True)
        return write(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(loop_writes, "write", noted)
    yield made
    assert made


@pytest.fixture
def database(fresh_database_url: str, clock: FixedClock) -> Iterator[Database]:
    opened = Database(fresh_database_url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def hooks(database: Database, clock: FixedClock) -> Hooks:
    return Hooks(make_world(database, clock))


class Receiver:
    """A sender that keeps the events of its requests."""

    def __init__(self, answer: Sent = OK) -> None:
        self.answer = answer
        self.events: list[str] = []

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
        self.events.append(dict(headers)["Svc-Event-Id"])
        await asyncio.sleep(0)
        return self.answer

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def work_off(hooks: Hooks, receiver: Receiver) -> int:
    settings = Settings(database_url=str(hooks.database.url), secret_key=SECRET)
    return asyncio.run(Worker(settings, hooks.database, hooks.world.installation, receiver).run_once())


def test_each_event_is_sent_once_and_recorded_and_those_of_a_resource_in_order(hooks: Hooks) -> None:
    hooks.endpoint()
    card, receiver = tokens.new_id(), Receiver()
    others, own = hooks.publish(times=20), hooks.publish(card) + hooks.publish(card) + hooks.publish(card)
    assert work_off(hooks, receiver) == 23
    assert sorted(receiver.events) == sorted([*others, *own])
    assert [each for each in receiver.events if each in own] == own
    assert {(row["status"], row["attempt_count"], row["last_response_status"]) for row in hooks.deliveries()} == {
        ("succeeded", 1, 204)
    }
    assert {row["error"] for row in hooks.world.rows(tables.attempts)} == {None}
    assert hooks.world.rows(tables.webhook_leases) == []


def test_a_delivery_that_fails_is_dead_after_six_attempts_and_that_is_published(
    hooks: Hooks, clock: FixedClock
) -> None:
    hooks.endpoint()
    hooks.publish(times=3)
    receiver = Receiver(BROKEN)
    for _ in range(8):
        work_off(hooks, receiver)
        clock.advance(9 * HOUR)
    assert {(row["status"], row["attempt_count"]) for row in hooks.deliveries()} == {("dead", 6)}
    assert len(receiver.events) == 3 * 6
    assert hooks.event_types().count("webhook.delivery_dead") == 3


def test_a_result_that_cannot_be_recorded_keeps_no_other_from_being_recorded(
    hooks: Hooks, database: Database, clock: FixedClock, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.endpoint()
    broken = Hooks(make_world(database, clock))
    broken.endpoint()
    broken.publish()
    work_off(hooks, Receiver(BROKEN))
    broken.world.change(tables.deliveries, broken.delivery()["id"], attempt_count=5, next_attempt_at=clock())
    broken.world.change(tables.organizations, broken.world.org, timezone="Europe/Nowhere")
    hooks.publish(times=5)
    with caplog.at_level(logging.ERROR):
        assert work_off(hooks, Receiver(BROKEN)) == 6
    assert [row["attempt_count"] for row in hooks.deliveries()] == [1] * 5
    assert "cannot be recorded" in caplog.text
