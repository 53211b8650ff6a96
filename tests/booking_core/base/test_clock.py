"""Instants and zones: each instant in exactly one local day, offsets right, no exception at the ends of time."""

from datetime import UTC, date, datetime

import pytest

from booking_core.base import clock
from booking_core.base.clock import DAY, HOUR, zone
from booking_core.models.reasons import Fault


def instant(text: str) -> int:
    return clock.from_datetime(datetime.fromisoformat(text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Europe/Oslo", "2026-03-29T01:59:59+01:00"),
        ("Europe/Oslo", "2026-03-29T03:00:00+02:00"),
        ("Asia/Kathmandu", "2026-11-21T17:45:00+05:45"),
        ("Australia/Lord_Howe", "2026-04-05T01:45:00+11:00"),
        ("Australia/Lord_Howe", "2026-04-05T01:45:00+10:30"),
        ("Africa/Casablanca", "2026-02-15T02:30:00+00:00"),
        ("Pacific/Kiritimati", "2026-01-01T00:00:00+14:00"),
        ("America/St_Johns", "2026-11-01T01:59:59-03:30"),
        ("Europe/Oslo", "1975-07-01T12:00:00+01:00"),
    ],
)
def test_an_instant_is_shown_with_the_offset_valid_then(name: str, text: str) -> None:
    assert zone(name).iso(instant(text)) == text


def test_the_ends_of_the_calendar_have_days_too() -> None:
    for name in ("Pacific/Kiritimati", "Etc/GMT+12", "UTC"):
        place = zone(name)
        assert place.day_start(date.min) < place.day_end(date.min)
        assert place.day_start(date.max) < place.day_end(date.max) == clock.END_OF_TIME


def test_an_instant_lies_within_the_years_that_every_zone_can_show() -> None:
    first, last = instant("1970-01-01T00:00:00+00:00"), instant("9997-12-31T23:59:59.999999+00:00")
    assert [clock.within_years(at) for at in (first, last)] == [first, last]
    for at in (first - 1, last + 1):
        with pytest.raises(Fault):
            clock.within_years(at)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-21T12:00:00Z", "2026-11-21T12:00:00+00:00"),
        ("2026-11-21t12:00:00z", "2026-11-21T12:00:00+00:00"),
        ("2026-11-21 12:00", "2026-11-21T12:00:00+01:00"),
        ("2026-11-21T12:00:00 02:00", "2026-11-21T12:00:00+02:00"),
        ("2026-11-21T12:00:00-0330", "2026-11-21T12:00:00-03:30"),
        ("2026-11-21", "2026-11-21T00:00:00+01:00"),
        ("2026-11-21T12:00:00.250+00:00", "2026-11-21T12:00:00.250+00:00"),
    ],
)
def test_a_timestamp_is_read_with_its_offset_or_as_wall_time(text: str, meant: str) -> None:
    assert zone("Europe/Oslo").parse(text) == instant(meant)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "1700000000",
        "2026-13-01",
        "2026-11-21T25:00",
        "2026-11-21T12:00:60Z",
        "2026-11-21T12:00+24:00",
        "２０２６-11-21",
        "2026-11-21T12:00:00+01:00 ",
        "2026-11-21T12:00:00\n",
    ],
)
def test_an_invalid_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|is not|impossible"):
        zone("Europe/Oslo").parse(text)


def test_the_first_and_the_last_year_are_read() -> None:
    oslo = zone("Europe/Oslo")
    assert oslo.parse("0001-01-01T00:00:00+14:00") < oslo.parse("9999-12-31T23:59:59-12:00")


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "Europe", "\0", "a" * 5000])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        zone(name)


def test_an_instant_keeps_its_microseconds() -> None:
    at = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
    assert clock.to_datetime(clock.from_datetime(at)) == at
    assert clock.from_datetime(at) % DAY == 12 * HOUR + 123456
