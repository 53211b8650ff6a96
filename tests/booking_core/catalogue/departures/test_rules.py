"""Seats, ends, closing times, status and windows of days."""

import json
from datetime import date

import orjson
import pytest
from support.world.world import ADULT, DAY, FAMILY, HOUR, NOON

from booking_core.base.clock import MINUTE, SECOND, zone
from booking_core.catalogue import departures
from booking_core.catalogue.departures import rules
from booking_core.models.departures import Departure

OSLO = zone("Europe/Oslo")
ROW = (
    "0193a6c4-0000-7000-8000-000000000001",
    "0193a6c4-0000-7000-8000-000000000002",
    NOON + 5 * SECOND,
    None,
    "open",
    12,
    3,
    2,
    None,
    None,
    89000,
    "[]",
    "NOK",
    150,
    4,
)


@pytest.mark.parametrize(
    ("price_minor", "advertised", "price"),
    [(None, 89000, 89000), (95000, 89000, 95000), (0, 89000, 0), (95000, None, 95000), (None, None, None)],
)
def test_a_departure_is_shown_exactly_as_the_wire_has_it(
    price_minor: int | None, advertised: int | None, price: int | None
) -> None:
    row = (*ROW[:8], price_minor, None, advertised, *ROW[11:])
    body = rules.presenter(OSLO, 0, NOON - DAY)(row)
    assert Departure.model_validate(body).to_json() == body
    assert list(body) == list(Departure.model_fields)
    assert body["price"] == (None if price is None else {"amount_minor": price, "currency": "NOK"})


TIERS = json.dumps([ADULT, FAMILY])


@pytest.mark.parametrize(
    ("price", "prices", "tiers", "amounts"),
    [
        (None, None, TIERS, {"adult": 89000, "family": 250000}),
        (None, '{"adult":99000}', TIERS, {"adult": 99000, "family": 250000}),
        (None, '{"adult":89000}', TIERS, {"adult": 89000, "family": 250000}),
        (None, '{"gone":1}', TIERS, {"adult": 89000, "family": 250000}),
        (70000, None, TIERS, {"adult": 89000, "family": 250000}),
        (70000, None, "[]", {"standard": 70000}),
        (89000, None, "[]", {"standard": 89000}),
        (None, None, "[]", {"standard": 89000}),
    ],
)
def test_the_tiers_are_shown_at_the_prices_that_are_charged(
    price: int | None, prices: str | None, tiers: str, amounts: dict[str, int]
) -> None:
    body = rules.presenter(OSLO, 0, NOON)((*ROW[:8], price, prices, 89000, tiers, *ROW[12:]))
    assert Departure.model_validate(body).to_json() == body
    assert {tier["id"]: tier["price"]["amount_minor"] for tier in body["price_tiers"]} == amounts


def test_prices_on_one_page_are_those_of_each_departure() -> None:
    dear = TIERS.replace("89000", "91000")
    priced = [
        (experience, price, prices, 89000, tiers, currency)
        for experience, tiers, currency in (("a", TIERS, "NOK"), ("b", dear, "SEK"), ("c", "[]", "NOK"))
        for price, prices in ((None, None), (70000, None), (None, '{"adult":99000}'), (None, '{"adult":98000}'))
    ]
    rows = [
        (ROW[0], experience, *ROW[2:8], price, prices, advertised, tiers, currency, *ROW[13:])
        for experience, price, prices, advertised, tiers, currency in priced * 2
    ]
    on_one_page = list(map(rules.presenter(OSLO, 0, NOON), rows))
    assert on_one_page == [rules.presenter(OSLO, 0, NOON)(row) for row in rows]


