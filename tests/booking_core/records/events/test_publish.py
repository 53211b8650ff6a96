"""Events are numbered densely, rendered once, hold the changes of a resource, and are deleted after their retention."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest
from support.serving.threads import together
from support.world.hooks import Hooks, queue_rows
from support.world.operations import Operations
from support.world.world import DAY, World

from booking_core import bookings
from booking_core.base import tokens
from booking_core.base.errors import NotFound, Unavailable
from booking_core.customers.erasures.rules import event_body
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.events import Envelope, EventType
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.records.events.publish import former_values

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
    counts = {organization.org: (1, i) for i, organization in enumerate([world, *others])}
    before = world.database.write(lambda tx: events.lock_sequences(tx, counts))
    assert before == dict.fromkeys(counts, (0, 0))
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
    event_ids = hooks.publish(tokens.new_id(), times=2)
    deliveries = hooks.deliveries()
    assert [row["event_id"] for row in deliveries] == event_ids
    for sequence, row in enumerate(deliveries, start=1):
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


# Changes -------------------------------------------------------------------------------------------------------------


def test_former_values_are_whole_fields_without_the_instant_of_the_change() -> None:
    before = {"id": "b", "departure": {"id": "d", "starts_at": "t"}, "note": None, "updated_at": "x", "manage_url": "u"}
    after = before | {"departure": {"id": "e", "starts_at": "t"}, "updated_at": "y", "manage_url": None, "added": 1}
    assert former_values(before, after) == {"departure": {"id": "d", "starts_at": "t"}, "added": None}
    assert former_values(after, after) == {}


def test_a_check_in_and_its_undoing_are_published_once_each(ops: Operations) -> None:
    booking_id = ops.book(ops.world.departure(ops.world.experience()))["id"]
    for undo in (False, False, True, True):
        ops.act(lambda tx, actor, undo=undo: bookings.check_in(tx, actor, booking_id, undo=undo))
    updates = [event["data"] for event in ops.events() if event["type"] == "booking.updated"]
    checked_in_at = updates[0]["object"]["checked_in_at"]
    assert [update["changes"] for update in updates] == [{"checked_in_at": None}, {"checked_in_at": checked_in_at}]
    assert updates[1]["object"]["checked_in_at"] is None
    assert ops.world.examine() == []


def test_an_erasure_empties_former_values_and_keeps_the_names_of_the_fields() -> None:
    data = {"object": {"name": "Ada", "id": "c"}, "changes": {"name": "Augusta", "tags": []}}
    erased = event_body(orjson.dumps({"data": data}).decode(), {"name": "Anonymized"})
    assert erased is not None
    assert orjson.loads(erased)["data"] == {
        "object": {"name": "Anonymized", "id": "c"},
        "changes": {"name": None, "tags": []},
    }
    assert event_body(erased, {"name": "Anonymized"}) is None


# Purge ---------------------------------------------------------------------------------------------------------------


def insert_event(world: World, sequence: int, created_at: int) -> None:
    world.insert(
        tables.events,
        sequence=sequence,
        type=EventType.CUSTOMER_UPDATED,
        resource_type="customer",
        resource_id=tokens.new_id(),
        occurrence=sequence,
        body="{}",
        created_at=created_at,
    )


def sequences(world: World) -> list[int]:
    return sorted(row["sequence"] for row in world.rows(tables.events))


def purge(world: World, limit: int = 100) -> int:
    before = world.clock() - 90 * DAY
    return world.database.write(lambda tx: events.purge(tx, world.org, before=before, limit=limit))


def test_events_older_than_the_bound_go_from_the_oldest_on(world: World) -> None:
    for sequence in range(1, 6):
        insert_event(world, sequence, world.clock() - (100 - sequence) * DAY)
    insert_event(world, 6, world.clock() - 90 * DAY)
    assert purge(world, limit=2) == 2
    assert sequences(world) == [3, 4, 5, 6]
    assert purge(world) == 3
    assert sequences(world) == [6]
    assert purge(world) == 0


def test_a_recent_event_keeps_older_events_with_later_sequences(world: World) -> None:
    """Requests that run beside each other are numbered when they end, and dated when they began."""
    bound = world.clock() - 90 * DAY
    for sequence, created_at in enumerate((bound - 2, bound, bound - 1, bound), start=1):
        insert_event(world, sequence, created_at)
    assert purge(world) == 1
    assert sequences(world) == [2, 3, 4]
    assert purge(world) == 0
    world.clock.advance(1)
    assert purge(world) == 3


def test_an_event_that_a_wrong_clock_dated_ahead_keeps_no_other(world: World) -> None:
    for sequence, days in enumerate((100, -300, 100), start=1):
        insert_event(world, sequence, world.clock() - days * DAY)
    assert purge(world) == 2
    assert sequences(world) == [2]


def test_a_waiting_delivery_keeps_its_event_and_all_later_ones(world: World) -> None:
    hooks, ended = Hooks(world), {"status": "succeeded", "next_attempt_at": None, "completed_at": world.clock()}
    world.clock.advance(-95 * DAY)
    hooks.endpoint(events=4)
    queue_rows(world)
    world.clock.advance(95 * DAY)
    for row in hooks.rows():
        if row["event_sequence"] != 2:
            world.change(tables.deliveries, row["id"], **ended)
    assert purge(world) == 1
    assert sequences(world) == [2, 3, 4]
