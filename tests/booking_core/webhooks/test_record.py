"""The effects of an attempt on its delivery and its endpoint: retried by the table, dead after six, disabled after 72
hours, and settled once among concurrent workers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from support.serving.threads import together
from support.world.hooks import ISSUED, REDEEMED, Hooks, queue_rows
from support.world.world import HOUR, FixedClock

from booking_core import webhooks
from booking_core.base.errors import Conflict
from booking_core.db import tables
from booking_core.models.events import EventType
from booking_core.models.webhooks import AttemptError

SECOND, MINUTE = 1_000_000, 60_000_000
DEAD, OFF = EventType.WEBHOOK_DELIVERY_DEAD, EventType.WEBHOOK_AUTO_DISABLED


# One attempt -----------------------------------------------------------------------------------------------------


def test_a_success_ends_the_delivery(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1, consecutive_failures=4, warned_hours=24, last_timed_out=True)
    claimed = hooks.one()
    clock.advance(SECOND)
    hooks.record(hooks.result(claimed, status=204, duration_ms=84, response_excerpt="fine"))
    now, row, (attempt,), state = clock(), hooks.delivery(), hooks.attempts(), hooks.row(endpoint)
    assert row == row | {
        "status": "succeeded",
        "failure_reason": None,
        "attempt_count": 1,
        "next_attempt_at": None,
        "completed_at": now,
        "last_response_status": 204,
        "last_error": None,
        "lease_token": None,
        "lease_until": None,
        "updated_at": now,
    }
    logged = {"started_at": now, "duration_ms": 84, "response_status": 204, "response_excerpt": "fine", "error": None}
    assert attempt == attempt | logged
    assert (state["consecutive_failures"], state["warned_hours"], bool(state["last_timed_out"])) == (0, 0, False)
    assert (state["last_success_at"], state["last_failure_at"]) == (now, None)
    assert hooks.world.rows(tables.effects) == []


@pytest.mark.parametrize("error", list(AttemptError))
def test_a_failure_queues_the_next_attempt(hooks: Hooks, clock: FixedClock, error: AttemptError) -> None:
    endpoint = hooks.endpoint(events=1)
    claimed = hooks.one()
    clock.advance(10 * SECOND)  # the wait counts from the failure
    hooks.fail(claimed, error=error)
    row, (attempt,), state = hooks.delivery(), hooks.attempts(), hooks.row(endpoint)
    assert (row["status"], row["attempt_count"], row["next_attempt_at"]) == ("queued", 1, clock() + MINUTE)
    assert (row["last_error"], row["lease_token"], row["completed_at"]) == (error.value, None, None)
    assert attempt["error"] == error.value
    assert (state["consecutive_failures"], state["last_failure_at"]) == (1, clock())
    assert bool(state["last_timed_out"]) == (error is AttemptError.TIMEOUT)


@pytest.mark.parametrize(
    ("options", "waits"),
    [({}, (60, 300, 1800, 7200, 28800)), ({"retry_delays_s": (1, 2, 3, 4, 5)}, (1, 2, 3, 4, 5))],
    ids=["documented", "other"],
)
def test_waits_are_a_setting(hooks: Hooks, clock: FixedClock, options: dict[str, Any], waits: tuple[int, ...]) -> None:
    hooks.endpoint(events=1)
    for wait in waits:
        hooks.fail(hooks.one(), **options)
        assert hooks.delivery()["next_attempt_at"] == clock() + wait * SECOND
        clock.advance(wait * SECOND)


def test_what_failed_together_does_not_come_back_together(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=3)
    jitter = iter((0.0, 0.5, 1.0))
    hooks.fail(*hooks.claim(), jitter=lambda: next(jitter))
    waits = sorted(row["next_attempt_at"] - clock() for row in hooks.deliveries())
    assert waits == [60 * SECOND, 60 * SECOND + 1_500_000, 63 * SECOND]


# Telling ---------------------------------------------------------------------------------------------------------


def test_a_dead_delivery_is_announced_to_the_other_endpoints(hooks: Hooks) -> None:
    failing, watching = hooks.endpoint(REDEEMED, DEAD), hooks.endpoint(DEAD)
    (event,) = hooks.publish()
    dead = hooks.delivery()
    hooks.fail_until_dead()
    (published,) = (row for row in hooks.world.rows(tables.events) if row["type"] == DEAD)
    envelope = orjson.loads(published["body"])
    assert (published["type"], published["resource_type"], published["resource_id"]) == (DEAD, "webhook", failing)
    assert envelope["data"]["object"]["id"] == failing
    assert envelope["data"]["object"]["consecutive_failures"] == 6
    identifiers = {"delivery_id": dead["id"], "event_id": event, "event_type": "gift_card.redeemed"}
    assert envelope["data"] == {"object": envelope["data"]["object"], **identifiers}
    assert [row["endpoint_id"] for row in hooks.deliveries() if row["event_type"] == DEAD] == [watching]


def test_events_about_webhooks_are_never_about_each_other(hooks: Hooks) -> None:
    hooks.endpoint(REDEEMED)
    hooks.endpoint(DEAD)
    hooks.publish()
    for _ in range(2):  # the first dies, then the word of its death
        hooks.fail_until_dead()
    assert [row["status"] for row in hooks.deliveries()] == ["dead", "dead"]
    failing = "webhook.failing"  # once for each endpoint
    assert hooks.event_types() == ["gift_card.redeemed", failing, "webhook.delivery_dead", failing]


# Switching off ---------------------------------------------------------------------------------------------------


def failing(hooks: Hooks, failures: int, hours: float, **columns: Any) -> str:
    """Insert an endpoint just before its next failure."""
    endpoint = hooks.endpoint(consecutive_failures=failures - 1, **columns)
    hooks.world.clock.advance(int(hours * HOUR))
    hooks.publish()
    return endpoint


@pytest.mark.parametrize(("seconds", "status"), [(2, "enabled"), (3, "auto_disabled")])
def test_the_time_until_an_endpoint_is_switched_off_is_a_setting(hooks: Hooks, seconds: int, status: str) -> None:
    endpoint = failing(hooks, 6, seconds / 3600)
    hooks.fail(hooks.one(), disable_after_s=3)
    assert hooks.row(endpoint)["status"] == status


def test_an_endpoint_that_is_switched_off_gives_up_what_is_queued(hooks: Hooks, clock: FixedClock) -> None:
    endpoint, other = failing(hooks, 6, 72, last_success_at=None), hooks.endpoint()
    hooks.publish(times=4)
    first = next(delivery for delivery in hooks.claim() if delivery.endpoint_id == endpoint)
    hooks.fail(first)
    now, row = clock(), hooks.row(endpoint)
    assert row == row | {
        "status": "auto_disabled",
        "disabled_at": now,
        "disabled_reason": "delivery_failures",
        "consecutive_failures": 6,
        "updated_at": now,
    }
    assert len(hooks.deliveries(endpoint)) == 5
    for delivery in hooks.deliveries(endpoint):
        assert (delivery["status"], delivery["failure_reason"]) == ("failed", "endpoint_disabled")
        assert (delivery["next_attempt_at"], delivery["completed_at"]) == (None, now)
    assert {delivery["status"] for delivery in hooks.deliveries(other)} == {"queued"}
    hooks.publish()
    assert [row["failure_reason"] for row in hooks.deliveries(endpoint)] == ["endpoint_disabled"] * 6
    clock.advance(100 * HOUR)
    assert {delivery.endpoint_id for delivery in hooks.claim()} == {other}


def test_the_last_attempt_leaves_a_delivery_dead_and_not_failed(hooks: Hooks) -> None:
    failing(hooks, 6, 72)
    queue_rows(hooks.world)
    hooks.world.change(tables.deliveries, hooks.delivery()["id"], attempt_count=5)
    hooks.fail(hooks.one())
    assert (hooks.delivery()["status"], hooks.delivery()["failure_reason"]) == ("dead", "attempts_exhausted")
    assert hooks.event_types()[1:] == ["webhook.delivery_dead", "webhook.auto_disabled"]


def test_the_switching_off_is_announced_to_the_others_and_mailed_to_staff(hooks: Hooks) -> None:
    endpoint, watching = failing(hooks, 6, 72), hooks.endpoint(OFF)
    hooks.fail(hooks.one())
    event = orjson.loads(hooks.world.rows(tables.events)[-1]["body"])
    assert (event["type"], event["data"]["object"]["status"]) == ("webhook.auto_disabled", "auto_disabled")
    assert [row["endpoint_id"] for row in hooks.deliveries() if row["event_type"] == OFF] == [watching]
    (effect,) = hooks.world.rows(tables.effects)
    assert (effect["kind"], effect["status"]) == ("staff_webhook_disabled_mail", "queued")
    assert effect["subject_id"] == endpoint
    since = hooks.row(endpoint)["created_at"]
    payload = {"url": "https://receiver.example/hook", "hours": 72, "failures": 6, "since": since}
    assert orjson.loads(effect["payload"]) == payload


def test_an_hour_of_failures_is_announced_once_until_a_success(hooks: Hooks) -> None:
    endpoint, watching = failing(hooks, 7, 0.9), hooks.endpoint(EventType.WEBHOOK_FAILING)
    hooks.fail(hooks.one())
    since, counts = hooks.row(endpoint)["created_at"], []
    for minutes in (7, 60, 60):
        hooks.world.clock.advance(minutes * MINUTE)
        hooks.publish()
        hooks.fail(*(delivery for delivery in hooks.claim(free=9) if delivery.endpoint_id == endpoint))
        counts.append(hooks.event_types().count("webhook.failing"))
    assert counts == [1, 1, 1]
    (event,) = (
        orjson.loads(row["body"]) for row in hooks.world.rows(tables.events) if row["type"] == "webhook.failing"
    )
    assert event["data"]["failing_since"] == hooks.world.organization.zone.iso(since)
    assert event["data"]["object"]["failing_since"] == event["data"]["failing_since"]
    assert (event["data"]["object"]["id"], event["data"]["object"]["status"]) == (endpoint, "enabled")
    assert hooks.world.rows(tables.effects) == [], "staff is mailed after a day"
    assert [row["endpoint_id"] for row in hooks.deliveries() if row["event_type"] == "webhook.failing"] == [watching]
    hooks.publish()
    hooks.succeed(*(delivery for delivery in hooks.claim(free=9) if delivery.endpoint_id == endpoint))
    assert hooks.row(endpoint)["warned_hours"] == 0
    assert hooks.world.examine() == []


def test_staff_is_warned_at_24_and_48_hours_once_each(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(consecutive_failures=10)
    mails = []
    for hours in range(20, 75, 2):
        clock.at = hooks.row(endpoint)["created_at"] + hours * HOUR
        hooks.publish()
        if hooks.row(endpoint)["status"] == "enabled":
            hooks.fail(*hooks.claim(free=1))
        mails.append((hours, len(hooks.world.rows(tables.effects))))
    steps = [hours for (hours, count), (_, before) in zip(mails[1:], mails, strict=False) if count > before]
    assert steps == [24, 48, 72]
    kinds = sorted(row["kind"] for row in hooks.world.rows(tables.effects))
    assert kinds == ["staff_webhook_disabled_mail", "staff_webhook_failing_mail", "staff_webhook_failing_mail"]


def test_an_organization_that_wants_no_mails_gets_none(new_hooks: Callable[..., Hooks]) -> None:
    hooks = new_hooks(notify_staff=False)
    endpoint = failing(hooks, 6, 72)
    hooks.fail(hooks.one())
    assert hooks.row(endpoint)["status"] == "auto_disabled"
    assert hooks.world.rows(tables.effects) == []


def test_two_that_are_switched_off_together_leave_each_other_nothing_queued(hooks: Hooks) -> None:
    both = [hooks.endpoint(REDEEMED, OFF, consecutive_failures=9) for _ in range(2)]
    hooks.world.clock.advance(72 * HOUR)
    hooks.publish()
    hooks.fail(*hooks.claim())
    assert [hooks.row(endpoint)["status"] for endpoint in both] == ["auto_disabled"] * 2
    assert hooks.event_types() == ["gift_card.redeemed", "webhook.auto_disabled", "webhook.auto_disabled"]
    assert {(row["status"], row["failure_reason"]) for row in hooks.deliveries()} == {("failed", "endpoint_disabled")}
    assert len(hooks.deliveries()) == 4


@pytest.mark.usefixtures("postgresql_only")
def test_an_event_that_is_published_meanwhile_leaves_nothing_queued(hooks: Hooks) -> None:
    endpoint = failing(hooks, 6, 72)
    claimed = hooks.one()
    hooks.commit_when_awaited(hooks.publish_in, lambda: hooks.fail(claimed))
    assert hooks.row(endpoint)["status"] == "auto_disabled"
    assert [row["status"] for row in hooks.deliveries(endpoint)] == ["failed", "failed"]


# Switched off by hand, or gone, during an attempt -------------------------------------------------------------------


def test_a_success_is_recorded_though_the_endpoint_was_switched_off_meanwhile(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=2, consecutive_failures=3)
    claimed = hooks.one(free=1)
    hooks.disable(endpoint)
    assert [row["failure_reason"] for row in hooks.deliveries()] == ["endpoint_disabled"] * 2
    hooks.succeed(claimed)
    row = hooks.world.row(tables.deliveries, claimed.delivery_id)
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("succeeded", None, 1)
    (other,) = [delivery for delivery in hooks.deliveries() if delivery["id"] != claimed.delivery_id]
    assert (other["status"], other["failure_reason"]) == ("failed", "endpoint_disabled")
    state = hooks.row(endpoint)
    assert (state["status"], state["consecutive_failures"]) == ("disabled", 0)


def test_what_comes_of_an_attempt_is_recorded_though_its_endpoint_is_gone(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=2, consecutive_failures=50)
    one, two = hooks.claim()
    hooks.delete(endpoint)
    clock.advance(100 * HOUR)
    hooks.record(hooks.result(one), hooks.result(two, AttemptError.TIMEOUT))
    rows = {row["id"]: (row["status"], row["failure_reason"]) for row in hooks.deliveries()}
    assert rows == {one.delivery_id: ("succeeded", None), two.delivery_id: ("failed", "endpoint_deleted")}
    assert hooks.event_types() == ["gift_card.redeemed"] * 2


def test_switched_on_again_it_starts_anew_and_may_be_switched_off_again(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = failing(hooks, 6, 72)
    hooks.fail(hooks.one())
    clock.advance(HOUR)
    hooks.enable(endpoint)
    state = hooks.row(endpoint)
    assert (state["status"], state["consecutive_failures"], state["warned_hours"]) == ("enabled", 0, 0)
    assert (state["enabled_at"], state["disabled_at"], state["disabled_reason"]) == (clock(), None, None)
    assert hooks.delivery(hooks.deliveries(endpoint)[0]["id"])["status"] == "failed"
    clock.advance(71 * HOUR)
    hooks.world.change(tables.webhook_endpoints, endpoint, consecutive_failures=60)
    hooks.publish()
    hooks.fail(hooks.one())
    assert hooks.row(endpoint)["status"] == "enabled"
    clock.advance(HOUR)
    hooks.fail(hooks.one())
    assert hooks.row(endpoint)["status"] == "auto_disabled"
    kinds = [row["kind"] for row in hooks.world.rows(tables.effects)]
    assert kinds.count("staff_webhook_disabled_mail") == 2


# Tests -----------------------------------------------------------------------------------------------------------


def test_tests_of_an_endpoint_that_is_off_count_for_nothing(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(status="disabled", consecutive_failures=5, last_success_at=None)
    clock.advance(100 * HOUR)
    before = hooks.row(endpoint)
    for _ in range(10):
        hooks.ping(endpoint)
    hooks.fail(*hooks.claim())
    assert {(row["status"], row["failure_reason"]) for row in hooks.deliveries()} == {("dead", "attempts_exhausted")}
    hooks.ping(endpoint)
    hooks.succeed(hooks.one())
    assert hooks.row(endpoint) == before
    assert set(hooks.event_types()) == {"ping"}
    assert hooks.world.rows(tables.effects) == []


def test_tests_of_an_enabled_endpoint_count_like_any_delivery(hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    hooks.ping(endpoint)
    hooks.fail(hooks.one())
    assert hooks.row(endpoint)["consecutive_failures"] == 1
    assert (hooks.delivery()["status"], hooks.delivery()["max_attempts"]) == ("queued", 6)


# Retries that somebody asked for ---------------------------------------------------------------------------------


def test_a_retry_is_one_more_attempt(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    hooks.fail_until_dead()
    dead = hooks.delivery()
    delivery = hooks.retry(endpoint, dead["id"])
    assert (delivery["status"], delivery["failure_reason"], delivery["max_attempts"]) == ("queued", None, 7)
    claimed = hooks.one()
    assert (claimed.trigger, claimed.number) == ("manual", 7)
    hooks.fail(claimed)
    row = hooks.delivery()
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("dead", "attempts_exhausted", 7)
    hooks.retry(endpoint, hooks.attempts()[0]["id"])
    hooks.succeed(hooks.one())
    row = hooks.delivery()
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("succeeded", None, 8)
    assert [attempt["trigger"] for attempt in hooks.attempts()] == ["scheduled"] * 6 + ["manual"] * 2
    assert hooks.event_types().count("webhook.delivery_dead") == 2


def test_of_two_that_ask_for_a_retry_at_once_one_is_refused(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    hooks.fail_until_dead()
    dead, refused = hooks.delivery()["id"], []

    def ask() -> None:
        try:
            hooks.retry(endpoint, dead)
        except Conflict as conflict:
            refused.append(conflict)

    together(ask, ask)
    assert len(refused) == 1
    row = hooks.delivery()
    assert (row["status"], row["max_attempts"]) == ("queued", 7)


# Several workers -------------------------------------------------------------------------------------------------


def test_a_worker_that_was_stopped_changes_nothing_that_another_has_settled(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    stopped = hooks.one(lease_s=30)
    clock.advance(60 * SECOND)
    assert hooks.rescue() == 1
    again = hooks.one()
    hooks.succeed(again)
    settled, state = hooks.delivery(), hooks.row(endpoint)
    hooks.fail(stopped, error=AttemptError.TIMEOUT)
    assert (hooks.delivery(), hooks.row(endpoint)) == (settled, state)
    first, second = hooks.attempts()
    assert (first["id"], first["error"]) == (stopped.attempt_id, "timeout")
    assert (second["id"], second["error"]) == (again.attempt_id, None)


def test_an_attempt_settled_twice_counts_once(hooks: Hooks) -> None:
    endpoint = hooks.endpoint(events=1)
    claimed = hooks.one()
    for _ in range(2):
        hooks.fail(claimed)
    assert hooks.row(endpoint)["consecutive_failures"] == 1
    assert hooks.delivery()["attempt_count"] == 1


@pytest.fixture
def no_second_try(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows a deadlock that would otherwise be settled by trying again."""
    monkeypatch.setattr(hooks.database.driver, "is_retryable", lambda error: False)


