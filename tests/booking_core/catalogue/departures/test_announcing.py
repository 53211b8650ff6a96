"""Departures are announced once in a window, with their last state, and only where an endpoint wants it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import DAY, HOUR, NOON, World

from booking_core.base.clock import MINUTE, SECOND
from booking_core.catalogue import departures
from booking_core.catalogue.departures import announcing
from booking_core.db import tables
from booking_core.models.events import EventType
from booking_core.models.webhooks import WantedStatus, WebhookEndpointChange
from booking_core.upkeep import doctor
from booking_core.webhooks import change as change_endpoint
from booking_server.worker.jobs import announcement_job

ANNOUNCED = EventType.DEPARTURE_UPDATED


class Announcer:
    """Does the worker's part for one organization."""

    def __init__(self, world: World) -> None:
        self.world, self.ops, self.hooks = world, Operations(world), Hooks(world)

    def work(self) -> list[dict[str, Any]]:
        """Make the due announcements, and return the data of every announcement so far."""
        due = [row["id"] for row in self.touched()]
        self.world.database.write(lambda tx: departures.announce(tx, self.world.org, due))
        return self.announced()

    def announced(self) -> list[dict[str, Any]]:
        return [event["data"] for event in self.ops.events() if event["type"] == ANNOUNCED]

    def touched(self) -> list[dict[str, Any]]:
        return [row for row in self.world.rows(tables.departures) if row["announce_at"] is not None]


@pytest.fixture
def announcer(world: World) -> Announcer:
    return Announcer(world)


@pytest.fixture
def endpoint(announcer: Announcer) -> str:
    return announcer.hooks.endpoint(ANNOUNCED)


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=9)


def seats(announcements: list[dict[str, Any]]) -> list[int]:
    return [announcement["object"]["seats_available"] for announcement in announcements]


