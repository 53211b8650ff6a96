"""A booking moves to another departure with its seats, in one breath or not at all."""

import orjson
import pytest
from support.world.operations import Operations, as_published
from support.world.world import DAY, World

from booking_core.base.clock import MINUTE
from booking_core.db import tables


@pytest.fixture
def experience(world: World) -> str:
    return world.experience()


@pytest.fixture
def saturday(world: World, experience: str) -> str:
    return world.departure(experience, seats=5)


@pytest.fixture
def sunday(world: World, experience: str) -> str:
    return world.departure(experience, seats=5, starts_at=world.clock() + 3 * DAY)


def test_the_event_has_the_previous_departure(ops: Operations, world: World, saturday: str, sunday: str) -> None:
    booking = ops.book(saturday)
    world.clock.advance(MINUTE)
    moved = ops.reschedule(booking["id"], sunday)
    assert ops.event_types(booking["id"])[-1] == "booking.rescheduled"
    assert ops.events()[-1]["data"] == {
        "object": as_published(moved),
        "previous_departure": {"id": saturday, "starts_at": booking["departure"]["starts_at"]},
        "changes": {"departure": booking["departure"], "cancellation": booking["cancellation"]},
    }
    assert ops.noted(booking["id"]) == ["booking_created", "booking_rescheduled"]
    payloads = {row["kind"]: orjson.loads(row["payload"]) for row in world.rows(tables.effects)}
    before = world.row(tables.departures, saturday)["starts_at"]
    for kind in ("booking_rescheduling_mail", "staff_rescheduling_mail"):
        assert payloads[kind] == {"previous_starts_at": before}


def test_each_move_of_a_booking_is_published(ops: Operations, world: World, saturday: str, sunday: str) -> None:
    booking = ops.book(saturday, 2)
    for departure in (sunday, saturday, sunday):
        ops.reschedule(booking["id"], departure)
    assert ops.event_types(booking["id"]).count("booking.rescheduled") == 3
    assert ops.outbox_kinds(booking["id"]).count("booking_rescheduling_mail") == 3
    assert (ops.taken(saturday), ops.taken(sunday)) == (0, 2)


def test_the_guest_s_link_lives_until_the_new_departure_ends(
    ops: Operations, world: World, saturday: str, sunday: str
) -> None:
    booking = ops.book(saturday)
    ops.reschedule(booking["id"], sunday)
    starts_at = world.row(tables.departures, sunday)["starts_at"]
    assert ops.booking(booking["id"])["manage_expires_at"] == starts_at + 150 * MINUTE


def test_the_price_stays_as_it_was_sold_also_at_another_experience(
    ops: Operations, world: World, saturday: str
) -> None:
    booking = ops.book(saturday, 2, suits=1)
    dearer = world.experience(title="Glacier walk", price_tiers="[]", price_from_minor=500000)
    moved = ops.reschedule(booking["id"], world.departure(dearer))
    assert moved["experience"]["title"] == "Glacier walk"
    for name in ("totals", "guests", "add_ons"):
        assert moved[name] == booking[name]
    assert ops.booking(booking["id"])["experience_id"] == dearer


def test_a_pending_booking_moves_and_keeps_its_expiry(
    ops: Operations, world: World, saturday: str, sunday: str
) -> None:
    booking = ops.check_out(saturday)
    ops.reschedule(booking["id"], sunday)
    world.clock.advance(30 * MINUTE)
    ops.abandon_due()
    assert ops.booking(booking["id"])["status"] == "cancelled"
    assert ops.taken(sunday) == 0
