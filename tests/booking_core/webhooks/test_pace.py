"""The pace of deliveries to an endpoint with a limit: no second holds more, and no other endpoint waits for it."""

from itertools import pairwise

import pytest
from support.serving.threads import together
from support.world.hooks import Hooks, queue_rows
from support.world.world import FixedClock

from booking_core.db import tables
from booking_core.webhooks import claiming

SECOND = 1_000_000


def in_any_second(instants: list[int]) -> int:
    """Return the most instants that lie within one second, counted from each of them."""
    return max(sum(at <= other < at + SECOND for other in instants) for at in instants)


def instants_of_claims(hooks: Hooks, clock: FixedClock, *, until: int) -> list[int]:
    """Claim whenever something is due, in workers that change each time, and return the instants of the claims."""
    instants: list[int] = []
    while clock.at < until:
        claimed = hooks.claim()
        instants += [clock.at] * len(claimed)
        hooks.succeed(*claimed)
        due_at = hooks.next_due_at()
        if due_at is None:
            break
        clock.at = max(due_at, clock.at)
    return instants


def test_claims_of_any_limit_fill_each_second_without_excess() -> None:
    for limit in range(1, 1001):
        claims = -(-SECOND // claiming.pause(limit))
        assert claims * claiming.burst(limit) <= limit
        assert SECOND / claiming.pause(limit) * claiming.burst(limit) >= 0.85 * limit
        assert claims <= claiming.CLAIMS_PER_SECOND


@pytest.mark.parametrize("limit", [1, 15])
def test_no_second_holds_more_than_the_limit(hooks: Hooks, clock: FixedClock, limit: int) -> None:
    hooks.endpoint(events=3 * limit, max_per_second=limit)
    instants = instants_of_claims(hooks, clock, until=clock.at + 10 * SECOND)
    assert len(instants) == 3 * limit
    assert in_any_second(instants) <= limit


def test_retries_and_queued_rows_wait_like_first_attempts(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=2, max_per_second=1)
    queue_rows(hooks.world)
    hooks.publish()
    hooks.fail(hooks.one())
    assert hooks.claim() == []
    clock.advance(60 * SECOND)
    instants = instants_of_claims(hooks, clock, until=clock.at + 10 * SECOND)
    assert [later - earlier for earlier, later in pairwise(instants)] == [1_050_000] * 2


def test_an_endpoint_that_waits_takes_no_place_of_others(hooks: Hooks) -> None:
    limited, other = hooks.endpoint(max_per_second=1), hooks.endpoint()
    hooks.publish(times=20)
    first = hooks.claim(free=8)
    assert [delivery.endpoint_id for delivery in first].count(limited) == 1
    assert {delivery.endpoint_id for delivery in hooks.claim(free=8)} == {other}


def test_a_limit_that_is_removed_holds_nothing_back(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=30, max_per_second=1)
    hooks.succeed(hooks.one())
    hooks.world.change(tables.webhook_endpoints, endpoint, max_per_second=None)
    clock.advance(1_050_000)
    assert len(hooks.claim()) == 29


def test_workers_at_one_instant_take_one_burst(hooks: Hooks) -> None:
    hooks.endpoint(events=20, max_per_second=30)
    queue_rows(hooks.world)
    hooks.publish(times=20)

    def work() -> int:
        return sum(len(hooks.claim()) for _ in range(5))

    counts = together(*[work] * 4)
    assert sum(counts) == 3
