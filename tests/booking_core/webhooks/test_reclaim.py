"""A worker that died: its deliveries are claimed again, and a delivery that crashes every worker is parked."""

from collections.abc import Callable

import pytest
from support.databases import databases
from support.world.hooks import Hooks, queue_rows
from support.world.world import HOUR, FixedClock

from booking_core.db import tables
from booking_core.models.webhooks import AttemptError
from booking_core.webhooks import park

SECOND = 1_000_000


def test_a_lease_that_passed_is_queued_again_and_uses_up_no_attempt(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    lost = hooks.one(lease_s=30)
    clock.advance(30 * SECOND - 1)
    assert hooks.rescue() == 0
    clock.advance(1)
    assert hooks.rescue() == 1
    row = hooks.delivery()
    assert row == row | {
        "status": "queued",
        "attempt_count": 0,
        "next_attempt_at": clock(),
        "lease_token": None,
        "lease_until": None,
        "lost_leases": 1,
    }
    again = hooks.one()
    assert (again.event_id, again.number) == (lost.event_id, 2)
    assert again.attempt_id != lost.attempt_id
    assert hooks.row(endpoint)["consecutive_failures"] == 0
    first, second = hooks.attempts()
    assert (first["id"], first["number"], first["started_at"]) == (lost.attempt_id, 1, lost.at)
    for name in ("duration_ms", "response_status", "error"):
        assert (first[name], second[name]) == (None, None)


def test_the_third_lease_lost_in_a_row_counts_as_a_failed_attempt(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(consecutive_failures=50)
    clock.advance(100 * HOUR)
    hooks.publish()
    for _ in range(3):
        hooks.one(lease_s=30)
        clock.advance(30 * SECOND)
        assert hooks.rescue() == 1
    row = hooks.delivery()
    assert (row["status"], row["attempt_count"], row["lost_leases"]) == ("queued", 1, 0)
    assert (row["next_attempt_at"], row["last_error"]) == (clock() + 60 * SECOND, None)
    assert hooks.claim() == []
    # It is not the receiver's fault.
    state = hooks.row(endpoint)
    assert (state["status"], state["consecutive_failures"]) == ("enabled", 50)


def test_a_delivery_that_kills_every_worker_dies_alone(hooks: Hooks, clock: FixedClock) -> None:
    poisoned, sound = hooks.endpoint(), hooks.endpoint()
    hooks.publish()
    attempts = 0
    while due := hooks.next_due_at():
        clock.at = max(clock(), due)
        hooks.rescue()
        claimed = hooks.claim()
        hooks.succeed(*(delivery for delivery in claimed if delivery.endpoint_id == sound))
        attempts += any(delivery.endpoint_id == poisoned for delivery in claimed)
    assert attempts == 18
    assert [row["status"] for row in hooks.deliveries(sound)] == ["succeeded"]
    (row,) = hooks.deliveries(poisoned)
    assert (row["status"], row["failure_reason"], row["attempt_count"]) == ("dead", "attempts_exhausted", 6)
    assert hooks.event_types() == ["gift_card.redeemed", "webhook.delivery_dead"]


def test_a_recorded_attempt_ends_the_row_of_lost_ones(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=1)
    for _ in range(2):
        hooks.one(lease_s=30)
        clock.advance(30 * SECOND)
        hooks.rescue()
    hooks.fail(hooks.one())
    assert (hooks.delivery()["attempt_count"], hooks.delivery()["lost_leases"]) == (1, 0)


def test_a_lost_attempt_that_somebody_asked_for_is_asked_for_still(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    hooks.fail_until_dead()
    hooks.retry(endpoint, hooks.delivery()["id"])
    assert hooks.one(lease_s=30).trigger == "manual"
    clock.advance(30 * SECOND)
    hooks.rescue()
    assert hooks.one().trigger == "manual"


@pytest.mark.parametrize("status", ["failed", "succeeded"])
def test_what_came_to_its_end_meanwhile_stays_there(hooks: Hooks, clock: FixedClock, status: str) -> None:
    hooks.endpoint(events=1)
    queue_rows(hooks.world)
    hooks.one(lease_s=30)
    ended = {"status": status, "next_attempt_at": None, "completed_at": clock()}
    hooks.world.change(tables.deliveries, hooks.delivery()["id"], **ended)
    clock.advance(HOUR)
    assert hooks.rescue() == 1
    row = hooks.delivery()
    assert (row["status"], row["lease_token"], row["next_attempt_at"]) == (status, None, None)
    assert hooks.next_due_at() is None


def test_an_attempt_that_comes_back_before_anybody_reclaims_it_still_counts(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=1)
    late = hooks.one(lease_s=30)
    clock.advance(60 * SECOND)
    hooks.fail(late, error=AttemptError.TIMEOUT)
    assert hooks.rescue() == 0
    assert hooks.delivery()["attempt_count"] == 1


@pytest.mark.usefixtures("postgresql_only")
def test_a_delivery_that_another_transaction_holds_is_left_for_the_next_time(
    hooks: Hooks, queue_url: str, clock: FixedClock
) -> None:
    hooks.endpoint(events=2)
    queue_rows(hooks.world)
    hooks.claim(lease_s=30)
    clock.advance(HOUR)
    locked_id = hooks.deliveries()[0]["id"]
    with databases.rows_held(queue_url, "SELECT 1 FROM deliveries WHERE id = %s FOR UPDATE", locked_id):
        assert hooks.rescue() == 1
    assert hooks.rescue() == 1


def test_a_result_after_its_lease_is_written_into_the_attempt_alone(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=2)
    late, other = hooks.claim(lease_s=30)
    clock.advance(30 * SECOND)
    hooks.rescue()
    hooks.succeed(late, other)
    assert {attempt["response_status"] for attempt in hooks.attempts()} == {200}
    assert {(row["status"], row["attempt_count"]) for row in hooks.rows()} == {("queued", 0)}


def test_an_unrescuable_lease_is_postponed_and_counts_as_lost(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    claimed = hooks.one(lease_s=30)
    clock.advance(HOUR)
    hooks.database.write(lambda tx: park(tx, (hooks.world.org, endpoint, claimed.delivery_id)))
    row = hooks.delivery()
    assert (row["lease_until"], row["lost_leases"]) == (clock() + 600 * SECOND, 3)
    assert hooks.rescue() == 0


def test_leases_of_every_organization_are_reclaimed_together(
    hooks: Hooks, new_hooks: Callable[..., Hooks], clock: FixedClock, counted: list[str]
) -> None:
    worlds = [hooks, new_hooks(), new_hooks()]
    for tenant in worlds:
        tenant.endpoint()
        tenant.publish(times=5)
    assert len(hooks.claim(lease_s=30)) == 15
    clock.advance(HOUR)
    counted.clear()
    assert hooks.rescue() == 15
    assert len(counted) == 5


def test_without_a_lost_lease_it_is_one_statement(hooks: Hooks, counted: list[str]) -> None:
    hooks.endpoint(events=1)
    hooks.claim()
    counted.clear()
    assert hooks.rescue() == 0
    assert len(counted) == 1