def test_json_of_a_departure_follows_its_row_and_its_closing() -> None:
    changes = {
        "id": ROW[1],
        "experience_id": ROW[0],
        "starts_at": NOON,
        "ends_at": NOON + HOUR,
        "status": "cancelled",
        "seats_total": 13,
        "seats_taken": 4,
        "seats_held": 12,
        "price_minor": 70000,
        "prices": '{"adult":99000}',
        "price_from_minor": 91000,
        "price_tiers": TIERS,
        "currency": "SEK",
        "duration_minutes": 90,
        "hours_before_booking_closes": None,
    }
    first = rules.DepartureRow(*ROW)
    rows = [first, *(first._replace(**{name: value}) for name, value in changes.items()), first]
    assert list(changes) == list(rules.DepartureRow._fields)
    for place in [
        (OSLO, 0, NOON - 4 * HOUR),
        (OSLO, 0, NOON - 4 * HOUR + 6 * SECOND),
        (zone("Asia/Tokyo"), 2, NOON),
    ] * 2:
        rendered = [json.loads(orjson.dumps(fragment)) for fragment in map(rules.renderer(*place), rows)]
        assert rendered == list(map(rules.presenter(*place), rows))


def test_the_start_is_also_shown_as_wall_time_with_its_zone() -> None:
    body = rules.presenter(OSLO, 0, NOON)(ROW)
    assert (body["starts_at_local"], body["timezone"]) == (body["starts_at"][:-6], "Europe/Oslo")
    departure = Departure.model_validate(body)
    assert departure.starts_at_local == departure.starts_at.replace(tzinfo=None)
    former = {name: value for name, value in body.items() if name not in ("starts_at_local", "timezone")}
    assert Departure.model_validate(former).timezone is None


@pytest.mark.parametrize(
    ("total", "sold", "on_hold", "available"),
    [(12, 0, 0, 12), (12, 3, 2, 7), (12, 12, 0, 0), (5, 9, 0, 0), (5, 4, 3, 0)],
)
def test_seats_left_are_never_negative(total: int, sold: int, on_hold: int, available: int) -> None:
    assert departures.seats_available(total, sold, on_hold) == available


def test_a_departure_ends_at_its_own_end_or_after_the_duration() -> None:
    assert departures.ends_at(NOON, NOON + 7, 150) == NOON + 7
    assert departures.ends_at(NOON, None, 150) == NOON + 150 * MINUTE
    assert departures.ends_at(NOON, None, None) == NOON


def test_lead_hours_of_the_experience_win_over_those_of_the_organization() -> None:
    assert departures.closes_at(NOON, 4, 24) == NOON - 4 * HOUR
    assert departures.closes_at(NOON, 0, 24) == NOON
    assert departures.closes_at(NOON, None, 24) == NOON - 24 * HOUR


@pytest.mark.parametrize(
    ("stored", "is_past_closing", "available", "status"),
    [
        ("open", False, 1, "open"),
        ("open", True, 1, "closed"),
        ("open", False, 0, "sold_out"),
        ("open", True, 0, "closed"),
        ("closed", False, 1, "closed"),
        ("closed", False, 0, "closed"),
        ("cancelled", False, 1, "cancelled"),
        ("cancelled", True, 0, "cancelled"),
    ],
)
def test_cancelled_beats_closed_beats_sold_out_beats_open(
    stored: str, is_past_closing: bool, available: int, status: str
) -> None:
    assert rules.status(stored, is_past_closing, available, has_price=True) == status


def test_a_departure_without_a_tier_and_a_price_is_closed() -> None:
    unpriced = (*ROW[:8], None, None, None, "[]", *ROW[12:])
    present = rules.presenter(OSLO, 0, NOON - 5 * HOUR)
    body = present(unpriced)
    assert (body["status"], body["price"], body["price_tiers"]) == ("closed", None, [])
    free = (*ROW[:1], "another experience", *unpriced[2:8], 0, *unpriced[9:])
    assert present(free)["status"] == "open"


@pytest.mark.parametrize("name", ["Pacific/Kiritimati", "Etc/GMT+12", "Europe/Oslo"])
def test_windows_hold_to_both_ends_of_the_calendar(name: str) -> None:
    assert rules.default_last_day(date(9999, 12, 31)) == date.max
    assert rules.default_last_day(date(9999, 12, 1)) == date(9999, 12, 31)
    assert rules.default_last_day(date(2026, 12, 1)) == date(2026, 12, 31)
    for day in (date.min, date.max):
        start, end = departures.window(zone(name), day, rules.default_last_day(day), field="to")
        assert start < end
