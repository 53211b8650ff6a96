"""A booking is moved in one step or not at all, and by the guest until the deadlines of the organization."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.world.operations import Operations, as_published
from support.world.world import DAY, HOUR, NOON, World

from booking_core import bookings
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Conflict
from booking_core.db import tables

START = NOON + 5 * DAY
FAR = 4 * DAY // HOUR
"""Hours before the start."""


class Visit:
    """A guest with a booking, and another departure to move to."""

    def __init__(self, world: World) -> None:
        self.world, self.ops = world, Operations(world)
        experience = world.experience()
        self.other = world.departure(experience, starts_at=START + DAY)
        self.booking_id: str = self.ops.book(world.departure(experience, starts_at=START))["id"]

    def cancel(self) -> Any:
        return self.ops.act(
            lambda tx, actor: bookings.cancel_by_guest(tx, actor, bookings.lock(tx, actor, self.booking_id))
        )

    def move(self) -> Any:
        return self.ops.act(
            lambda tx, actor: bookings.move(tx, actor, bookings.lock(tx, actor, self.booking_id), self.other)
        )

    def may(self) -> tuple[bool, bool]:
        """Return whether the guest may cancel, and move."""
        row = self.ops.act(lambda tx, actor: bookings.lock(tx, actor, self.booking_id)).row
        return bookings.guest_may_cancel(self.ops.actor, row), bookings.guest_may_move(self.ops.actor, row)


VERBS = {
    "cancel": ("guest_cancel_until_hours", Visit.cancel, "cancellation"),
    "move": ("guest_move_until_hours", Visit.move, "moves"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("hours", "at", "reason"),
    [
        (24, START - DAY - 1, None),
        (24, START - DAY, "too_late"),
        (0, START - 1, None),
        (0, START, "too_late"),
        (FAR, NOON, None),
        (FAR, NOON + DAY, "too_late"),
        (None, NOON, "not_allowed"),
    ],
)
def test_a_guest_acts_before_the_deadline_and_not_at_it(
    new_world: Callable[..., World], verb: str, hours: int | None, at: int, reason: str | None
) -> None:
    setting, act, subject = VERBS[verb]
    world = new_world(**{setting: hours})
    visit = Visit(world)
    world.clock.advance(at - NOON)
    before = visit.ops.booking(visit.booking_id)
    if reason is None:
        act(visit)
        assert visit.ops.booking(visit.booking_id) != before
    else:
        assert visit.ops.refusal(act, visit) == ("conflict", f"{subject}_{reason}")
        assert visit.ops.booking(visit.booking_id) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_names_the_moment_of_the_deadline(new_world: Callable[..., World], verb: str) -> None:
    setting, act, _ = VERBS[verb]
    visit = Visit(new_world(**{setting: 36}))
    visit.world.clock.advance(4 * DAY)
    with pytest.raises(Conflict, match=r"until 2026-11-25T01:00:00\+01:00\."):
        act(visit)


def test_hours_are_elapsed_time_over_a_change_of_the_clocks(new_world: Callable[..., World]) -> None:
    world = new_world(guest_cancel_until_hours=24)
    zone, organization = world.organization.zone, world.organization
    start = zone.parse("2027-03-28T12:00:00")
    until = organization.guest_cancels_until(start)
    assert until is not None
    assert zone.iso(until) == "2027-03-27T11:00:00+01:00"


def test_guests_cancel_until_the_start_and_move_never_by_default(world: World) -> None:
    assert Visit(world).may() == (True, False)


def test_a_move_begins_the_deadlines_of_the_new_departure(new_world: Callable[..., World]) -> None:
    visit = Visit(new_world(guest_cancel_until_hours=24, guest_move_until_hours=0))
    visit.world.clock.advance(4 * DAY)
    assert visit.ops.refusal(visit.cancel) == ("conflict", "cancellation_too_late")
    visit.move()
    assert visit.cancel()["status"] == "cancelled"


def test_a_move_is_offered_where_the_seats_are_enough_for_the_party(new_world: Callable[..., World]) -> None:
    world = new_world(guest_move_until_hours=0)
    ops, experience = Operations(world), world.experience()
    for seats in (1, 2, 3):
        world.departure(experience, starts_at=START + seats * HOUR, seats=seats)
    booking_id = ops.book(world.departure(experience, starts_at=START), 2)["id"]
    moves = ops.act(lambda tx, actor: bookings.find_moves(tx, actor, booking_id))
    assert [(move.starts_at - START) // HOUR for move in moves] == [2, 3]


def test_a_cancelled_booking_is_refused_as_cancelled(world: World) -> None:
    visit = Visit(world)
    visit.cancel()
    assert visit.ops.refusal(visit.cancel) == ("conflict", "booking_cancelled")
    assert visit.may() == (False, False)


def test_guests_and_staff_cancel_with_the_same_statements(world: World, statements: list[str]) -> None:
    visit, other = Visit(world), Visit(world)
    statements.clear()
    visit.cancel()
    by_guest = statements.copy()
    statements.clear()
    other.ops.cancel(other.booking_id)
    assert by_guest == statements


# Moves ---------------------------------------------------------------------------------------------------------------


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
    assert ops.seats_taken(sunday) == 0
