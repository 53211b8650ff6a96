"""A batch waits for no lock: it defers the requests whose departure or numbers another transaction has locked."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, LiteralString

import orjson
import pytest
from support.databases.databases import connect, departure_held, numbers_held, wait_for_lock
from support.world.creating import create
from support.world.lanes import statuses
from support.world.operations import Operations
from support.world.world import World

from booking_core import bookings
from booking_core.base.errors import Unavailable
from booking_core.bookings import CreateRequest, CreateResult, Deferred, LockWait
from booking_core.bookings.rules import Reference
from booking_core.db import tables
from booking_core.records.idempotency import Answer

WRITTEN = (tables.bookings, tables.customers, tables.events, tables.idempotency, tables.timeline, tables.effects)
LONG_S, SHORT_S = 60.0, 0.05


@pytest.fixture
def other(new_world: Callable[..., World], postgresql_only: None) -> World:
    """A second organization; another transaction has locked rows of it."""
    return new_world()


def outcomes(world: World, *creates: CreateRequest, lock_wait_s: float | None = None) -> list[CreateResult]:
    lock_wait = None if lock_wait_s is None else LockWait(time.monotonic() + lock_wait_s)
    return world.database.write(lambda tx: bookings.create_many(tx, creates, lock_wait=lock_wait))


@pytest.mark.parametrize(
    ("what", "names", "expected"),
    [
        pytest.param("numbers", ("late", "free"), ("counters", 201), id="another organization is booked"),
        pytest.param("numbers", ("late", "late"), ("counters", "counters"), id="an organization alone"),
        pytest.param(
            "departure", ("late", "beside", "free"), ("departure", 201, 201), id="other departures are booked"
        ),
        pytest.param("departure", ("late",), ("departure",), id="a departure alone"),
        pytest.param("departure", ("late", "foreign", "unknown"), ("departure", 404, 404), id="unknown departures"),
    ],
)
def test_requests_with_a_locked_row_are_deferred_and_the_others_decided(
    world: World, other: World, what: str, names: tuple[str, ...], expected: tuple[object, ...]
) -> None:
    late, beside = (other.departure(other.experience(), seats=2) for _ in range(2))
    free, unknown = world.departure(world.experience(), seats=2), "00000000-0000-4000-8000-000000000000"
    targets = {"late": (other, late), "beside": (other, beside), "foreign": (world, late), "unknown": (world, unknown)}
    creates = [create(*targets.get(name, (world, free)), f"{name}-key-{n}") for n, name in enumerate(names)]
    with numbers_held(other.url, other.org) if what == "numbers" else departure_held(other.url, late):
        results = outcomes(world, *creates)
    deferred = {"counters": Deferred(), "departure": Deferred(late)}
    decisions = [result.status if isinstance(result, Answer) else result for result in results]
    assert decisions == [deferred.get(str(outcome), outcome) for outcome in expected]
    put_off = [request for request, result in zip(creates, results, strict=True) if isinstance(result, Deferred)]
    assert other.row(tables.departures, late)["seats_taken"] == 0
    if "beside" not in names:
        assert [other.rows(table) for table in WRITTEN] == [[]] * len(WRITTEN)
    assert statuses(outcomes(world, *put_off, lock_wait_s=LONG_S)) == [201] * len(put_off)
    numbers = sorted(row["booking_number"] for row in other.rows(tables.bookings))
    assert numbers == list(range(1, names.count("late") + names.count("beside") + 1))


def test_a_refusal_that_depends_on_a_deferred_booking_is_deferred_too(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=2)
    late = other.departure(other.experience(), seats=1)
    creates = [
        create(other, late, "the-last-seat"),
        create(other, late, "too-late-01"),
        create(other, late, "the-last-seat"),
        create(world, free, "booked-1"),
    ]
    with numbers_held(other.url, other.org):
        results = outcomes(world, *creates)
    assert [type(result) for result in results] == [Deferred] * 3 + [Answer]
    assert other.rows(tables.idempotency) == []
    first, refused, replayed, _ = outcomes(world, *creates)
    assert (first.status, refused.status) == (201, 409)
    assert replayed == Answer(first.status, first.body, replayed=True)


def test_a_stored_answer_is_replayed_whatever_is_locked(world: World, other: World) -> None:
    free = world.departure(world.experience(), seats=2)
    late = other.departure(other.experience(), seats=2)
    (first,) = outcomes(world, create(other, late, "stored-key-1"))
    with numbers_held(other.url, other.org), departure_held(other.url, late):
        replayed, put_off, _ = outcomes(
            world,
            create(other, late, "stored-key-1"),
            create(other, late, "put-off-1"),
            create(world, free, "booked-1"),
        )
    assert replayed == Answer(first.status, first.body, replayed=True)
    assert isinstance(put_off, Deferred)


@pytest.mark.parametrize("what", ["departure", "numbers"])
def test_a_lock_that_is_not_free_in_time_leaves_nothing_done(world: World, other: World, what: str) -> None:
    late = other.departure(other.experience(), seats=4)
    with (
        departure_held(other.url, late) if what == "departure" else numbers_held(other.url, other.org),
        pytest.raises(Unavailable) as raised,
    ):
        outcomes(world, create(other, late, "refused-key-1"), lock_wait_s=SHORT_S)
    assert raised.value.is_locked
    assert not raised.value.for_all
    assert [other.rows(table) for table in WRITTEN] == [[]] * len(WRITTEN)
    assert statuses(outcomes(world, create(other, late, "refused-key-1"))) == [201]


def released_by_another(world: World, hold_id: str) -> AbstractContextManager[Any]:
    """Release the hold in a transaction that commits at the end."""
    return another_transaction(world, "UPDATE holds SET ended_at = created_at WHERE id = %s", hold_id)


def locking_reference(world: World, text: str) -> AbstractContextManager[Any]:
    lock = Reference(world.org, text).lock
    return another_transaction(world, "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", lock)


@contextmanager
def another_transaction(world: World, statement: LiteralString, parameter: str) -> Iterator[Any]:
    """Run a statement in a transaction that commits at the end."""
    with connect(world.url) as connection:
        connection.autocommit = False
        connection.execute(statement, (parameter,))
        yield connection
        connection.execute("COMMIT")


def test_a_hold_that_is_being_released_is_waited_for_and_never_booked(world: World, other: World) -> None:
    departure = other.departure(other.experience(), seats=2)
    hold_id = Operations(other).hold(departure, 2)
    takes_over = create(other, departure, "takes-over-1", count=2, hold_id=hold_id)
    unknown = create(other, departure, "unknown-hold", hold_id="00000000-0000-4000-8000-000000000000")
    beside = create(other, departure, "beside-it-1")
    with released_by_another(other, hold_id):
        put_off, absent, full = outcomes(world, takes_over, unknown, beside)
    assert put_off == Deferred(departure)
    assert statuses([absent, full]) == [404, 409]
    (late,) = outcomes(world, takes_over, lock_wait_s=LONG_S)
    assert orjson.loads(late.body)["reasons"] == ["hold_released"]


def test_a_take_over_that_waited_for_its_hold_sees_its_release(world: World, other: World) -> None:
    departure = other.departure(other.experience(), seats=2)
    hold_id = Operations(other).hold(departure, 2)
    takes_over = create(other, departure, "takes-over-1", count=2, hold_id=hold_id)
    with ThreadPoolExecutor(1) as threads, released_by_another(other, hold_id):
        coming = threads.submit(outcomes, world, takes_over, lock_wait_s=LONG_S)
        wait_for_lock(other.url)
    (late,) = coming.result()
    assert orjson.loads(late.body)["reasons"] == ["hold_released"]


def test_a_reference_that_another_transaction_asks_for_is_waited_for(world: World, other: World) -> None:
    departure = other.departure(other.experience(), seats=9)
    unique = {"external_reference": "A-1", "external_reference_unique": True}
    asks, asks_not = create(other, departure, "asks-key-1", **unique), create(other, departure, "asks-not-1")
    with locking_reference(other, "A-1"):
        put_off, booked = outcomes(world, asks, asks_not)
    assert put_off == Deferred()
    assert statuses([booked]) == [201]
    with ThreadPoolExecutor(1) as threads, locking_reference(other, "A-1"):
        coming = threads.submit(outcomes, world, asks, lock_wait_s=LONG_S)
        wait_for_lock(other.url)
        other.change(tables.bookings, orjson.loads(booked.body)["id"], external_reference="A-1")
    (refused,) = coming.result()
    assert statuses([refused]) == [409]


def test_the_wait_for_a_departure_shortens_the_wait_for_the_numbers() -> None:
    at = 10.0
    wait = LockWait(13.0, lambda: at)
    assert wait.limit().parameters == {"timeout_ms": "3000"}
    at = 10.01
    assert not wait.has_waited
    at = 12.5
    assert wait.has_waited
    assert wait.limit().parameters == {"timeout_ms": "500"}
