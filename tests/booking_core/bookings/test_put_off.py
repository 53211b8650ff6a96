"""A batch does not wait for an organization whose numbers another transaction has, when it has others to book for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.creating import create
from support.world import World

from booking_core import bookings, events
from booking_core.bookings import CreateRequest, CreateResult, Deferred
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.idempotency import Answer

WRITTEN = (tables.bookings, tables.customers, tables.events, tables.idempotency, tables.timeline, tables.effects)


@pytest.fixture
def other(new_world: Callable[..., World], world: World) -> World:
    """A second organization, whose numbers somebody has."""
    if world.database.is_sqlite:
        pytest.skip("SQLite has one writer: nobody has numbers while it writes")
    return new_world()


@contextmanager
def holding(world: World) -> Iterator[Tx]:
    """Hold the lock of the organization's counters in another transaction."""
    with world.database.writing() as tx:
        events.lock_sequences(tx, {world.org: (0, 0)})
        yield tx


def outcomes(world: World, *creates: CreateRequest) -> list[CreateResult]:
    return world.database.write(lambda tx: bookings.create_many(tx, creates))


def test_requests_with_locked_counters_are_deferred_and_the_others_booked(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=2)
    late = other.departure(other.experience(), seats=2)
    with holding(other):
        put_off, booked = outcomes(world, create(other, late, "put-off-1"), create(world, free, "booked-1"))
    assert isinstance(put_off, Deferred)
    assert isinstance(booked, Answer)
    assert booked.status == 201
    assert [other.rows(table) for table in WRITTEN] == [[]] * len(WRITTEN)
    assert other.row(tables.departures, late)["seats_taken"] == 0
    (again,) = outcomes(world, replace(create(other, late, "put-off-1"), blocking=True))
    assert isinstance(again, Answer)
    assert again.status == 201
    assert world.examine() == other.examine() == []


def test_a_refusal_that_depends_on_a_deferred_booking_is_deferred_too(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=2)
    late = other.departure(other.experience(), seats=1)
    creates = [
        create(other, late, "the-last-seat"),
        create(other, late, "too-late-01"),
        create(other, late, "the-last-seat"),
        create(world, free, "booked-1"),
    ]
    with holding(other):
        *put_off, booked = outcomes(world, *creates)
    assert all(isinstance(each, Deferred) for each in put_off)
    assert isinstance(booked, Answer)
    assert other.rows(tables.idempotency) == []
    first, refused, replayed, _ = outcomes(world, *creates)
    assert isinstance(first, Answer)
    assert isinstance(refused, Answer)
    assert (first.status, refused.status) == (201, 409)
    assert replayed == replace(first, replayed=True)


def test_a_stored_answer_is_replayed_without_the_counters(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=2)
    late = other.departure(other.experience(), seats=2)
    (first,) = outcomes(world, create(other, late, "stored-key-1"))
    with holding(other):
        replayed, put_off, _ = outcomes(
            world,
            create(other, late, "stored-key-1"),
            create(other, late, "put-off-1"),
            create(world, free, "booked-1"),
        )
    assert isinstance(first, Answer)
    assert replayed == replace(first, replayed=True)
    assert isinstance(put_off, Deferred)


def test_a_blocking_request_and_others_are_numbered_in_one_batch(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=4)
    late = other.departure(other.experience(), seats=4)
    answers = outcomes(
        world,
        replace(create(other, late, "waits-key-1"), blocking=True),
        create(world, free, "free-key-1"),
        create(other, late, "with-it-01"),
    )
    assert [each.status for each in answers if isinstance(each, Answer)] == [201, 201, 201]
    assert sorted(row["booking_number"] for row in other.rows(tables.bookings)) == [1, 2]
    assert world.examine() == other.examine() == []
