"""Departures are announced once in a window, with their last state, and only where an endpoint wants it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import bindparam, text
from support.hooks import Hooks
from support.operations import Operations
from support.world import DAY, HOUR, NOON, World

from booking_core.base.clock import SECOND
from booking_core.catalogue import departures
from booking_core.catalogue.departures import announcing
from booking_core.db import tables
from booking_core.db.due import NIL_ID
from booking_core.db.statements import Statement
from booking_core.models.events import EventType
from booking_core.models.webhooks import WantedStatus, WebhookEndpointChange
from booking_core.records import departure_touches
from booking_core.upkeep import doctor
from booking_core.upkeep.doctor import announcements
from booking_core.webhooks import change as change_endpoint
from booking_server.worker.jobs.announcements import AnnouncementJob

ANNOUNCED = EventType.DEPARTURE_UPDATED


class Announcer:
    """Does the worker's part for one organization."""

    def __init__(self, world: World) -> None:
        self.world, self.ops, self.hooks = world, Operations(world), Hooks(world)

    def follow(self) -> None:
        write = self.world.database.write
        while write(lambda tx: departures.follow(tx, self.world.org, [self.world.org])).left:
            pass

    def announce(self) -> None:
        touched = sorted({row["departure_id"] for row in self.touches()})
        self.world.database.write(lambda tx: departures.announce(tx, self.world.org, touched))

    def work(self) -> list[dict[str, Any]]:
        """Follow and announce, and return the data of every announcement so far."""
        self.follow()
        self.announce()
        return self.announced()

    def announced(self) -> list[dict[str, Any]]:
        return [each["data"] for each in self.ops.events() if each["type"] == ANNOUNCED]

    def touches(self) -> list[dict[str, Any]]:
        return self.world.rows(tables.departure_touches)

    def followed(self) -> list[int]:
        return [row["followed_sequence"] for row in self.world.rows(tables.departure_followers)]


@pytest.fixture
def announcer(world: World) -> Announcer:
    return Announcer(world)


@pytest.fixture
def endpoint(announcer: Announcer) -> str:
    return announcer.hooks.endpoint(ANNOUNCED)


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=9)


def seats(found: list[dict[str, Any]]) -> list[int]:
    return [each["object"]["seats_available"] for each in found]