@pytest.mark.usefixtures("no_second_try")
def test_workers_that_settle_at_once_lose_no_failure(hooks: Hooks, new_hooks: Callable[..., Hooks]) -> None:
    other = new_hooks()
    endpoints = [(tenant, tenant.endpoint()) for tenant in (hooks, other, hooks, other)]
    for tenant in (hooks, other):
        tenant.publish(times=40)
        queue_rows(tenant.world)
    claimed = hooks.claim(free=1000)
    assert len(claimed) == 160

    def work(number: int) -> None:
        for start in range(number, 160, 16):
            hooks.fail(*claimed[start : start + 16 : 4])

    together(*(partial(work, number) for number in range(4)))
    assert [tenant.row(endpoint)["consecutive_failures"] for tenant, endpoint in endpoints] == [40] * 4


@pytest.mark.usefixtures("no_second_try")
def test_switching_off_and_settling_at_once_never_deadlock(hooks: Hooks) -> None:
    endpoints = [hooks.endpoint() for _ in range(2)]
    hooks.publish(times=60)

    def settle() -> None:
        for _ in range(12):
            hooks.fail(*hooks.claim(free=5), error=AttemptError.TIMEOUT)

    def switch() -> None:
        for turn in range(12):
            (hooks.disable if turn % 2 == 0 else hooks.enable)(endpoints[turn % 2])

    together(settle, switch, settle, hooks.rescue)


# Costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 50])
def test_settling_costs_the_same_statements_for_any_number(hooks: Hooks, counted: list[str], attempts: int) -> None:
    for _ in range(2):
        hooks.endpoint()
    hooks.publish(times=attempts)
    queue_rows(hooks.world)
    claimed = hooks.claim(free=200)
    assert len(claimed) == 2 * attempts
    counted.clear()
    hooks.record(*(hooks.result(attempt, AttemptError.TIMEOUT if i % 2 else None) for i, attempt in enumerate(claimed)))
    # Three read endpoints, deliveries and organizations. SQLite changes one table with a statement.
    assert len(counted) == (6 if hooks.database.is_sqlite else 4)


@pytest.mark.parametrize("waiting", [4, 30])
def test_switching_off_costs_the_same_whatever_waits(
    hooks: Hooks, new_hooks: Callable[..., Hooks], counted: list[str], waiting: int
) -> None:
    worlds = [hooks, new_hooks(), new_hooks()]
    for tenant in worlds:
        for _ in range(3):
            tenant.endpoint(REDEEMED, OFF, DEAD, consecutive_failures=5)
        tenant.endpoint(ISSUED, OFF, DEAD)
    hooks.world.clock.advance(80 * HOUR)
    for tenant in worlds:
        tenant.publish(times=waiting)
        queue_rows(tenant.world)
        tenant.world.change(tables.deliveries, tenant.deliveries()[0]["id"], attempt_count=5)
    claimed = hooks.claim(free=36)
    counted.clear()
    hooks.fail(*claimed)
    # Six for each of nine endpoints: its locked cursor, the periods of its subscriptions, and its queued rows.
    assert len(counted) == 9 * 6 + (9 if hooks.database.is_sqlite else 6)
    for tenant in worlds:
        assert tenant.event_types()[waiting:] == ["webhook.delivery_dead", *["webhook.auto_disabled"] * 3]
        assert {row["status"] for row in tenant.deliveries() if row["event_type"] == REDEEMED} == {"failed", "dead"}


