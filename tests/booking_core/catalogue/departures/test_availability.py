"""Availability: its departures, their order and their seats."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from support.api.refusals import nothing_changes
from support.databases import databases
from support.databases.plans import explaining
from support.world import rows
from support.world.operations import Operations
from support.world.world import ADULT, DAY, FAMILY, HOUR, NOON, FixedClock, World, make_world

from booking_core.base import tokens
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Unprocessable
from booking_core.catalogue import departures
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.departures import Departure
from booking_core.models.pages import Page

TODAY = date(2026, 11, 21)
"""The local day of NOON."""


def find(world: World, date_from: date = TODAY, date_to: date | None = None, **filters: Any) -> list[dict[str, Any]]:
    page = world.database.read(
        lambda tx: departures.find_available(tx, world.caller(), date_from=date_from, date_to=date_to, **filters)
    )
    assert page["has_more"] is False
    assert page["next_cursor"] is None
    return list(page["data"])


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def hold(world: World, departure_id: str, seats: int, **columns: Any) -> None:
    row = {"expires_at": world.clock() + HOUR, "created_at": world.clock()} | columns
    world.insert(tables.holds, departure_id=departure_id, seats=seats, **row)


def test_the_answer_is_a_page_of_departures_as_the_wire_has_them(world: World) -> None:
    world.departure(world.experience())
    page = world.database.read(lambda tx: departures.find_available(tx, world.caller(), date_from=TODAY))
    assert Page[Departure].model_validate(page).to_json() == page
    assert page["data"][0] == {
        "id": page["data"][0]["id"],
        "experience_id": page["data"][0]["experience_id"],
        "starts_at": "2026-11-23T13:00:00+01:00",
        "starts_at_local": "2026-11-23T13:00:00",
        "timezone": "Europe/Oslo",
        "ends_at": "2026-11-23T15:30:00+01:00",
        "seats_total": 12,
        "seats_available": 12,
        "price": {"amount_minor": 89000, "currency": "NOK"},
        "price_tiers": [ADULT, FAMILY],
        "booking_closes_at": "2026-11-23T13:00:00+01:00",
        "status": "open",
    }


def test_departures_come_by_start_then_id_also_of_unpublished_experiences(world: World) -> None:
    first, second = world.experience(), world.experience(is_published=False)
    late = world.departure(first, starts_at=NOON + 3 * DAY)
    together = sorted(world.departure(experience, starts_at=NOON + DAY) for experience in (first, second))
    assert ids(find(world)) == [*together, late]


def test_both_ends_of_the_window_belong_to_it_and_nothing_beyond(world: World) -> None:
    oslo, tour = world.organization.zone, world.experience()
    start, end = oslo.day_start(TODAY), oslo.day_end(date(2026, 11, 22))
    by_start = {at: world.departure(tour, starts_at=at) for at in (start - 1, start, end - 1, end)}
    assert ids(find(world, TODAY, date(2026, 11, 22))) == [by_start[start], by_start[end - 1]]


def test_without_an_end_the_window_is_thirty_days_more(world: World) -> None:
    tour, oslo = world.experience(), world.organization.zone
    inside = world.departure(tour, starts_at=oslo.day_end(date(2026, 12, 21)) - 1)
    world.departure(tour, starts_at=oslo.day_start(date(2026, 12, 22)))
    assert ids(find(world)) == [inside]


def test_one_experience_can_be_asked_for_and_an_unknown_one_has_none(
    world: World, new_world: Callable[[], World]
) -> None:
    tour, other, foreign = world.experience(), world.experience(), new_world()
    departure = world.departure(tour)
    world.departure(other)
    elsewhere = foreign.experience()
    foreign.departure(elsewhere)
    assert ids(find(world, experience_id=tour)) == [departure]
    assert find(world, experience_id=tokens.new_id()) == []
    assert find(world, experience_id=elsewhere) == []


def test_a_window_too_wide_or_reversed_is_refused_before_anything_is_read(world: World, statements: list[str]) -> None:
    for last, reason in ((date(2027, 2, 22), "window_too_wide"), (date(2026, 11, 20), "window_reversed")):
        with pytest.raises(Unprocessable) as refused:
            find(world, TODAY, last)
        assert (refused.value.details[0].field, refused.value.details[0].reason) == ("to", reason)
    find(world, TODAY, date(2027, 2, 21))
    assert len(statements) == 1


def test_available_seats_exclude_sold_seats_and_live_holds(world: World) -> None:
    tour = world.experience()
    departure, free = world.departure(tour, seats_taken=3), world.departure(tour, starts_at=NOON + 3 * DAY)
    hold(world, departure, 2)
    hold(world, departure, 1, expires_at=world.clock() + 1)
    hold(world, departure, 9, ended_at=world.clock() - 1)
    hold(world, departure, 9, expires_at=world.clock())
    for filters in ({}, {"experience_id": tour}):
        assert {item["id"]: item["seats_available"] for item in find(world, **filters)} == {departure: 6, free: 12}


def test_own_price_own_end_and_own_lead_win(world: World) -> None:
    world.organization = replace(world.organization, hours_before_booking_closes=6)
    tour = world.experience(hours_before_booking_closes=4, price_tiers="[]")
    world.departure(tour, price_minor=119000, ends_at=NOON + 3 * DAY)
    world.departure(world.experience(), starts_at=NOON + 4 * DAY)
    overriding, without = find(world)
    assert overriding["price"] == {"amount_minor": 119000, "currency": "NOK"}
    assert overriding["ends_at"] == "2026-11-24T13:00:00+01:00"
    assert overriding["booking_closes_at"] == "2026-11-23T09:00:00+01:00"
    assert without["booking_closes_at"] == "2026-11-25T07:00:00+01:00", "the lead of the organization"


def test_the_callers_instant_decides_what_is_closed_not_this_machines_clock(world: World) -> None:
    departure = world.departure(world.experience())
    for offset, status in ((2 * DAY - 1, "open"), (2 * DAY, "closed"), (2 * DAY - HOUR, "open")):
        caller = replace(world.caller(), at=NOON + offset)
        page = world.database.read(lambda tx, c=caller: departures.find_available(tx, c, date_from=TODAY))
        assert [(item["id"], item["status"]) for item in page["data"]] == [(departure, status)]


def crowd(url: str, world: World, *, live: int) -> str:
    """Fill 91 days from the 120th on with departures of 55 experiences; each has a hold, so many of them live.

    Returns: one of the experiences.
    """
    row_ids = rows.ids(55)
    experiences = [rows.experience(world.org, next(row_ids), NOON) for _ in range(55)]
    leaving = list(rows.departures(world.org, [experience["id"] for experience in experiences], NOON + 120 * DAY, 91))
    common = {"organization_id": world.org, "seats": 1, "created_at": NOON}
    holds = (
        {**common, "id": row["id"], "departure_id": row["id"], "expires_at": NOON + (HOUR if n < live else -HOUR)}
        for n, row in enumerate(leaving)
    )
    databases.fill(url, tables.experiences, experiences)
    databases.fill(url, tables.departures, leaving)
    databases.fill(url, tables.holds, holds)
    return str(experiences[0]["id"])


@pytest.mark.exhaustive(but="postgresql")
def test_availability_reads_5_000_departures_of_its_window_with_one_statement(
    fresh_database_url: str, clock: FixedClock
) -> None:
    queries: list[str] = []
    first = TODAY + timedelta(120)
    with closing(Database(fresh_database_url, clock=clock)) as database:
        worlds = [make_world(database, clock) for _ in range(4)]
        tour, *_ = (crowd(fresh_database_url, world, live=50) for world in worlds)
        databases.analyze(fresh_database_url)
        database.observer = queries.append
        items = find(worlds[0], first, first + timedelta(92))
    assert len(queries) == 1
    assert len(set(ids(items))) == 91 * 55
    assert sum(item["seats_available"] < item["seats_total"] for item in items) == 50
    caller, window = worlds[0].caller(), {"date_from": first, "date_to": first + timedelta(3)}
    with explaining(fresh_database_url) as explained:
        for experience_id, count in ((None, 4 * 55), (tour, 4)):
            (plan,) = explained(
                lambda tx, of=experience_id: departures.find_available(tx, caller, experience_id=of, **window)
            )
            assert plan.rows == count
            assert plan.scanned.isdisjoint({"departures", "near", "holds"}), plan
            assert "ix_holds_organization_id_departure_id_expires_at" in plan.indexes, plan
            assert any("starts_at" in name or "departures" in name for name in plan.indexes), plan


# Changes by staff ----------------------------------------------------------------------------------------------------


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
    body = ops.close(departure)
    assert (body["status"], body["seats_available"]) == ("closed", 3)
    assert available(world) == [body]
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


def test_a_departure_with_fewer_seats_than_sold_sells_none(ops: Operations, world: World, departure: str) -> None:
    booking = ops.book(departure, 4)
    other = ops.book(departure)
    body = ops.set_seats(departure, 3)
    assert (body["seats_total"], body["seats_available"], body["status"]) == (3, 0, "sold_out")
    row = world.row(tables.departures, departure)
    assert (row["seats_total"], row["seats_ceiling"], row["seats_taken"]) == (3, 5, 5)
    ops.cancel(other["id"])
    assert ops.refusal(ops.book, departure) == ("insufficient_capacity", None)
    ops.cancel(booking["id"])
    ops.book(departure, 3)
    assert ops.seats_taken(departure) == 3
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
