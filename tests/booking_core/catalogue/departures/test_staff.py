"""Staff closes a departure, opens it again, and gives it other seats."""

from collections.abc import Callable
from datetime import date

import pytest
from support.api.refusals import nothing_changes
from support.world.operations import Operations
from support.world.world import World

from booking_core.base.clock import MINUTE
from booking_core.catalogue import departures
from booking_core.db import tables

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=5)


def available(world: World) -> list[object]:
    day = date(2026, 11, 21)
    return list(world.database.read(lambda tx: departures.find_available(tx, world.caller(), date_from=day))["data"])


def test_a_closed_departure_keeps_its_bookings_and_sells_nothing(ops: Operations, world: World, departure: str) -> None:
    booking = ops.book(departure, 2)
    world.clock.advance(MINUTE)
    shown = ops.close(departure)
    assert (shown["status"], shown["seats_available"]) == ("closed", 3)
    assert available(world) == [shown]
    assert ops.refusal(ops.book, departure) == ("conflict", "departure_closed")
    assert ops.booking(booking["id"])["status"] == "confirmed"
    assert world.row(tables.departures, departure)["updated_at"] == world.clock()
    assert ops.reopen(departure)["status"] == "open"
    ops.book(departure)
    assert world.examine() == []


def test_closing_and_opening_twice_changes_nothing(ops: Operations, world: World, departure: str) -> None:
    with nothing_changes(world):
        assert ops.reopen(departure)["status"] == "open"
    ops.close(departure)
    world.clock.advance(MINUTE)
    with nothing_changes(world):
        assert ops.close(departure)["status"] == "closed"


def test_what_is_shown_counts_bookings_and_holds(ops: Operations, world: World, departure: str) -> None:
    ops.book(departure)
    ops.hold(departure, 2)
    assert ops.close(departure)["seats_available"] == 2
    assert ops.set_seats(departure, 12)["seats_available"] == 9


def test_more_seats_can_be_sold_and_fewer_cannot(ops: Operations, world: World, departure: str) -> None:
    ops.book(departure, 5)
    shown = ops.set_seats(departure, 6)
    assert (shown["seats_total"], shown["seats_available"]) == (6, 1)
    ops.book(departure)
    assert ops.refusal(ops.book, departure) == ("insufficient_capacity", None)
    assert world.examine() == []


def test_a_departure_with_fewer_seats_than_sold_sells_none(ops: Operations, world: World, departure: str) -> None:
    booking = ops.book(departure, 4)
    other = ops.book(departure)
    shown = ops.set_seats(departure, 3)
    assert (shown["seats_total"], shown["seats_available"], shown["status"]) == (3, 0, "sold_out")
    row = world.row(tables.departures, departure)
    assert (row["seats_total"], row["seats_ceiling"], row["seats_taken"]) == (3, 5, 5)
    ops.cancel(other["id"])
    assert ops.refusal(ops.book, departure) == ("insufficient_capacity", None)
    ops.cancel(booking["id"])
    ops.book(departure, 3)
    assert ops.taken(departure) == 3
    assert world.examine() == []


def test_the_ceiling_is_lowered_with_the_total(ops: Operations, world: World, departure: str) -> None:
    ops.book(departure, 2)
    ops.set_seats(departure, 3)
    assert world.row(tables.departures, departure)["seats_ceiling"] == 3
    world.clock.advance(MINUTE)
    with nothing_changes(world):
        ops.set_seats(departure, 3)


@pytest.mark.parametrize("seats", [-1, 2**31])
def test_what_is_no_number_of_seats_is_refused(ops: Operations, world: World, departure: str, seats: int) -> None:
    with nothing_changes(world):
        assert ops.refusal(ops.set_seats, departure, seats) == ("validation_failed", "out_of_range")


def test_a_cancelled_departure_stays_as_it_is(ops: Operations, world: World, departure: str) -> None:
    ops.cancel_departure(departure)
    with nothing_changes(world):
        for verb in (ops.close, ops.reopen):
            assert ops.refusal(verb, departure) == ("conflict", "departure_cancelled")
        assert ops.refusal(ops.set_seats, departure, 7) == ("conflict", "departure_cancelled")


def test_another_organization_s_departure_does_not_exist(
    ops: Operations, departure: str, new_world: Callable[..., World]
) -> None:
    stranger = Operations(new_world())
    with nothing_changes(ops.world):
        for verb in (stranger.close, stranger.reopen):
            assert stranger.refusal(verb, departure)[0] == "not_found"
        assert stranger.refusal(stranger.set_seats, UNKNOWN, 1)[0] == "not_found"
