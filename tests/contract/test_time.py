"""Days, offsets and clocks where they are not what one expects (decisions R10, L3, B2)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from support.api.api import Api
from support.api.refusals import conflict_reason
from support.world.world import DAY, HOUR, NOON, World

from booking_core.base.clock import SECOND
from booking_core.db import tables

pytestmark = pytest.mark.one_database

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(text: str) -> int:
    """Return the timestamp of an ISO 8601 text with an offset."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def starts(api: Api, day: str, last: str | None = None) -> list[str]:
    page = api.get("/availability", **{"from": day, "to": last or day}).json()
    return [departure["starts_at"] for departure in page["data"]]


@pytest.fixture
def place(api: Api, new_world: Callable[..., World]) -> Callable[[str], Api]:
    """An organization in that time zone."""
    return lambda timezone: Api(api.client, new_world(timezone=timezone))


DAYS = [
    ("America/Santiago", "2026-09-06", "2026-09-06T01:00:00-03:00", 23.0),  # midnight is skipped
    ("Africa/Cairo", "2026-04-24", "2026-04-24T01:00:00+03:00", 23.0),  # midnight is skipped
    ("America/Havana", "2026-03-08", "2026-03-08T01:00:00-04:00", 23.0),  # midnight is skipped
    ("America/Havana", "2024-11-03", "2024-11-03T00:00:00-04:00", 25.0),  # midnight happens twice
    ("Europe/Oslo", "2026-03-29", "2026-03-29T00:00:00+01:00", 23.0),
    ("Europe/Berlin", "2026-10-25", "2026-10-25T00:00:00+02:00", 25.0),
    ("Australia/Lord_Howe", "2026-04-05", "2026-04-05T00:00:00+11:00", 24.5),
    ("Australia/Lord_Howe", "2026-10-04", "2026-10-04T00:00:00+10:30", 23.5),
    ("Africa/Casablanca", "2026-02-15", "2026-02-15T00:00:00+01:00", 25.0),
    ("Asia/Kathmandu", "2026-11-21", "2026-11-21T00:00:00+05:45", 24.0),
    ("Pacific/Kiritimati", "2026-11-21", "2026-11-21T00:00:00+14:00", 24.0),
    ("Etc/GMT+12", "2026-11-21", "2026-11-21T00:00:00-12:00", 24.0),
]


@pytest.mark.parametrize(("timezone", "day", "begins", "hours"), DAYS, ids=lambda value: str(value))
def test_a_local_day_is_as_long_as_its_zone_has_it(
    place: Callable[[str], Api], timezone: str, day: str, begins: str, hours: float
) -> None:
    api = place(timezone)
    first, after = micros(begins), micros(begins) + round(hours * HOUR)
    experience = api.world.experience()
    ids = {at: api.world.departure(experience, starts_at=at) for at in (first - 1, first, after - SECOND, after)}
    of_the_day = api.get("/availability", **{"from": day, "to": day}).json()["data"]
    assert [departure["id"] for departure in of_the_day] == [ids[first], ids[after - SECOND]]
    assert of_the_day[0]["starts_at"] == begins
    for departure in of_the_day:
        start = datetime.fromisoformat(departure["starts_at"])
        assert start.utcoffset() == start.astimezone(ZoneInfo(timezone)).utcoffset()
        assert departure["starts_at"].startswith(day)


@pytest.mark.parametrize(("timezone", "day", "begins", "hours"), DAYS, ids=lambda value: str(value))
def test_bookings_are_found_by_the_same_days(
    place: Callable[[str], Api], timezone: str, day: str, begins: str, hours: float
) -> None:
    api = place(timezone)
    api.world.clock.at = micros(begins) - 30 * DAY
    first, after = micros(begins), micros(begins) + round(hours * HOUR)
    experience = api.world.experience()
    booked = [
        api.book(api.world.departure(experience, starts_at=at)).json()["id"]
        for at in (first - 1, first, after - SECOND, after)
    ]
    page = api.get("/bookings", departure_from=day, departure_to=day, order="asc").json()
    assert [booking["id"] for booking in page["data"]] == booked[1:3]


def test_a_wall_time_that_happens_twice_is_two_departures(place: Callable[[str], Api]) -> None:
    api = place("Europe/Berlin")
    experience = api.world.experience()
    at = micros("2026-10-25T02:30:00+02:00")
    api.world.departure(experience, starts_at=at)
    api.world.departure(experience, starts_at=at + HOUR)
    assert starts(api, "2026-10-25") == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]


def test_closing_and_duration_are_elapsed_hours_across_a_clock_change(place: Callable[[str], Api]) -> None:
    api = place("Europe/Berlin")
    experience = api.world.experience(hours_before_booking_closes=24, duration_minutes=180)
    start = micros("2026-10-25T12:00:00+01:00")
    departure = api.world.departure(experience, starts_at=start)
    night = api.world.departure(experience, starts_at=micros("2026-10-25T01:00:00+02:00"))
    first, second = api.get("/availability", **{"from": "2026-10-25", "to": "2026-10-25"}).json()["data"]
    assert (first["id"], first["ends_at"]) == (night, "2026-10-25T03:00:00+01:00")
    assert second["booking_closes_at"] == "2026-10-24T13:00:00+02:00"
    api.world.clock.at = start - 24 * HOUR - 1
    assert api.book(departure).status_code == 201
    api.world.clock.at = start - 24 * HOUR
    assert conflict_reason(api.book(departure)) == "departure_closed"