def test_nothing_to_settle_costs_nothing(hooks: Hooks, counted: list[str]) -> None:
    hooks.record()
    assert counted == []


def test_a_dead_delivery_is_logged_once_by_its_ids(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    endpoint = hooks.endpoint(events=1, url="https://user:secret@receiver.example/hook")
    with caplog.at_level("WARNING", "booking.webhooks"):
        hooks.fail_until_dead()
    (delivery,) = hooks.rows()
    (line,) = [vars(record) for record in caplog.records if hasattr(record, "delivery_id")]
    assert (line["delivery_id"], line["endpoint_id"], line["attempts"]) == (delivery["id"], endpoint, 6)
    assert (line["organization_id"], line["error"], line["response_status"]) == (hooks.world.org, "http_status", 500)
    assert "secret" not in caplog.text


# Counts ----------------------------------------------------------------------------------------------------------


def test_counts_by_endpoint_and_state_include_deliveries_without_rows(hooks: Hooks, clock: FixedClock) -> None:
    def counts(since: int) -> dict[str, dict[str, int]]:
        caller = hooks.world.caller()
        rows = hooks.database.read(lambda tx: webhooks.count_deliveries(tx, caller, since=since))
        return {row["id"]: {state: number for state, number in row["deliveries"].items() if number} for row in rows}

    dead, disabled = hooks.endpoint(REDEEMED), hooks.endpoint(ISSUED)
    assert counts(0) == {dead: {}, disabled: {}}
    hooks.publish()
    hooks.fail_until_dead()
    clock.advance(HOUR)
    later = clock()
    hooks.publish(times=4)
    succeeding, failing, *_ = hooks.claim()
    hooks.succeed(succeeding)
    hooks.fail(failing)
    hooks.publish(kind=ISSUED, times=2)
    hooks.disable(disabled)
    hooks.publish(kind=ISSUED)
    hooks.publish(times=5)
    both = {"succeeded": 1, "retrying": 1, "queued": 7}
    assert counts(0) == {dead: both | {"dead": 1}, disabled: {"failed": 3}}
    assert counts(later) == {dead: both, disabled: {"failed": 3}}
    hooks.disable(dead)
    assert counts(later)[dead] == {"succeeded": 1, "failed": 8}
