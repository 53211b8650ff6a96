"""Staff finds its own bookings by number, name, address or departure, and reads a report of each local day."""

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.world.operations import Operations, guest, paged_rows
from support.world.world import ADULT, HOUR, World

from booking_core import bookings
from booking_core.base import clock
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.errors import Malformed, NotFound, Unprocessable
from booking_core.bookings import Search
from booking_core.bookings.store import lists
from booking_core.db import tables
from booking_core.db.paging import PageRequest
from booking_core.models.bookings import BookingStatus
from booking_core.models.pages import Order


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=50)


def numbers(ops: Operations, page: PageRequest | None = None, **filters: Any) -> list[int]:
    """Return the numbers of the bookings that are found, on one page."""
    return [booking["booking_number"] for booking in search(ops, page, **filters)["data"]]


def search(ops: Operations, page: PageRequest | None = None, **filters: Any) -> dict[str, Any]:
    request = page or PageRequest()
    return ops.world.database.read(lambda tx: bookings.search(tx, ops.actor, request, Search(**filters)))


def after_a_second(
    ops: Operations, departure: str, name: str = "Ada", email: str = "ada@example.com"
) -> dict[str, Any]:
    """Create a booking later than those before it: bookings of one instant are in the order of their random ids."""
    ops.world.clock.advance(SECOND)
    return ops.book(departure, customer=guest(email, name))


def test_a_booking_is_found_by_its_number_in_its_own_organization(
    ops: Operations, departure: str, new_world: Callable[..., World]
) -> None:
    booked = [ops.book(departure) for _ in range(3)]
    stranger = Operations(new_world())
    stranger.book(stranger.world.departure(stranger.world.experience()))
    assert search(ops, number=2)["data"][0]["id"] == booked[1]["id"]
    assert numbers(ops, number=4) == []
    assert numbers(stranger, number=2) == []


def test_a_number_or_an_id_refers_to_a_booking(ops: Operations, departure: str) -> None:
    first, second = (ops.book(departure)["id"] for _ in range(2))

    def refer(text: str) -> str:
        return ops.world.database.read(lambda tx: bookings.resolve_id(tx, ops.actor.organization, text))

    assert (refer("2"), refer("0002"), refer(first.upper())) == (second, second, first)
    for text in ("3", "-1", "2.0", "two", "", "²", "9" * 18, "9" * 40):
        with pytest.raises(NotFound):
            refer(text)


def test_a_booking_is_found_by_its_guest_s_address_in_any_case(ops: Operations, departure: str) -> None:
    after_a_second(ops, departure, "Ada", "Ada@Example.com")
    after_a_second(ops, departure, "Eve", "eve@example.com")
    after_a_second(ops, departure, "Ada", "ada@example.com")
    assert numbers(ops, email="ADA@example.com ") == [3, 1]
    assert numbers(ops, email="nobody@example.com") == []


def test_an_address_that_was_changed_finds_what_was_booked_under_both(ops: Operations, departure: str) -> None:
    ops.book(departure, email="old@example.com")
    (customer,) = ops.world.rows(tables.customers)
    ops.update_customer(customer["id"], email="new@example.com")
    after_a_second(ops, departure, email="new@example.com")
    assert numbers(ops, email="new@example.com") == [2, 1]
    assert numbers(ops, email="OLD@example.com") == [1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lovelace", [1]),
        ("LOVE ada", [1]),
        ("Lovelace, Ada", [1]),
        ("jose", [2]),
        ("José", [2]),
        ("øyvind", [3]),
        ("strasse", [4]),
        ("nobody", []),
    ],
)
def test_a_booking_is_found_by_words_of_the_guest_s_name(
    ops: Operations, departure: str, name: str, expected: list[int]
) -> None:
    for number, guest_name in enumerate(("Ada Lovelace", "Jose\u0301 Pérez", "ØYVIND Ås", "Straße")):
        after_a_second(ops, departure, guest_name, f"guest{number}@example.com")
    assert numbers(ops, name=name) == expected


