"""Events are numbered densely, rendered once, and bring a delivery for each endpoint that asked for them."""

import re
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from support.serving.threads import together
from support.world.hooks import Hooks, queue_rows
from support.world.world import World

from booking_core.base import tokens
from booking_core.base.errors import NotFound, Unavailable
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.events import Envelope, EventType
from booking_core.records import events
from booking_core.records.events import NewEvent

UUID_V8 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
CARD = b'{"id":"c","balance":{"amount_minor":1,"currency":"NOK"}}'


def stored(world: World) -> list[dict[str, Any]]:
    """Return the rows of the organization's events, in order."""
    return sorted(world.rows(tables.events), key=lambda row: row["sequence"])


def publish(world: World, *new_events: NewEvent) -> list[str]:
    return world.database.write(lambda tx: events.publish(tx, world.organization, new_events, at=world.clock()))


@pytest.fixture
def hooks(world: World) -> Hooks:
    return Hooks(world)


def redeemed(resource_id: str | None = None, **extra: Any) -> NewEvent:
    return NewEvent(EventType.GIFT_CARD_REDEEMED, resource_id or tokens.new_id(), CARD, extra)


# Numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_go_on_where_they_stood(world: World) -> None:
    def lock(numbers: int, sequences: int) -> tuple[int, int]:
        return world.database.write(lambda tx: events.lock_sequences(tx, {world.org: (numbers, sequences)}))[world.org]

    assert lock(1, 3) == (0, 0)
    assert lock(0, 0) == (1, 3)
    assert lock(2, 1) == (1, 3)
    assert lock(0, 0) == (3, 4)


def test_many_organizations_are_numbered_by_one_statement(
    world: World, new_world: Callable[..., World], statements: list[str]
) -> None:
    others = [new_world() for _ in range(3)]
    statements.clear()
    wanted = {each.org: (1, i) for i, each in enumerate([world, *others])}
    before = world.database.write(lambda tx: events.lock_sequences(tx, wanted))
    assert before == dict.fromkeys(wanted, (0, 0))
    assert len(statements) == 1


def test_batches_that_meet_in_several_organizations_never_deadlock(
    world: World, new_world: Callable[..., World]
) -> None:
    organizations = [world.org, *(new_world().org for _ in range(3))]

    def work(order: list[str]) -> None:
        for _ in range(15):
            with world.database.writing() as tx:  # without the second try that would settle a deadlock
                events.lock_sequences(tx, dict.fromkeys(order, (1, 1)))

    orders = [organizations, organizations[::-1], organizations[2:] + organizations[:2], organizations[1:3]]
    together(*(partial(work, order) for order in orders))
    last = world.database.write(lambda tx: events.lock_sequences(tx, dict.fromkeys(organizations, (0, 0))))
    assert sorted(last.values()) == [(45, 45), (45, 45), (60, 60), (60, 60)]


# Events ----------------------------------------------------------------------------------------------------------


def test_an_envelope_is_what_the_wire_calls_one(world: World) -> None:
    card, booking = tokens.new_id(), tokens.new_id()
    amount = {"amount_minor": 500, "currency": "NOK"}
    (event_id,) = publish(world, redeemed(card, redeemed_amount=amount, booking_id=booking))
    (row,) = stored(world)
    envelope = orjson.loads(row["body"])
    assert Envelope.model_validate(envelope).to_json() == envelope
    assert list(envelope) == ["id", "type", "created_at", "api_version", "sequence", "data"]
    assert envelope == {
        "id": event_id,
        "type": "gift_card.redeemed",
        "created_at": "2026-11-21T13:00:00+01:00",
        "api_version": "2026-09-09",
        "sequence": 1,
        "data": {"object": orjson.loads(CARD), "redeemed_amount": amount, "booking_id": booking},
    }
    assert f'"object":{CARD.decode()}' in row["body"]
    assert (row["id"], row["resource_type"], row["resource_id"]) == (event_id, "gift_card", card)
    assert row["created_at"] == world.clock()


def test_events_of_one_transaction_follow_each_other(world: World) -> None:
    first = publish(world, redeemed(), redeemed())
    second = publish(world, redeemed())
    assert [(row["sequence"], row["id"]) for row in stored(world)] == list(enumerate(first + second, 1))


def test_a_resource_sees_some_types_once_and_others_often(world: World) -> None:
    booking = tokens.new_id()
    moved = NewEvent(EventType.BOOKING_RESCHEDULED, booking, b"{}")
    created = NewEvent(EventType.BOOKING_CREATED, booking, b"{}")
    publish(world, created, moved, moved)
    with pytest.raises((sqlite3.IntegrityError, Unavailable)):
        publish(world, created)
    assert [row["occurrence"] for row in stored(world)] == [0, 2, 3]


def test_what_is_not_committed_uses_no_number(world: World) -> None:
    def fail(tx: Tx) -> None:
        events.lock_sequences(tx, {world.org: (1, 1)})
        raise NotFound

    with pytest.raises(NotFound):
        world.database.write(fail)
    publish(world, redeemed())
    assert [row["sequence"] for row in stored(world)] == [1]


def test_numbering_and_writing_are_all_that_an_event_costs(world: World, statements: list[str]) -> None:
    publish(world, *(redeemed() for _ in range(20)))
    assert len(statements) == 2


# Deliveries ------------------------------------------------------------------------------------------------------


def test_a_delivery_that_no_worker_has_claimed_is_due_at_its_event(hooks: Hooks) -> None:
    endpoint, now = hooks.endpoint(EventType.GIFT_CARD_REDEEMED, EventType.BOOKING_CREATED), hooks.world.clock()
    made = hooks.publish(tokens.new_id(), times=2)
    found = hooks.deliveries()
    assert [row["event_id"] for row in found] == made
    for sequence, row in enumerate(found, start=1):
        assert row == row | {
            "endpoint_id": endpoint,
            "event_type": "gift_card.redeemed",
            "event_sequence": sequence,
            "status": "queued",
            "failure_reason": None,
            "trigger": "event",
            "attempt_count": 0,
            "max_attempts": 6,
            "next_attempt_at": now,
            "completed_at": None,
            "created_at": now,
            "updated_at": now,
        }


def test_a_ping_reaches_no_subscriber(hooks: Hooks) -> None:
    hooks.endpoint(*(kind for kind in EventType if kind is not EventType.PING))
    publish(hooks.world, NewEvent(EventType.PING, None, b"{}"))
    assert hooks.deliveries() == []
    (row,) = stored(hooks.world)
    assert (row["resource_type"], row["resource_id"]) == ("webhook", None)


def test_deliveries_have_canonical_ids_before_they_have_rows(hooks: Hooks) -> None:
    for _ in range(3):
        hooks.endpoint(EventType.GIFT_CARD_REDEEMED)
    hooks.publish(times=100)
    made = hooks.deliveries()
    queue_rows(hooks.world)
    assert {row["id"] for row in hooks.rows()} == {row["id"] for row in made}
    assert len({row["id"] for row in made}) == 300
    assert all(UUID_V8.fullmatch(row["id"]) for row in made)
    # Events that were published together are close together in an index.
    assert all(row["id"][:13] == row["event_id"][:13] for row in made)