def test_a_rush_of_bookings_is_announced_at_once_and_once_more_after_the_window(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    clock = announcer.world.clock
    announcer.ops.book(departure)
    (first,) = announcer.work()
    assert (first["object"]["seats_available"], first["changes"]) == (8, None)
    for _ in range(3):
        clock.advance(SECOND)
        announcer.ops.book(departure, email="grace@example.com")
        assert seats(announcer.work()) == [8]
    clock.advance(2 * SECOND)
    _, last = announcer.work()
    shown = announcer.world.database.read(lambda tx: departures.get(tx, announcer.world.caller(), departure))
    assert (last["object"], last["changes"]) == (shown, {"seats_available": 8})
    assert announcer.touches() == []
    clock.advance(HOUR)
    assert len(announcer.work()) == 2
    assert announcer.world.examine() == []


def test_what_gives_the_same_seats_back_is_no_event(announcer: Announcer, endpoint: str, departure: str) -> None:
    booking = announcer.ops.book(departure)
    announcer.work()
    announcer.world.clock.advance(HOUR)
    announcer.ops.cancel(booking["id"])
    announcer.ops.book(departure)
    assert seats(announcer.work()) == [8]
    (counters,) = announcer.world.rows(tables.counters)
    assert announcer.followed() == [counters["last_event_sequence"]]


def test_a_move_announces_both_departures(announcer: Announcer, endpoint: str, departure: str) -> None:
    booking = announcer.ops.book(departure, 2)
    announcer.work()
    world = announcer.world
    world.clock.advance(HOUR)
    other = world.departure(announcer.ops.booking(booking["id"])["experience_id"], starts_at=world.clock() + 3 * DAY)
    announcer.ops.reschedule(booking["id"], other)
    found = {each["object"]["id"]: each["object"]["seats_available"] for each in announcer.work()[1:]}
    assert found[departure] == 9
    assert set(found) == {departure, other}


def test_changes_of_staff_are_announced_with_what_was_before(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    world = announcer.world
    for verb in (
        lambda tx, actor: departures.set_seats(tx, actor, departure, 5),
        lambda tx, actor: departures.close(tx, actor, departure),
    ):
        announcer.ops.act(verb)
        announcer.work()
        world.clock.advance(HOUR)
    announcer.ops.cancel_departure(departure)
    first, closed, cancelled = announcer.work()
    assert (first["object"]["seats_total"], first["changes"]) == (5, None)
    assert closed["changes"] == {"status": "open"}
    assert cancelled["changes"] == {"status": "closed"}


def test_seats_on_hold_are_announced_and_again_when_the_hold_ends(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    announcer.ops.hold(departure, 4, for_s=600)
    assert seats(announcer.work()) == [5]
    announcer.world.clock.advance(599 * SECOND)
    assert seats(announcer.work()) == [5]
    announcer.world.clock.advance(SECOND)
    assert seats(announcer.work()) == [5, 9]


def test_an_organization_that_nobody_listens_to_pays_nothing(announcer: Announcer, departure: str) -> None:
    announcer.hooks.endpoint(EventType.BOOKING_CREATED)
    announcer.ops.book(departure)
    announcer.ops.act(lambda tx, actor: departures.set_seats(tx, actor, departure, 5))
    assert announcer.work() == []
    assert (announcer.touches(), announcer.followed()) == ([], [])


def test_following_ends_with_the_last_subscription_and_begins_anew(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    announcer.ops.book(departure)
    announcer.follow()
    off = WebhookEndpointChange(event_types=[EventType.BOOKING_CREATED])
    write, caller = announcer.world.database.write, announcer.world.caller()
    write(lambda tx: change_endpoint(tx, caller, endpoint, off, is_public=lambda _: True))
    announcer.follow()
    assert (announcer.touches(), announcer.followed()) == ([], [])
    on = WebhookEndpointChange(event_types=[ANNOUNCED], status=WantedStatus.DISABLED)
    write(lambda tx: change_endpoint(tx, caller, endpoint, on, is_public=lambda _: True))
    announcer.ops.book(departure, email="grace@example.com")
    assert seats(announcer.work()) == [7]


def test_a_worker_that_dies_between_any_two_steps_loses_no_change(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    database, org = announcer.world.database, announcer.world.org
    announcer.ops.book(departure)
    database.dry_run(lambda tx: departures.follow(tx, org, [org]))
    announcer.follow()
    database.dry_run(lambda tx: departures.announce(tx, org, [departure]))
    assert announcer.announced() == []
    assert seats(announcer.work()) == [8]
    assert seats(announcer.work()) == [8]


def test_a_transaction_follows_a_bounded_number_of_events(
    announcer: Announcer, endpoint: str, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "EVENTS_MAX", 2)
    announcer.ops.book(departure)
    (before,) = announcer.followed()
    left = announcer.world.database.write(lambda tx: departures.follow(tx, announcer.world.org, [announcer.world.org]))
    assert list(left.left) == [announcer.world.org]
    assert announcer.followed() == [before + 2]


def test_a_booking_takes_as_many_statements_with_a_follower_as_without(
    new_world: Callable[..., World], statements: list[str]
) -> None:
    counts = []
    for kind in (EventType.BOOKING_CREATED, ANNOUNCED):
        world = new_world()
        Hooks(world).endpoint(kind)
        departure = world.departure(world.experience())
        statements.clear()
        Operations(world).book(departure)
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_a_storm_of_one_organization_delays_no_other(
    new_world: Callable[..., World], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch follows a bounded number of events of one organization, and then another one has its turn."""
    stormy, quiet = Announcer(world), Announcer(new_world())
    for each, bookings in ((stormy, 6), (quiet, 1)):
        each.hooks.endpoint(ANNOUNCED)
        departure = each.world.departure(each.world.experience(), seats=99)
        for number in range(bookings):
            each.ops.book(departure, email=f"guest-{number}@example.com")
    sweep = AnnouncementJob(world.database).following
    monkeypatch.setattr(announcing, "EVENTS_MAX", 4)
    found = [asyncio.run(sweep.run_batch(each.world.org)) for each in (stormy, quiet)]
    assert [(each.count, each.has_more) for each in found] == [(1, True), (1, False)]
    assert (len(stormy.touches()), len(quiet.touches())) == (1, 1)


def test_the_job_counts_what_it_published_and_what_looked_the_same(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    world, other = announcer.world, announcer.world.departure(announcer.world.experience())
    announcer.ops.book(departure)
    announcer.work()
    world.clock.advance(HOUR)
    job = AnnouncementJob(world.database)
    asyncio.run(job.run_once())  # those of other tests
    job.results.clear()
    world.clock.advance(SECOND)
    announcer.ops.cancel(announcer.ops.book(departure, email="grace@example.com")["id"])
    announcer.ops.book(other, email="grace@example.com")
    asyncio.run(job.run_once())
    assert job.results == {"published": 1, "unchanged": 1}


HARMS: list[tuple[Callable[[World, str], Any], str]] = [
    (
        lambda world, departure: world.change(tables.departures, departure, seats_total=7, seats_ceiling=7),
        "the last departure.updated shows the departure as it is",
    ),
    (
        lambda world, departure: world.change(tables.departures, departure, status="closed", starts_at=NOON),
        "the last departure.updated shows the departure as it is",
    ),
    (
        lambda world, _: world.database.write(lambda tx: departure_touches.touch(tx, world.org, [NIL_ID], at=1)),
        "a departure that changed is announced",
    ),
    (
        lambda world, _: run(world, "UPDATE departure_followers SET followed_sequence = followed_sequence + 1"),
        "the bookings of an organization are followed up to the end of its log",
    ),
    (
        lambda world, _: run(world, "DELETE FROM departure_followers"),
        "an organization with a subscription to departure.updated is followed",
    ),
]


@pytest.mark.parametrize(("harm", "invariant"), HARMS)
def test_the_doctor_finds_a_departure_that_is_not_announced(
    announcer: Announcer, endpoint: str, departure: str, harm: Callable[[World, str], Any], invariant: str
) -> None:
    world, options = announcer.world, doctor.CheckOptions(overdue_s=60)
    announcer.ops.book(departure)
    announcer.work()
    announcer.follow()  # the announcement itself
    assert world.examine() == []
    harm(world, departure)
    found = world.database.read(lambda tx: doctor.examine(tx, world.org, options))
    assert invariant in {each.invariant for each in found}


def run(world: World, statement: str) -> None:
    """Run a statement on the rows of the organization."""
    owned = text(f"{statement} WHERE organization_id = :o").bindparams(bindparam("o", type_=tables.Id))
    world.database.write(lambda tx: tx.run(Statement(owned), o=world.org))


def test_every_check_of_announcements_has_a_harm_that_it_finds() -> None:
    assert {invariant for _, invariant in HARMS} == {check.invariant for check in announcements.CHECKS}
