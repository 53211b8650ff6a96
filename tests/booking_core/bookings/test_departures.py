"""A cancelled departure cancels its bookings; a departure with too few guests is cancelled when booking closes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.api.refusals import nothing_changes
from support.world.operations import Operations
from support.world.world import DAY, HOUR, World

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.bookings import cancel_batches
from booking_core.db import tables
from booking_core.models.bookings import CancelReason


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=50)


@pytest.fixture
def batches_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_batches, "BATCH", 2)


def statuses(world: World) -> list[str]:
    return sorted(row["status"] for row in world.rows(tables.bookings))


# By staff --------------------------------------------------------------------------------------------------------


def test_its_bookings_are_cancelled_with_it_and_once(ops: Operations, world: World, departure: str) -> None:
    confirmed, pending = ops.book(departure, 2), ops.check_out(departure, 3)
    cancelled = ops.book(departure)
    ops.cancel(cancelled["id"])
    body = ops.cancel_departure(departure)
    assert (body["status"], body["seats_available"]) == ("cancelled", 50)
    for booking in (confirmed, pending):
        row = ops.booking(booking["id"])
        assert (row["status"], row["cancel_reason"]) == ("cancelled", "admin")
        assert ops.event_types(booking["id"])[-1] == "booking.cancelled"
    assert ops.event_types(cancelled["id"]).count("booking.cancelled") == 1
    row = world.row(tables.departures, departure)
    assert (row["status"], row["seats_taken"], row["cancelling"]) == ("cancelled", 0, None)
    with nothing_changes(world):
        assert ops.refusal(ops.book, departure) == ("conflict", "departure_cancelled")
        assert ops.cancel_departure(departure) == body
        assert ops.refusal(ops.cancel_departure, "00000000-0000-4000-8000-000000000000")[0] == "not_found"


@pytest.mark.usefixtures("batches_of_two")
def test_many_bookings_are_cancelled_in_batches(ops: Operations, world: World, departure: str) -> None:
    for _ in range(8):
        ops.book(departure)
    ops.cancel_departure(departure)
    assert statuses(world) == ["cancelled"] * 2 + ["confirmed"] * 6
    assert world.row(tables.departures, departure)["cancelling"] == "admin"
    assert ops.refusal(ops.book, departure) == ("conflict", "departure_cancelled")
    assert world.examine() == []
    ops.cancel_next_batch()
    assert statuses(world) == ["cancelled"] * 8
    assert {row["cancel_reason"] for row in world.rows(tables.bookings)} == {"admin"}
    assert world.row(tables.departures, departure)["cancelling"] is None
    assert ops.event_types().count("booking.cancelled") == 8


def test_one_gift_card_gets_back_what_several_bookings_took(ops: Operations, world: World, departure: str) -> None:
    card_id, code = ops.issue(300000)
    for _ in range(3):
        ops.book(departure, gift_card_code=code)
        ops.book(departure)
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 300000 - 3 * 89000
    ops.cancel_departure(departure)
    ops.cancel_next_batch()
    assert world.row(tables.gift_cards, card_id)["balance_minor"] == 300000
    assert statuses(world) == ["cancelled"] * 6


def test_a_departure_that_the_catalogue_cancelled_keeps_its_bookings(
    ops: Operations, world: World, departure: str
) -> None:
    ops.book(departure)
    world.change(tables.departures, departure, status="cancelled")
    assert ops.cancel_next_batch() == 0
    assert statuses(world) == ["confirmed"]


@pytest.mark.usefixtures("batches_of_two")
def test_its_bookings_are_cancelled_when_staff_cancels_it_too(ops: Operations, world: World, departure: str) -> None:
    for _ in range(3):
        ops.book(departure)
    world.change(tables.departures, departure, status="cancelled")
    assert ops.cancel_departure(departure)["seats_available"] == 49
    assert statuses(world) == ["cancelled", "cancelled", "confirmed"]
    ops.cancel_next_batch()
    assert statuses(world) == ["cancelled"] * 3
    assert ops.event_types().count("booking.cancelled") == 3


# Batch by batch --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("batches_of_two")
def test_several_who_cancel_a_departure_at_once_cancel_each_booking_once(
    ops: Operations, world: World, departure: str
) -> None:
    booking_ids = []
    for number in range(12):
        booking_ids.append(ops.check_out(departure, email=f"guest{number}@example.com")["id"])
        ops.pay(booking_ids[-1], f"pi_{number}")

    def cancel_all() -> int:
        count, remaining = 0, 1
        while remaining:
            batch = ops.act(lambda tx, actor: bookings.cancel_departure_batch(tx, actor, departure))
            count, remaining = count + len(batch.bookings), batch.remaining
        return count

    def work_on() -> int:
        ops.cancel_next_batch()
        return 0

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(function) for function in (cancel_all, cancel_all, cancel_all, work_on)]
        assert sum(future.result() for future in futures) <= 12
    assert statuses(world) == ["cancelled"] * 12
    assert ops.event_types().count("booking.cancelled") == 12
    assert sorted(row["booking_id"] for row in world.rows(tables.refunds)) == sorted(booking_ids)
    row = world.row(tables.departures, departure)
    assert (row["status"], row["seats_taken"], row["cancelling"]) == ("cancelled", 0, None)


@pytest.mark.usefixtures("batches_of_two")
def test_the_reason_that_was_given_first_holds_for_all(ops: Operations, world: World, departure: str) -> None:
    for _ in range(5):
        ops.book(departure)
    for reason in (CancelReason.AGENT, CancelReason.ADMIN, CancelReason.ADMIN):
        cancel = partial(bookings.cancel_departure_batch, departure_id=departure, reason=reason)
        batch = ops.act(lambda tx, actor, cancel=cancel: cancel(tx, actor))
    assert (batch.remaining, len(batch.bookings)) == (0, 1)
    assert {row["cancel_reason"] for row in world.rows(tables.bookings)} == {"agent"}
    with nothing_changes(world):
        batch = ops.act(lambda tx, actor: bookings.cancel_departure_batch(tx, actor, departure))
    assert (batch.remaining, batch.bookings) == (0, [])


# Under its minimum -----------------------------------------------------------------------------------------------


@pytest.fixture
def strict(new_world: Callable[..., World]) -> Operations:
    """An organization that cancels departures which too few booked, two hours before they start."""
    return Operations(new_world(cancel_under_minimum=True, hours_before_booking_closes=2))


def leaving(ops: Operations, minimum: int | None = 3, **columns: object) -> str:
    """Insert a departure in two days."""
    return ops.world.departure(ops.world.experience(min_participants=minimum), **columns)


def test_too_few_are_cancelled_when_booking_closes_and_not_before(strict: Operations) -> None:
    world, departure = strict.world, leaving(strict)
    booked, pending = strict.book(departure), strict.check_out(departure)
    strict.confirm(pending["id"])
    world.clock.advance(2 * DAY - 2 * HOUR - 1)
    strict.cancel_under_minimum()
    assert statuses(world) == ["confirmed", "confirmed"]
    world.clock.advance(1)
    strict.cancel_under_minimum()
    assert statuses(world) == ["cancelled", "cancelled"]
    assert world.row(tables.departures, departure)["status"] == "cancelled"
    assert strict.booking(booked["id"])["cancel_reason"] == "min_participants"
    assert strict.events()[-1]["data"]["reason"] == "min_participants"
    with nothing_changes(world):
        strict.cancel_under_minimum()


def test_a_pending_booking_does_not_count_and_is_waited_for(strict: Operations) -> None:
    world, departure = strict.world, leaving(strict)
    world.clock.advance(2 * DAY - 2 * HOUR - 1)
    strict.book(departure, 2)
    pending = strict.check_out(departure)
    world.clock.advance(1)
    with nothing_changes(world):
        strict.cancel_under_minimum()
    strict.cancel(pending["id"])
    strict.cancel_under_minimum()
    assert statuses(world) == ["cancelled", "cancelled"]


def test_enough_confirmed_seats_settle_it_whatever_is_pending(strict: Operations) -> None:
    world, departure = strict.world, leaving(strict)
    world.clock.advance(2 * DAY - 2 * HOUR - 1)
    strict.book(departure, 2)
    late = strict.book(departure)
    strict.check_out(departure)
    world.clock.advance(1)
    strict.cancel_under_minimum()
    assert world.row(tables.departures, departure)["minimum_checked_at"] == world.clock()
    strict.cancel(late["id"])
    world.clock.advance(31 * MINUTE)
    strict.abandon_due()
    with nothing_changes(world):
        strict.cancel_under_minimum()
    assert statuses(world) == ["cancelled", "cancelled", "confirmed"]


@pytest.mark.parametrize("case", ["switched off", "no minimum", "long begun", "cancelled", "other lead"])
def test_what_is_not_to_be_cancelled_is_left_alone(new_world: Callable[..., World], case: str) -> None:
    world = new_world(cancel_under_minimum=case != "switched off", hours_before_booking_closes=2)
    ops = Operations(world)
    lead = 1 if case == "other lead" else None
    experience = world.experience(
        min_participants=None if case == "no minimum" else 3, hours_before_booking_closes=lead
    )
    departure = world.departure(experience)
    ops.book(departure)
    if case == "cancelled":
        world.change(tables.departures, departure, status="cancelled")
    world.clock.advance(2 * DAY + HOUR if case == "long begun" else 2 * DAY - 2 * HOUR)
    with nothing_changes(world):
        ops.cancel_under_minimum()


def test_a_departure_that_staff_closed_or_nobody_booked_is_cancelled_too(strict: Operations) -> None:
    world = strict.world
    closed, empty = leaving(strict), leaving(strict)
    strict.book(closed)
    strict.close(closed)
    world.change(tables.organizations, world.org, hours_before_booking_closes=40)  # more than any other has
    world.clock.advance(2 * DAY - 40 * HOUR)
    strict.cancel_under_minimum()
    assert [world.row(tables.departures, departure)["status"] for departure in (closed, empty)] == ["cancelled"] * 2
