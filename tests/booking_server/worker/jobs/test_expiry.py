"""What falls due by the clock alone is done by the worker, once, and at its own pace."""

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from support.operations import Operations
from support.refusals import nothing_changes
from support.world import DAY, HOUR, World

from booking_core import storefront
from booking_core.bookings import cancelling
from booking_core.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_server.worker.jobs.expiry import Sweeping


@pytest.fixture
def ops(new_world: Callable[..., World]) -> Operations:
    return Operations(new_world(cancel_under_minimum=True))


def sweeping(ops: Operations) -> Sweeping:
    return Sweeping(ops.world.database, ops.world.installation)


def sweep(chore: Sweeping) -> int:
    return asyncio.run(chore.run_once())


def test_checkouts_that_nobody_paid_are_abandoned(ops: Operations) -> None:
    world = ops.world
    departure = world.departure(world.experience(), seats=120)
    for _ in range(60):  # more than one batch
        ops.check_out(departure)
    chore = sweeping(ops)
    sweep(chore)
    assert ops.taken(departure) == 60
    world.clock.advance(30 * MINUTE)
    assert sweep(chore) >= 60
    assert ops.taken(departure) == 0
    assert ops.event_types().count("booking.cancelled") == 60
    assert world.examine() == []
    world.clock.advance(SECOND)
    with nothing_changes(world):
        sweep(chore)


def test_a_rush_of_turns_sweeps_once_a_second(ops: Operations, statements: list[str]) -> None:
    chore = sweeping(ops)
    sweep(chore)
    statements.clear()
    assert [sweep(chore) for _ in range(3)] == [0, 0, 0]
    assert statements == []


def test_a_clock_that_was_ahead_and_was_set_back_stops_no_sweep(ops: Operations) -> None:
    world = ops.world
    departure = world.departure(world.experience())
    chore = sweeping(ops)
    world.clock.advance(400 * DAY)
    sweep(chore)
    world.clock.advance(-400 * DAY)
    ops.check_out(departure)
    world.clock.advance(31 * MINUTE)
    sweep(chore)
    assert ops.taken(departure) == 0


