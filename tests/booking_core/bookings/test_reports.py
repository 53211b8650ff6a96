"""The report counts the bookings of each local day, by experience and currency, and the seats of each day ahead."""

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.world.operations import Operations
from support.world.world import ADULT, HOUR, World

from booking_core import bookings
from booking_core.base import clock
from booking_core.base.clock import MINUTE
from booking_core.base.errors import Unprocessable

OSLO = ZoneInfo("Europe/Oslo")


def at(day: date, hour: int, minute: int = 0) -> int:
    return clock.from_datetime(datetime(day.year, day.month, day.day, hour, minute, tzinfo=OSLO))


def book_at(world: World, ops: Operations, *instants: int) -> None:
    """Book a seat of a new departure at each of the instants, which are in the past."""
    now = world.clock.at
    world.clock.at = instants[0]
    departure = world.departure(world.experience(), starts_at=now + 24 * HOUR)
    for instant in instants:
        world.clock.at = instant
        ops.book(departure)
    world.clock.at = now


def report(world: World, first: int = -28, last: int = 28) -> dict[str, Any]:
    day = world.organization.zone.wall(world.clock()).date()
    begin, end = day + timedelta(first), day + timedelta(last)
    return world.database.read(lambda tx: bookings.get_report(tx, world.caller(), date_from=begin, date_to=end))


def by_date(rows: list[dict[str, Any]], day: str) -> dict[str, Any]:
    (found,) = [each for each in rows if each["date"] == day]
    return found


def test_a_day_begins_and_ends_at_midnight_of_the_organization(world: World, ops: Operations) -> None:
    today = world.organization.zone.wall(world.clock()).date()
    yesterday = today - timedelta(1)
    book_at(world, ops, at(yesterday, 0), at(yesterday, 23, 59), at(today, 0))
    days = report(world)["days"]
    assert [each["date"] for each in days] == [str(today - timedelta(each)) for each in range(28, -1, -1)]
    assert (by_date(days, str(yesterday))["bookings"], by_date(days, str(today))["bookings"]) == (2, 1)
    assert report(world, -1, 0)["totals"]["bookings"] == 3
    assert report(world, 0, 0)["totals"]["bookings"] == 1


def test_sales_are_the_confirmed_bookings_and_amounts_are_by_currency(world: World, ops: Operations) -> None:
    in_yen = json.dumps([ADULT | {"price": {"amount_minor": 500, "currency": "JPY"}}])
    first = world.departure(world.experience(title="Kayak"))
    second = world.departure(world.experience(title="Onsen", currency="JPY", price_tiers=in_yen))
    ops.book(first, 2), ops.book(first, 1), ops.book(second, 3)
    ops.check_out(first, 1)
    ops.cancel(ops.book(first, 4)["id"])
    found = report(world)
    amounts = [{"amount_minor": 1500, "currency": "JPY"}, {"amount_minor": 3 * 89000, "currency": "NOK"}]
    sold = {"bookings": 3, "seats": 6, "amounts": amounts, "pending": 1, "cancelled": 1}
    assert found["totals"] == sold | {"departures": 2, "seats_sold": 7, "seats_total": 24}
    assert found["days"][-1] == {"date": found["today"]} | sold
    by_experience = [(each["title"], each["bookings"], each["seats"]) for each in found["experiences"]]
    assert by_experience == [("Kayak", 2, 3), ("Onsen", 1, 3)]
    (cancelled,) = found["cancellations"]
    assert cancelled["bookings"] == 1
    assert cancelled["amounts"] == [{"amount_minor": 4 * 89000, "currency": "NOK"}]


def test_a_gift_card_pays_and_is_no_discount(world: World, ops: Operations) -> None:
    _, code = ops.issue(4000)
    ops.book(world.departure(world.experience()), gift_card_code=code, discount_minor=5000)
    assert report(world)["totals"]["amounts"] == [{"amount_minor": 84000, "currency": "NOK"}]


def test_the_occupancy_is_of_today_and_later_without_cancelled_departures(world: World, ops: Operations) -> None:
    tour = world.experience()
    today = world.organization.zone.wall(world.clock()).date()
    tomorrow = today + timedelta(1)
    departure = world.departure(tour, seats=8, starts_at=at(tomorrow, 23, 59))
    ops.book(departure, 3)
    world.departure(tour, seats=10, starts_at=at(tomorrow, 0), status="cancelled")
    world.departure(tour, seats=10, starts_at=at(today, 0) - MINUTE)
    world.departure(tour, seats=5, starts_at=at(today + timedelta(2), 0))
    found = report(world)
    assert by_date(found["occupancy"], str(tomorrow)) == {
        "date": str(tomorrow), "departures": 1, "seats_sold": 3, "seats_total": 8,
    }  # fmt: skip
    assert (found["totals"]["departures"], found["totals"]["seats_total"]) == (2, 13)
    assert found["experiences"][0]["occupancy"] == found["occupancy"]
    assert len(found["occupancy"]) == 29


def test_another_organization_and_an_empty_one_add_nothing(
    world: World, ops: Operations, new_world: Callable[..., World]
) -> None:
    other_world = new_world()
    Operations(other_world).book(other_world.departure(other_world.experience()))
    found = report(world)
    assert (found["totals"]["bookings"], found["experiences"], found["cancellations"]) == (0, [], [])
    assert report(other_world)["totals"]["bookings"] == 1


def test_a_period_ahead_has_no_sales_and_a_wide_one_is_refused(world: World) -> None:
    ahead = report(world, 3, 5)
    assert (ahead["days"], len(ahead["occupancy"])) == ([], 3)
    for first, last in ((-60, 60), (3, 2)):
        with pytest.raises(Unprocessable):
            report(world, first, last)


def test_a_day_of_25_hours_is_one_day(world: World, ops: Operations) -> None:
    day = date(2026, 10, 25)  # the clocks go back in Oslo
    book_at(world, ops, at(day, 0), at(day, 0) + 25 * HOUR - MINUTE)
    days = report(world, -40, 0)["days"]
    assert by_date(days, str(day))["bookings"] == 2
