"""Seats that are held in a checkout are nobody else's, for as long as the clock says."""

import contextlib
from collections.abc import Callable
from functools import partial

import pytest
from support.api.refusals import nothing_changes
from support.serving.threads import together
from support.world.creating import create, created
from support.world.hooks import Hooks
from support.world.operations import Operations, guest, lines
from support.world.world import DAY, NOON, World

from booking_core.base.clock import SECOND
from booking_core.base.context import Actor
from booking_core.base.errors import Conflict, NotFound
from booking_core.bookings import storefront
from booking_core.bookings.storefront import CheckoutRequest
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.models.events import EventType
from booking_core.models.holds import HoldCreate

NEXT_WEEK = NOON + 7 * DAY


def available(world: World, departure_id: str) -> int:
    """Return the available seats that the storefront's calendar shows."""
    first = world.organization.zone.wall(world.clock()).date()
    page = world.database.read(lambda tx: departures.find_available(tx, world.caller(), date_from=first))
    (departure,) = [departure for departure in page["data"] if departure["id"] == departure_id]
    return int(departure["seats_available"])


def test_a_hold_is_live_for_as_long_as_was_asked(ops: Operations, departure: str) -> None:
    request = HoldCreate(departure_id=departure, seats=2)
    hold = ops.act(lambda tx, actor: storefront.hold(tx, actor, request, for_s=90))
    assert (hold["status"], hold["expires_at"]) == ("live", "2026-11-21T13:01:30+01:00")
    assert hold == ops.act(lambda tx, actor: storefront.get_hold(tx, actor, hold["id"]))


def test_holds_and_bookings_share_the_seats(ops: Operations, world: World, departure: str) -> None:
    ops.hold(departure, 2)
    ops.book(departure, 2)
    with nothing_changes(world):
        assert ops.refusal(ops.hold, departure, 2) == ("insufficient_capacity", None)
        assert ops.refusal(ops.book, departure, 2) == ("insufficient_capacity", None)
        assert ops.refusal(ops.check_out, departure, 2) == ("insufficient_capacity", None)
    (answer,) = created(world.database, [create(world, departure, "beside-a-hold", count=2)])
    assert answer.status == 409
    assert ops.hold(departure, 1)


def test_a_hold_is_released_once_and_again_without_harm(ops: Operations, world: World, departure: str) -> None:
    hold_id = ops.hold(departure, 1)
    ops.release(hold_id)
    ended_at = world.row(tables.holds, hold_id)["ended_at"]
    world.clock.advance(SECOND)
    with nothing_changes(world):
        assert ops.release(hold_id)["id"] == hold_id
    assert world.row(tables.holds, hold_id)["ended_at"] == ended_at


@pytest.mark.parametrize("for_s", [0, 86_401])
def test_a_hold_for_no_time_or_for_ever_is_refused(ops: Operations, world: World, departure: str, for_s: int) -> None:
    with nothing_changes(world):
        assert ops.refusal(ops.hold, departure, 1, for_s=for_s) == ("validation_failed", "out_of_range")


def test_what_cannot_be_booked_cannot_be_held(ops: Operations, world: World) -> None:
    departure = world.departure(world.experience(), status="closed")
    guests = [{"tier_id": "adult", "count": 1}]
    requests = [
        HoldCreate.model_validate({"departure_id": departure} | of) for of in ({"seats": 1}, {"guests": guests})
    ]
    with nothing_changes(world):
        assert ops.refusal(ops.hold, departure, 1) == ("conflict", "departure_closed")
        for request in requests:
            act = partial(ops.act, lambda tx, actor: storefront.create_hold(tx, actor, request))  # noqa: B023
            assert ops.refusal(act) == ("conflict", "departure_closed")


def test_an_extension_that_waited_does_not_revive_a_hold(ops: Operations, world: World, departure: str) -> None:
    hold_id, earlier = ops.hold(departure, 1, for_s=60), world.caller()
    world.clock.advance(60 * SECOND)
    with nothing_changes(world), pytest.raises(Conflict, match="has expired"):
        world.database.write(lambda tx: storefront.extend_hold(tx, earlier, hold_id))


def test_another_organization_s_departure_and_hold_do_not_exist(
    ops: Operations, departure: str, new_world: Callable[..., World]
) -> None:
    hold_id, stranger = ops.hold(departure, 1), Operations(new_world())
    with nothing_changes(ops.world):
        assert stranger.refusal(stranger.hold, departure, 1)[0] == "not_found"
        assert stranger.refusal(stranger.release, hold_id)[0] == "not_found"


def test_the_operator_finds_whose_a_hold_is(ops: Operations, world: World, departure: str) -> None:
    hold_id = ops.hold(departure, 1)
    assert world.database.read(lambda tx: storefront.organization_of_hold(tx, hold_id.upper())).id == world.org
    for unknown in ("00000000-0000-4000-8000-000000000000", "no-id"):
        with pytest.raises(NotFound), world.database.reading() as tx:
            storefront.organization_of_hold(tx, unknown)


# Checked out -----------------------------------------------------------------------------------------------------


