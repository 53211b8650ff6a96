"""Old events are deleted, in order; events that an endpoint waits for stay."""

from support.world.hooks import Hooks, queue_rows
from support.world.world import DAY, World

from booking_core.base import tokens
from booking_core.db import tables
from booking_core.models.events import EventType
from booking_core.records import events


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