def test_a_sweep_that_fails_keeps_no_other_from_its_turn(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(storefront, "abandon_due", fail)
    world = ops.world
    departure = world.departure(world.experience(min_participants=6))
    ops.book(departure)
    world.clock.advance(2 * DAY)
    with pytest.raises(ZeroDivisionError):
        sweep(sweeping(ops))
    assert ops.taken(departure) == 0


def test_departures_under_their_minimum_are_cancelled_with_all_their_bookings(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "BATCH", 2)
    world = ops.world
    departure = world.departure(world.experience(min_participants=6), seats=20)
    for _ in range(5):
        ops.book(departure)
    world.clock.advance(2 * DAY)
    sweep(sweeping(ops))
    rows = world.rows(tables.bookings)
    assert {(row["status"], row["cancel_reason"]) for row in rows} == {("cancelled", "min_participants")}
    assert len(rows) == 5
    assert world.row(tables.departures, departure)["cancelling"] is None
    assert world.examine() == []


class Waiting(NamedTuple):
    """A departure that started under its minimum of three with one seat confirmed and two seats pending."""

    departure: str
    confirmed: str
    pending: list[str]


@pytest.fixture
def waiting(ops: Operations) -> Waiting:
    world = ops.world
    departure = world.departure(world.experience(min_participants=3), seats=20)
    world.clock.advance(2 * DAY - MINUTE)
    confirmed = ops.book(departure)["id"]
    pending = [ops.check_out(departure)["id"] for _ in range(2)]
    world.clock.advance(2 * MINUTE)
    with nothing_changes(world):
        sweep(sweeping(ops))
    return Waiting(departure, confirmed, pending)


def expire(ops: Operations, booking_id: str) -> None:
    ops.world.change(tables.bookings, booking_id, expires_at=ops.world.clock())


def cancel(ops: Operations, booking_id: str) -> None:
    ops.cancel(booking_id)


def pay(ops: Operations, booking_id: str) -> None:
    ops.pay(booking_id, f"pi_{booking_id}")


def confirm(ops: Operations, booking_id: str) -> None:
    ops.confirm(booking_id)


ENDS = (expire, cancel, pay, confirm)


@pytest.mark.parametrize("last", ENDS)
@pytest.mark.parametrize("first", ENDS)
def test_a_departure_with_pending_bookings_is_counted_when_the_last_of_them_has_ended(
    ops: Operations, waiting: Waiting, first: Callable[..., None], last: Callable[..., None]
) -> None:
    """In every order: only when both are confirmed are there three, and while one is pending nothing is decided."""
    world, chore, gained = ops.world, sweeping(ops), (pay, confirm)
    first(ops, waiting.pending[0])
    sweep(chore)
    row = world.row(tables.departures, waiting.departure)
    assert (row["status"], row["minimum_checked_at"]) == ("open", None)
    assert ops.booking(waiting.confirmed)["status"] == "confirmed"
    world.clock.advance(MINUTE)
    last(ops, waiting.pending[1])
    sweep(chore)
    row = world.row(tables.departures, waiting.departure)
    if first in gained and last in gained:
        assert (row["status"], row["minimum_checked_at"]) == ("open", world.clock())
        assert ops.taken(waiting.departure) == 3
    else:
        assert row["status"] == "cancelled"
        assert ops.taken(waiting.departure) == 0
        assert ops.booking(waiting.confirmed)["cancel_reason"] == "min_participants"
    assert world.examine() == []
    world.clock.advance(MINUTE)
    with nothing_changes(world):
        sweep(chore)


def test_a_pending_booking_holds_up_no_other_departure(ops: Operations, waiting: Waiting) -> None:
    world = ops.world
    lonely = world.departure(world.experience(min_participants=3), starts_at=world.clock() + MINUTE)
    ops.book(lonely)
    world.clock.advance(2 * MINUTE)
    sweep(sweeping(ops))
    assert world.row(tables.departures, lonely)["status"] == "cancelled"
    assert world.row(tables.departures, waiting.departure)["status"] == "open"


def test_a_departure_that_ran_while_a_booking_was_pending_is_not_cancelled(ops: Operations, waiting: Waiting) -> None:
    world = ops.world
    for each in waiting.pending:
        world.change(tables.bookings, each, expires_at=world.clock() + 5 * HOUR)
    world.clock.advance(2 * HOUR)
    for each in waiting.pending:
        ops.cancel(each)
    sweep(sweeping(ops))
    assert world.row(tables.departures, waiting.departure)["status"] == "open"
    assert ops.booking(waiting.confirmed)["status"] == "confirmed"


def test_a_count_of_more_bookings_than_one_batch_knows_the_pending_one_among_them(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "BATCH", 2)
    world, chore = ops.world, sweeping(ops)
    departure = world.departure(world.experience(min_participants=6), seats=20)
    world.clock.advance(2 * DAY - MINUTE)
    for _ in range(5):
        ops.book(departure)
    pending = ops.check_out(departure)["id"]
    world.clock.advance(2 * MINUTE)
    sweep(chore)
    assert ops.taken(departure) == 6
    expire(ops, pending)
    world.clock.advance(MINUTE)
    sweep(chore)
    assert ops.taken(departure) == 0
    reasons = sorted(row["cancel_reason"] for row in world.rows(tables.bookings))
    assert reasons == ["abandoned"] + ["min_participants"] * 5
    assert world.examine() == []


def test_a_cancellation_that_was_interrupted_is_finished(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "BATCH", 2)
    world = ops.world
    departure = world.departure(world.experience(), seats=20)
    for _ in range(5):
        ops.book(departure)
    ops.cancel_departure(departure)
    assert ops.taken(departure) == 3
    sweep(sweeping(ops))
    assert ops.taken(departure) == 0
    assert {row["cancel_reason"] for row in world.rows(tables.bookings)} == {"admin"}


def test_a_sweep_that_fails_holds_up_no_other(ops: Operations) -> None:
    """Somebody repaired the seats of a departure wrongly: giving one back fails, today and tomorrow."""
    world = ops.world
    wrong, lonely = (world.departure(world.experience(min_participants=6), seats=20) for _ in range(2))
    ops.check_out(wrong)
    world.change(tables.departures, wrong, seats_taken=0, starts_at=world.clock() + 9 * DAY)
    booked = ops.book(lonely)
    world.clock.advance(2 * DAY)
    with pytest.raises(Exception, match="seats_taken"):
        sweep(sweeping(ops))
    assert ops.booking(booked["id"])["cancel_reason"] == "min_participants"
    ops.world.change(tables.departures, wrong, seats_taken=1)
    sweep(sweeping(ops))  # nothing is left due to the next test: the database is shared


# Keys that expire ------------------------------------------------------------------------------------------------


def warned(world: World) -> list[str]:
    return [row["subject_id"] for row in world.rows(tables.effects) if row["kind"] == "staff_key_expiring_mail"]


def test_staff_is_told_of_a_key_a_week_before_it_expires_and_once(ops: Operations) -> None:
    world = ops.world
    world.key(expires_at=world.clock() + 8 * DAY)
    (key,) = world.rows(tables.api_keys)
    chore = sweeping(ops)
    sweep(chore)
    assert warned(world) == []
    world.clock.advance(DAY)
    sweep(chore)
    (effect,) = [row for row in world.rows(tables.effects) if row["subject_id"] == key["id"]]
    assert json.loads(effect["payload"]) == {
        "name": "test",
        "prefix": key["prefix"],
        "expires_at": key["expires_at"],
    }
    for _ in range(3):
        world.clock.advance(DAY)
        sweep(chore)
    assert warned(world) == [key["id"]]
    world.change(tables.api_keys, key["id"], expires_at=world.clock() + 2 * DAY)
    world.clock.advance(HOUR)
    sweep(chore)
    assert warned(world) == [key["id"]]


def test_keys_that_are_over_or_never_end_are_not_told_of(ops: Operations, new_world: Callable[..., World]) -> None:
    world, deaf = ops.world, new_world(notify_staff=False)
    soon = world.clock() + DAY
    world.key()
    world.key(expires_at=world.clock())
    world.key(expires_at=soon, revoked_at=world.clock())
    deaf.key(expires_at=soon)
    sweep(sweeping(ops))
    assert warned(world) == warned(deaf) == []


def test_many_keys_are_told_of_in_batches(ops: Operations) -> None:
    for _ in range(60):
        ops.world.key(expires_at=ops.world.clock() + DAY)
    sweep(sweeping(ops))
    assert len(warned(ops.world)) == 60
