"""Endpoints under concurrency: ten are ten, and an event comes wholly before a change or wholly after it. The
contract's tests check the answers to clients."""

from collections.abc import Callable
from typing import Any

import pytest
from support.databases import databases
from support.serving.threads import together
from support.world.hooks import ISSUED, REDEEMED, Hooks

from booking_core import webhooks
from booking_core.base.errors import Conflict
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import SecretRotate, WebhookEndpointCreate

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