def test_a_changed_time_zone_keeps_published_events_and_shows_the_new_offset(api: Api) -> None:
    world = api.world
    booking = api.book(world.departure(world.experience())).json()
    (event,) = [event for event in api.get("/events").json()["data"] if event["type"] == "booking.created"]
    assert event["created_at"] == "2026-11-21T13:00:00+01:00"
    world.change(tables.organizations, world.org, timezone="Asia/Kathmandu")
    assert api.get(f"/events/{event['id']}").json() == event
    moved = api.get(f"/bookings/{booking['id']}").json()
    assert moved["created_at"] == "2026-11-21T17:45:00+05:45"
    assert moved["departure"]["starts_at"] == "2026-11-23T17:45:00+05:45"
    assert micros(moved["created_at"]) == micros(booking["created_at"])
    assert starts(api, "2026-11-23") == ["2026-11-23T17:45:00+05:45"]


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "ahead"])
def test_a_clock_that_jumps_takes_nothing_with_it(api: Api, jump: int) -> None:
    world = api.world
    departure = world.departure(world.experience())
    first = api.book(departure, key="before-the-jump")
    world.clock.advance(jump)
    replayed = api.book(departure, key="before-the-jump")
    assert (replayed.content, replayed.headers["idempotent-replayed"]) == (first.content, "true")
    second = api.book(departure).json()
    assert second["booking_number"] == 2
    cancelled = api.cancel(first.json()["id"]).json()
    assert micros(cancelled["updated_at"]) >= micros(cancelled["created_at"])
    sequences = [event["sequence"] for event in api.get("/events", order="asc").json()["data"]]
    assert sequences == list(range(1, 7))
    assert world.examine() == []


def test_a_key_and_a_hold_end_by_the_clock_wherever_it_jumps(api: Api) -> None:
    world = api.world
    departure = world.departure(world.experience(), seats=1)
    world.insert(tables.holds, departure_id=departure, seats=1, expires_at=NOON + HOUR, created_at=NOON)
    brief = api.with_scopes(expires_at=NOON + HOUR)
    for at, is_held in ((NOON, True), (NOON - HOUR, True), (NOON + HOUR, False), (NOON + HOUR - 1, True)):
        world.clock.at = at
        (listed,) = api.get("/availability", **{"from": "2026-11-20"}).json()["data"]
        assert listed["seats_available"] == (0 if is_held else 1)
        assert brief.get("/me").status_code == (200 if is_held else 401)


SINCE = {
    True: (
        *("2026-11-21T13:00:00+01:00", "2026-11-21T07:00:00-05:00", "2026-11-21T17:45:00+05:45"),
        *("2026-11-21T12:00:00Z", "2026-11-21T12:00:00z", "2026-11-21T13:00:00.000000+01:00"),
        *("2026-11-21T13:00:00", "2026-11-21T13:00", "2026-11-21"),
    ),
    False: (
        *("2026-11-21T13:00:00.000001+01:00", "2026-11-21T13:00:01+01:00", "2026-11-21T12:00:01Z"),
        *("2026-11-21T13:00:01", "2026-11-22"),
    ),
}


@pytest.mark.parametrize("is_found", SINCE)
@pytest.mark.parametrize("is_escaped", [True, False], ids=["escaped", "unescaped"])
def test_a_timestamp_is_read_with_its_offset_or_as_local(api: Api, is_found: bool, is_escaped: bool) -> None:
    """The booking was changed at 13:00 in Oslo to the microsecond; a plus that was not escaped arrives as a blank."""
    api.book(api.world.departure(api.world.experience()))
    for since in SINCE[is_found]:
        query = since.replace("+", "%2B") if is_escaped else since
        page = api.call("GET", f"/bookings?updated_since={query}").json()
        assert (since, bool(page["data"])) == (since, is_found)
        if "+" in since and not is_escaped:
            assert api.call("GET", f"/bookings?updated_since={since.replace('+', '%20')}").json() == page


def test_timestamps_are_shown_to_the_second_and_compared_to_the_microsecond(api: Api) -> None:
    api.world.clock.at = NOON + 999_999
    booking = api.book(api.world.departure(api.world.experience())).json()
    assert booking["created_at"] == "2026-11-21T13:00:00+01:00"
    for since, count in (("13:00:00.999999", 1), ("13:00:01", 0)):
        assert len(api.get("/bookings", updated_since=f"2026-11-21T{since}+01:00").json()["data"]) == count


def test_every_timestamp_carries_the_offset_of_its_own_instant(place: Callable[[str], Api]) -> None:
    api = place("Europe/London")
    summer = micros("2027-07-01T10:00:00+01:00")
    booking = api.book(api.world.departure(api.world.experience(), starts_at=summer, ends_at=None)).json()
    assert booking["created_at"] == "2026-11-21T12:00:00+00:00"
    assert booking["departure"]["starts_at"] == "2027-07-01T10:00:00+01:00"
    assert booking["departure"]["ends_at"] == "2027-07-01T12:30:00+01:00"


def test_a_time_that_a_clock_change_skips_moves_by_the_gap(place: Callable[[str], Api]) -> None:
    api = place("Europe/Oslo")
    api.world.clock.at = micros("2026-03-29T03:30:00+02:00")
    api.book(api.world.departure(api.world.experience()))
    for since, is_found in (("2026-03-29T02:30:00", True), ("2026-03-29T02:30:01", False), ("2026-03-29T01:59", True)):
        assert bool(api.get("/bookings", updated_since=since).json()["data"]) == is_found
