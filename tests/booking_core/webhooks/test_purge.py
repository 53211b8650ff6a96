"""The log is kept for its time and no longer, and nothing that is still to be sent is ever removed. Of endpoints that
change at once ten are ten, and an event comes wholly before a change or wholly after it; the contract's tests check
the answers to clients."""

from collections.abc import Callable
from typing import Any

import pytest
from support.databases import databases
from support.serving.threads import together
from support.world.hooks import ISSUED, REDEEMED, Hooks, queue_rows
from support.world.world import DAY, HOUR, FixedClock

from booking_core import webhooks
from booking_core.base.errors import Conflict
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import SecretRotate, WebhookEndpointCreate


def purge(hooks: Hooks, *, before: int, limit: int = 1000) -> int:
    return hooks.database.write(lambda tx: webhooks.purge(tx, before=before, limit=limit))


def purge_endpoints(hooks: Hooks, *, before: int, limit: int = 1000) -> int:
    return hooks.database.write(lambda tx: webhooks.purge_endpoints(tx, before=before, limit=limit))


def sequences(hooks: Hooks) -> set[Any]:
    return {row["event_sequence"] for row in hooks.deliveries()}


def test_what_ended_before_is_removed_with_its_attempts(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(2):
        hooks.endpoint()
    hooks.publish()
    hooks.succeed(*hooks.claim())
    clock.advance(DAY)
    hooks.publish()
    hooks.succeed(*hooks.claim())
    assert len(hooks.attempts()) == 4
    assert purge(hooks, before=clock()) == 2
    assert sequences(hooks) == {2}
    assert len(hooks.attempts()) == 2


def test_a_delivery_stays_to_the_last_instant_of_its_retention(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=1)
    created_at = clock()
    clock.advance(HOUR)
    hooks.succeed(hooks.one())
    assert [purge(hooks, before=at) for at in (created_at + 1, clock(), clock() + 1)] == [0, 0, 1]


def test_what_is_queued_or_under_way_is_kept_however_old(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(events=3)
    hooks.claim(free=1)
    given_up = hooks.claim(free=1)[0]
    ended = {"status": "failed", "completed_at": clock(), "next_attempt_at": None}
    hooks.world.change(tables.deliveries, given_up.delivery_id, **ended)
    clock.advance(400 * DAY)
    assert purge(hooks, before=clock()) == 0
    hooks.succeed(given_up)
    clock.advance(1)
    assert purge(hooks, before=clock()) == 1
    assert len(hooks.deliveries()) == 2


def test_a_batch_is_no_larger_than_asked(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(2):
        hooks.endpoint()
    hooks.publish(times=5)
    hooks.succeed(*hooks.claim())
    sizes = list(iter(lambda: purge(hooks, before=clock() + 1, limit=4), 0))
    assert sizes == [4, 4, 2]


def test_two_that_purge_at_once_take_different_rows(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(3):
        hooks.endpoint()
    hooks.publish(times=40)
    queue_rows(hooks.world)
    hooks.succeed(*hooks.claim(free=200))

    def work() -> list[int]:
        return list(iter(lambda: purge(hooks, before=clock() + 1, limit=7), 0))

    removed = [size for sizes in together(work, work, work) for size in sizes]
    while size := purge(hooks, before=clock() + 1):
        removed.append(size)
    assert sum(removed) == 120
    assert hooks.deliveries() == []
    assert hooks.attempts() == []


def test_a_deleted_endpoint_goes_with_the_last_delivery_that_refers_to_it(hooks: Hooks, clock: FixedClock) -> None:
    endpoint, other = hooks.endpoint(), hooks.endpoint()
    hooks.publish()
    hooks.succeed(*hooks.claim())
    hooks.delete(endpoint)
    clock.advance(DAY)
    assert purge_endpoints(hooks, before=clock()) == 0
    purge(hooks, before=clock())
    assert purge_endpoints(hooks, before=clock()) == 1
    assert [row["id"] for row in hooks.world.rows(tables.webhook_endpoints)] == [other]
    assert {row["endpoint_id"] for row in hooks.world.rows(tables.webhook_subscriptions)} == {other}


def test_a_deleted_endpoint_is_kept_while_an_attempt_is_under_way(hooks: Hooks, clock: FixedClock) -> None:
    endpoint = hooks.endpoint(events=1)
    claimed = hooks.one()
    hooks.delete(endpoint)
    clock.advance(DAY)
    purge(hooks, before=clock())
    assert purge_endpoints(hooks, before=clock()) == 0
    hooks.succeed(claimed)
    clock.advance(1)
    purge(hooks, before=clock())
    assert purge_endpoints(hooks, before=clock()) == 1


def test_a_deleted_endpoint_has_the_retention_of_a_delivery(hooks: Hooks, clock: FixedClock) -> None:
    deleted = [hooks.endpoint() for _ in range(3)]
    for endpoint in deleted:
        hooks.delete(endpoint)
    assert purge_endpoints(hooks, before=clock()) == 0
    assert purge_endpoints(hooks, before=clock() + 1, limit=2) == 2
    assert purge_endpoints(hooks, before=clock() + 1, limit=2) == 1
    assert hooks.world.rows(tables.webhook_endpoints) == []


def test_an_endpoint_that_is_only_switched_off_is_never_removed(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint(status="disabled", disabled_at=clock(), disabled_reason="manual")
    clock.advance(400 * DAY)
    assert purge_endpoints(hooks, before=clock()) == 0


# Changes of endpoints ------------------------------------------------------------------------------------------------


CREATE = WebhookEndpointCreate(url="https://receiver.example/hook", event_types=[REDEEMED])
Act = Callable[[Hooks, str], None]


def create(hooks: Hooks) -> dict[str, Any]:
    caller = hooks.world.caller()
    return hooks.database.write(lambda tx: webhooks.create(tx, caller, CREATE, is_public=lambda _: True))


def test_twenty_at_once_with_nine_there_make_exactly_ten(hooks: Hooks) -> None:
    for _ in range(9):
        create(hooks)

    def work() -> str:
        try:
            create(hooks)
        except Conflict as refused:
            return str(refused.reason)
        return "created"

    outcomes = together(*[work] * 20)
    assert sorted(outcomes) == ["created", *["endpoint_limit_reached"] * 19]
    assert len(hooks.world.rows(tables.webhook_endpoints)) == 10


def unsubscribe(hooks: Hooks, endpoint: str) -> None:
    hooks.change(endpoint, event_types=[ISSUED])


@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize(
    ("act", "status"),
    [(Hooks.disable, "failed"), (Hooks.delete, None), (unsubscribe, "queued")],
    ids=["disabled", "deleted", "unsubscribed"],
)
def test_an_event_published_during_a_change_comes_before_it(hooks: Hooks, act: Act, status: str | None) -> None:
    endpoint = hooks.endpoint()
    hooks.commit_when_awaited(hooks.publish_in, lambda: act(hooks, endpoint))
    assert [row["status"] for row in hooks.deliveries(endpoint)] == ([] if status is None else [status])
    hooks.publish()
    assert len(hooks.deliveries(endpoint)) == {Hooks.disable: 2, Hooks.delete: 0, unsubscribe: 1}[act]
    assert len(hooks.claim()) == (1 if act is unsubscribe else 0)


@pytest.mark.usefixtures("postgresql_only")
def test_a_booking_does_not_wait_for_a_change(hooks: Hooks, queue_url: str) -> None:
    """Publishing an event refers to endpoints; a lock on one must not stop it."""
    endpoint = hooks.endpoint()
    with databases.rows_held(queue_url, "SELECT 1 FROM webhook_endpoints WHERE id = %s FOR NO KEY UPDATE", endpoint):
        hooks.publish()
    assert len(hooks.deliveries(endpoint)) == 1


@pytest.mark.usefixtures("postgresql_only")
def test_a_rotation_counts_the_secret_of_one_that_it_waited_for(hooks: Hooks) -> None:
    endpoint, caller, refused = hooks.endpoint(), hooks.world.caller(), []

    def rotate(tx: Tx) -> object:
        return webhooks.rotate_secret(tx, caller, endpoint, SecretRotate())

    def rotate_later() -> None:
        try:
            hooks.database.write(rotate)
        except Conflict as error:
            refused.append(str(error.reason))

    hooks.database.write(rotate)
    hooks.commit_when_awaited(rotate, rotate_later)
    assert refused == ["too_many_secrets"]