def test_a_checkout_may_need_other_seats_than_its_hold_has(ops: Operations, world: World, departure: str) -> None:
    ops.hold(departure, 2)
    hold_id = ops.hold(departure, 1)
    with nothing_changes(world):
        assert ops.refusal(ops.check_out, departure, 4, hold_id=hold_id) == ("insufficient_capacity", None)
    assert ops.check_out(departure, 3, hold_id=hold_id)["status"] == "pending"
    assert world.row(tables.holds, hold_id)["ended_at"] == world.clock()
    assert (ops.seats_taken(departure), available(world, departure)) == (3, 0)
    other = world.departure(world.row(tables.departures, departure)["experience_id"], seats=5, starts_at=NEXT_WEEK)
    ops.check_out(other, 1, hold_id=ops.hold(other, 4))
    assert available(world, other) == 4


def test_a_hold_is_used_once_and_at_its_departure(ops: Operations, world: World, departure: str) -> None:
    hold_id, released = ops.hold(departure, 1), ops.hold(departure, 1)
    elsewhere = ops.hold(world.departure(world.experience(), starts_at=NEXT_WEEK), 1)
    ops.check_out(departure, 1, hold_id=hold_id)
    ops.release(released)
    with nothing_changes(world):
        for unusable, refusal in (
            (hold_id, ("conflict", "hold_ended")),
            (released, ("conflict", "hold_ended")),
            (elsewhere, ("conflict", "hold_of_another_departure")),
            ("00000000-0000-4000-8000-000000000000", ("not_found", None)),
        ):
            assert ops.refusal(ops.check_out, departure, 1, hold_id=unusable) == refusal


def test_a_hold_that_ends_now_leaves_its_seats_to_the_batch(ops: Operations, world: World, database: Database) -> None:
    departure = world.departure(world.experience(), seats=4)
    ended, live = ops.hold(departure, 2, for_s=1), ops.hold(departure, 2, for_s=60)
    world.clock.advance(SECOND)
    counts = {live: 3, ended: 1}
    batch = [create(world, departure, f"order-{hold}", count=count, hold_id=hold) for hold, count in counts.items()]
    assert [answer.status for answer in created(database, batch)] == [201, 409]


def test_a_hold_that_ran_out_does_no_harm_and_gives_no_seat(ops: Operations, world: World, departure: str) -> None:
    late, too_late = (ops.hold(departure, 2, for_s=1) for _ in range(2))
    world.clock.advance(SECOND)
    assert ops.check_out(departure, 2, hold_id=late)["status"] == "pending"
    ops.hold(departure, 3)
    with nothing_changes(world):
        assert ops.refusal(ops.check_out, departure, 1, hold_id=too_late) == ("insufficient_capacity", None)


# Forgotten -------------------------------------------------------------------------------------------------------


def purge(world: World, *, before: int, limit: int = 100) -> int:
    return world.database.write(lambda tx: storefront.purge_holds(tx, world.org, before=before, limit=limit))


def test_ended_holds_are_deleted_oldest_first_and_live_holds_stay(alone: World) -> None:
    ops, departure, hold_ids = Operations(alone), alone.departure(alone.experience()), []
    for for_s in (1, 86_400, 60, 60):
        hold_ids.append(ops.hold(departure, 1, for_s=for_s))
        alone.clock.advance(SECOND)
    ops.release(hold_ids[2])
    end = NOON + DAY
    assert purge(alone, before=end) == 0
    assert purge(alone, before=end + SECOND) == 1
    assert purge(alone, before=end + 10 * SECOND, limit=2) == 2
    assert [row["id"] for row in alone.rows(tables.holds)] == [hold_ids[3]]
    assert ops.refusal(ops.release, hold_ids[0])[0] == "not_found"
    alone.change(tables.holds, hold_ids[3], expires_at=end + DAY)
    assert purge(alone, before=end + DAY) == 0


VERBS: dict[str, Callable[[Tx, Actor, str, str], object]] = {
    "extend": lambda tx, actor, hold_id, _: storefront.extend_hold(tx, actor, hold_id, for_s=900),
    "change": lambda tx, actor, hold_id, departure: storefront.change_hold(tx, actor, hold_id, departure, lines(2)),
    "book": lambda tx, actor, hold_id, departure: storefront.check_out(
        tx, actor, CheckoutRequest(departure_id=departure, guests=lines(1), customer=guest(), hold_id=hold_id)
    ),
    "delete": lambda tx, actor, hold_id, _: storefront.delete_hold(tx, actor, hold_id),
    "release": lambda tx, actor, hold_id, _: storefront.release(tx, actor, hold_id),
}
"""The verbs that lock a hold, then its departure."""


@pytest.mark.usefixtures("postgresql_only")
def test_verbs_that_meet_at_one_hold_never_deadlock(ops: Operations, world: World) -> None:
    Hooks(world).endpoint(EventType.DEPARTURE_UPDATED)
    departure = world.departure(world.experience(), seats=20)

    def act(verb: str, hold_id: str) -> None:
        with contextlib.suppress(Conflict), world.database.writing() as tx:  # no second try would settle a deadlock
            VERBS[verb](tx, ops.actor, hold_id, departure)

    for _ in range(10):
        hold_id = ops.hold(departure, 1)
        together(*(partial(act, verb, hold_id) for verb in VERBS))
    assert available(world, departure) == 20 - len(world.rows(tables.bookings))