def test_a_name_of_blanks_is_refused(ops: Operations) -> None:
    with pytest.raises(Malformed):
        search(ops, name="  ")


def test_conditions_are_met_together(ops: Operations, world: World, departure: str) -> None:
    other = world.departure(world.experience(), seats=5)
    after_a_second(ops, departure)
    after_a_second(ops, other)
    cancelled = after_a_second(ops, other)
    ops.cancel(cancelled["id"])
    after_a_second(ops, other, "Eve", "eve@example.com")
    assert numbers(ops, departure_id=other) == [4, 3, 2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CONFIRMED) == [4, 2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CONFIRMED, email="ada@example.com") == [2]
    assert numbers(ops, departure_id=other, status=BookingStatus.CANCELLED, name="ada") == [3]
    assert numbers(ops, number=2, name="eve") == []


@pytest.mark.parametrize("filters", [{"name": "ada"}, {"email": "ada@example.com"}, {}], ids=["name", "email", "none"])
@pytest.mark.parametrize("order", list(Order))
def test_pages_repeat_and_skip_nothing_also_across_slices(
    ops: Operations, departure: str, filters: dict[str, str], order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SLICE", 3)
    lists._texts.cache_clear()
    for _ in range(8):  # all at one instant
        ops.book(departure)
    walked = paged_rows(lambda page: search(ops, page, **filters), 3, order)
    lists._texts.cache_clear()
    ids = [booking["id"] for booking in walked]
    assert ids == sorted((row["id"] for row in ops.world.rows(tables.bookings)), reverse=order is Order.DESC)


def test_a_cursor_belongs_to_its_search(ops: Operations, departure: str) -> None:
    for _ in range(2):
        ops.book(departure)
    cursor = search(ops, PageRequest(1), name="ada")["next_cursor"]
    for filters in ({"name": "eve"}, {"name": "ada", "number": 1}, {}):
        with pytest.raises(Malformed):
            search(ops, PageRequest(1, starting_after=cursor), **filters)


# Reports -------------------------------------------------------------------------------------------------------------


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
    (row,) = [row for row in rows if row["date"] == day]
    return row


def test_a_day_begins_and_ends_at_midnight_of_the_organization(world: World, ops: Operations) -> None:
    today = world.organization.zone.wall(world.clock()).date()
    yesterday = today - timedelta(1)
    book_at(world, ops, at(yesterday, 0), at(yesterday, 23, 59), at(today, 0))
    days = report(world)["days"]
    assert [day["date"] for day in days] == [str(today - timedelta(age)) for age in range(28, -1, -1)]
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
    sales = report(world)
    amounts = [{"amount_minor": 1500, "currency": "JPY"}, {"amount_minor": 3 * 89000, "currency": "NOK"}]
    sold = {"bookings": 3, "seats": 6, "amounts": amounts, "pending": 1, "cancelled": 1}
    assert sales["totals"] == sold | {"departures": 2, "seats_sold": 7, "seats_total": 24}
    assert sales["days"][-1] == {"date": sales["today"]} | sold
    by_experience = [(row["title"], row["bookings"], row["seats"]) for row in sales["experiences"]]
    assert by_experience == [("Kayak", 2, 3), ("Onsen", 1, 3)]
    (cancelled,) = sales["cancellations"]
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
    sales = report(world)
    assert by_date(sales["occupancy"], str(tomorrow)) == {
        "date": str(tomorrow), "departures": 1, "seats_sold": 3, "seats_total": 8,
    }  # fmt: skip
    assert (sales["totals"]["departures"], sales["totals"]["seats_total"]) == (2, 13)
    assert sales["experiences"][0]["occupancy"] == sales["occupancy"]
    assert len(sales["occupancy"]) == 29


def test_another_organization_and_an_empty_one_add_nothing(
    world: World, ops: Operations, new_world: Callable[..., World]
) -> None:
    other_world = new_world()
    Operations(other_world).book(other_world.departure(other_world.experience()))
    sales = report(world)
    assert (sales["totals"]["bookings"], sales["experiences"], sales["cancellations"]) == (0, [], [])
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
