"""What is past its retention is forgotten, in batches with pauses, and nothing before."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.creating import create, created
from support.world import DAY, SECRET, FixedClock, World, make_world

from booking_core.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.settings import Settings
from booking_server.purging import Purging

KEPT = {"delivery_retention_days": 30, "event_retention_days": 90, "idempotency_retention_days": 30}


@pytest.fixture
def world(fresh_database_url: str, clock: FixedClock) -> Iterator[World]:
    database = Database(fresh_database_url, clock=clock)
    yield make_world(database, clock)
    database.close()


def purging(world: World, **options: Any) -> Purging:
    settings = Settings(database_url=str(world.database.url), secret_key=SECRET, **KEPT)
    return Purging(settings, world.database, **options)


def purge(chore: Purging) -> int:
    return asyncio.run(chore.run_once())


def book(world: World, count: int = 1) -> None:
    departure = world.departure(world.experience())
    created(world.database, [create(world, departure, f"{departure}-{number}") for number in range(count)])


def subscribe(world: World) -> str:
    at = {"enabled_at": world.clock(), "created_at": world.clock(), "updated_at": world.clock()}
    endpoint = world.insert(tables.webhook_endpoints, url="https://hooks.example/", status="enabled", **at)
    world.insert(tables.webhook_subscriptions, endpoint_id=endpoint, event_type="booking.created")
    return endpoint


def settle(world: World) -> None:
    for row in world.rows(tables.deliveries):
        done = {"status": "succeeded", "completed_at": world.clock(), "next_attempt_at": None}
        world.change(tables.deliveries, row["id"], **done)


def kept(world: World) -> dict[str, int]:
    names = (tables.deliveries, tables.idempotency, tables.events, tables.webhook_endpoints, tables.bookings)
    return {table.name: len(world.rows(table)) for table in names}


def test_each_kind_goes_when_its_time_is_over(world: World) -> None:
    endpoint = subscribe(world)
    book(world)
    settle(world)
    world.change(tables.webhook_endpoints, endpoint, deleted_at=world.clock())
    chore = purging(world)
    before = {"deliveries": 1, "idempotency": 1, "events": 3, "webhook_endpoints": 1, "bookings": 1}
    world.clock.advance(30 * DAY)
    assert (purge(chore), kept(world)) == (0, before)
    world.clock.advance(MINUTE)
    assert purge(chore) == 3
    assert kept(world) == before | {"deliveries": 0, "webhook_endpoints": 0, "idempotency": 0}
    world.clock.advance(60 * DAY)
    assert purge(chore) == 3
    assert kept(world) == {"deliveries": 0, "idempotency": 0, "events": 0, "webhook_endpoints": 0, "bookings": 1}


def test_what_is_still_to_be_sent_is_kept_however_old(world: World) -> None:
    subscribe(world)
    book(world)
    before = kept(world)
    world.clock.advance(365 * DAY)
    chore = purging(world)
    purge(chore)
    assert kept(world) == before | {"idempotency": 0, "events": 3 - 1}
    assert {row["type"] for row in world.rows(tables.events)} == {"booking.created", "booking.confirmed"}


def test_while_there_is_more_it_goes_on_after_a_pause(world: World) -> None:
    book(world, 5)
    world.clock.advance(31 * DAY)
    chore = purging(world, batch=2)
    done = [purge(chore)]
    for _ in range(3):
        assert purge(chore) == 0, "without a pause"
        world.clock.advance(SECOND)
        done.append(purge(chore))
    assert done == [2, 2, 1, 0]


def test_it_looks_once_a_minute(world: World) -> None:
    chore = purging(world)
    purge(chore)
    book(world)
    world.clock.advance(MINUTE - 1)
    seen: list[str] = []
    world.database.observer = seen.append
    assert (purge(chore), seen) == (0, [])
    world.clock.advance(1)
    purge(chore)
    assert len(seen) == 4, "three kinds, and the organizations that have old events"


def test_each_organization_keeps_its_own_events(world: World) -> None:
    other = make_world(world.database, world.clock)
    book(world)
    world.clock.advance(91 * DAY)
    book(other)
    purge(purging(world))
    assert (len(world.rows(tables.events)), len(other.rows(tables.events))) == (0, 3)