def test_many_bookings_are_announced_at_once_and_again_after_the_window(
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
        assert [row["announce_at"] for row in announcer.touched()] == [NOON + announcing.WINDOW]
    clock.advance(2 * SECOND)
    _, last = announcer.work()
    body = announcer.world.database.read(lambda tx: departures.get(tx, announcer.world.caller(), departure))
    assert (last["object"], last["changes"]) == (body, {"seats_available": 8})
    assert announcer.touched() == []
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
    assert announcer.touched() == []


def test_a_move_announces_both_departures(announcer: Announcer, endpoint: str, departure: str) -> None:
    booking = announcer.ops.book(departure, 2)
    announcer.work()
    world = announcer.world
    world.clock.advance(HOUR)
    other = world.departure(announcer.ops.booking(booking["id"])["experience_id"], starts_at=world.clock() + 3 * DAY)
    announcer.ops.reschedule(booking["id"], other)
    available = {data["object"]["id"]: data["object"]["seats_available"] for data in announcer.work()[1:]}
    assert available[departure] == 9
    assert set(available) == {departure, other}


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


def test_followers_of_the_feed_alone_see_every_change_with_the_setting(announcer: Announcer, departure: str) -> None:
    world, ops = announcer.world, announcer.ops
    world.change(tables.organizations, world.org, availability_events=True)
    world.clock.advance(HOUR)
    ops.book(departure)
    announcer.work()
    world.clock.advance(HOUR)
    hold = ops.hold(departure, 4)
    announcer.work()
    world.clock.advance(MINUTE)
    ops.release(hold)
    assert seats(announcer.work()) == [8, 4, 8]
    assert world.examine() == []
    world.change(tables.organizations, world.org, availability_events=False)
    world.clock.advance(HOUR)
    ops.book(departure, email="grace@example.com")
    assert seats(announcer.work()) == [8, 4, 8]
    assert announcer.touched() == []


def test_an_event_that_misses_a_change_is_found_with_the_setting(announcer: Announcer, departure: str) -> None:
    world = announcer.world
    world.change(tables.organizations, world.org, availability_events=True)
    world.clock.advance(HOUR)
    announcer.ops.book(departure)
    announcer.work()
    world.change(tables.departures, departure, seats_total=20, seats_ceiling=20)
    (finding,) = world.examine()
    assert finding.invariant == "the last departure.updated shows the departure as it is"
    world.change(tables.organizations, world.org, updated_at=world.clock())  # switched off and on since
    assert world.examine() == []


def test_an_organization_that_nobody_listens_to_pays_nothing(announcer: Announcer, departure: str) -> None:
    announcer.hooks.endpoint(EventType.BOOKING_CREATED)
    announcer.ops.book(departure)
    announcer.ops.act(lambda tx, actor: departures.set_seats(tx, actor, departure, 5))
    assert announcer.work() == []
    assert announcer.touched() == []


def test_announcements_end_with_the_last_subscription_and_begin_with_the_next(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    def subscribe(change: WebhookEndpointChange) -> None:
        world = announcer.world
        world.database.write(lambda tx: change_endpoint(tx, world.caller(), endpoint, change, is_public=lambda _: True))

    announcer.ops.book(departure)
    assert seats(announcer.work()) == [8]
    announcer.world.clock.advance(HOUR)
    announcer.ops.book(departure, email="grace@example.com")
    subscribe(WebhookEndpointChange(event_types=[EventType.BOOKING_CREATED]))
    assert (seats(announcer.work()), announcer.touched()) == ([8], [])
    subscribe(WebhookEndpointChange(event_types=[ANNOUNCED], status=WantedStatus.DISABLED))
    assert announcer.world.examine() == []
    announcer.ops.book(departure, email="joan@example.com")
    assert seats(announcer.work()) == [8, 6]


def test_a_worker_that_dies_loses_no_change(announcer: Announcer, endpoint: str, departure: str) -> None:
    database, org = announcer.world.database, announcer.world.org
    announcer.ops.book(departure)
    database.dry_run(lambda tx: departures.announce(tx, org, [departure]))
    assert announcer.announced() == []
    assert seats(announcer.work()) == [8]
    assert seats(announcer.work()) == [8]


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


def test_the_job_counts_what_it_published_and_what_looked_the_same(
    announcer: Announcer, endpoint: str, departure: str
) -> None:
    world, other = announcer.world, announcer.world.departure(announcer.world.experience())
    announcer.ops.book(departure)
    announcer.work()
    world.clock.advance(HOUR)
    job = announcement_job(world.database)
    asyncio.run(job.run_once())  # announcements of other tests
    job.results.clear()
    world.clock.advance(SECOND)
    announcer.ops.cancel(announcer.ops.book(departure, email="grace@example.com")["id"])
    announcer.ops.book(other, email="grace@example.com")
    asyncio.run(job.run_once())
    assert job.results == {"published": 1, "unchanged": 1}


HARMS: list[tuple[str, dict[str, Any]]] = [
    ("announced_states", {"seats_total": 7, "seats_ceiling": 7}),
    ("announced_states", {"status": "closed", "starts_at": NOON}),
    ("announcements", {"announce_at": 1}),
]
"""Checks of the doctor, each with columns of a departure that break it."""


@pytest.mark.parametrize(("check", "columns"), HARMS)
def test_the_doctor_finds_a_departure_that_is_not_announced(
    announcer: Announcer, endpoint: str, departure: str, check: str, columns: dict[str, Any]
) -> None:
    world, options = announcer.world, doctor.CheckOptions(overdue_s=60)
    announcer.ops.book(departure)
    announcer.work()
    assert world.examine() == []
    world.change(tables.departures, departure, **columns)
    findings = world.database.read(lambda tx: doctor.examine(tx, world.org, options))
    names = {doctor_check.invariant: doctor_check.name for doctor_check in doctor.CHECKS}
    assert check in {names[finding.invariant] for finding in findings}
