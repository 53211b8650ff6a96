"""Every zone of the IANA database, against the C library's own reading of it.

Between two changes of a zone's clocks nothing can go wrong, so an ordinary run looks closely at the days around each
change and at a few others, and at one of the zones that are the same under several names. BOOKING_TEST_ALL_DAYS=1 looks
at every name and every day of the two years.
"""

import os
import random
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

import pytest

from booking_core.base import clock
from booking_core.base.clock import DAY, HOUR, SECOND, Zone, zone
from booking_core.catalogue import departures
from booking_core.catalogue.departures import rules
from booking_core.catalogue.transfer.schedules import resolve_wall_time

FIRST, AFTER = date(2026, 1, 1), date(2028, 1, 1)
ALL_DAYS = os.environ.get("BOOKING_TEST_ALL_DAYS", "") not in ("", "0")
SAMPLE = 4
"""So many days of each zone are looked at beside those around its changes."""
_STEP_S = 12 * 3600
EPOCH = datetime(1970, 1, 1)


# The C library ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offsets:
    """The offsets of a zone, in seconds, each from an instant on."""

    since_s: list[int]
    offset_s: list[int]

    @property
    def changes_s(self) -> list[int]:
        """The instants of the changes of the clocks."""
        return self.since_s[1:]

    def at(self, instant_s: int) -> int:
        return self.offset_s[max(0, bisect_right(self.since_s, instant_s) - 1)]

    def wall(self, instant_s: int) -> datetime:
        return EPOCH + timedelta(seconds=instant_s + self.at(instant_s))

    def seconds_of(self, day: date) -> int:
        """Return the length of a local day."""
        midnight = seconds(datetime(day.year, day.month, day.day))
        ends = [*self.since_s[1:], midnight + 10 * 86_400]
        length = 0
        for since, until, offset in zip(self.since_s, ends, self.offset_s, strict=True):
            length += max(0, min(until + offset, midnight + 86_400) - max(since + offset, midnight))
        return length

    def instants(self, wall: datetime) -> list[int]:
        """Return the timestamps of a wall time: one, none or two."""
        naive = seconds(wall)
        return sorted({naive - offset for offset in self.offset_s if self.at(naive - offset) == offset})


def seconds(wall: datetime) -> int:
    return (wall - EPOCH) // timedelta(seconds=1)


@contextmanager
def c_library(path: str) -> Iterator[None]:
    """Set the time zone of the process."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = path
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def files() -> dict[str, Path]:
    """Return the C library's file of each zone; a system may lack the files of the old names."""
    paths = ((name, Path(folder) / name) for name in sorted(available_timezones()) for folder in reversed(TZPATH))
    existing = {name: path for name, path in paths if path.is_file()}
    if ALL_DAYS:
        return existing
    return {name: existing[name] for name in {path.read_bytes(): name for name, path in existing.items()}.values()}


def read(path: Path, first: date, after: date) -> Offsets:
    """Return the offsets between two days, by a look-up every few hours and then a bisection."""
    start, end = (seconds(datetime(day.year, day.month, day.day)) for day in (first, after))
    with c_library(f":{path}"):
        since, offsets = [start], [time.localtime(start).tm_gmtoff]
        for at in range(start + _STEP_S, end, _STEP_S):
            if time.localtime(at).tm_gmtoff != offsets[-1]:
                low, high = at - _STEP_S, at
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if time.localtime(middle).tm_gmtoff == offsets[-1] else (low, middle)
                since.append(high)
                offsets.append(time.localtime(high).tm_gmtoff)
    return Offsets(since, offsets)


Zones = dict[str, Offsets]


@pytest.fixture(scope="module")
def zones() -> Zones:
    """The offsets of every zone, from a little before the two years to a little after them."""
    if not any(Path(folder).is_dir() for folder in TZPATH):
        pytest.skip("the C library has no zones here")
    before, behind = FIRST - timedelta(days=120), AFTER + timedelta(days=120)
    return {name: read(path, before, behind) for name, path in files().items()}


def days(offsets: Offsets, name: str) -> list[date]:
    """Return the days to test."""
    count = (AFTER - FIRST).days
    if ALL_DAYS:
        return [FIRST + timedelta(days=n) for n in range(count)]
    around = {offsets.wall(at).date() + timedelta(days=n) for at in offsets.changes_s for n in (-2, -1, 0, 1, 2)}
    sampled = {FIRST + timedelta(days=n) for n in random.Random(name).sample(range(count), SAMPLE)}
    return sorted(day for day in around | sampled | {FIRST, AFTER - timedelta(days=1)} if FIRST <= day < AFTER)


def everywhere(zones: Zones) -> Iterator[tuple[Zone, Offsets, list[date]]]:
    for name, offsets in zones.items():
        yield zone(name), offsets, days(offsets, name)


# Days ------------------------------------------------------------------------------------------------------------


def test_each_instant_lies_in_exactly_one_local_day(zones: Zones) -> None:
    for place, offsets, looked_at in everywhere(zones):
        for day in looked_at:
            start, end = place.day_start(day), place.day_end(day)
            assert end == place.day_start(day + timedelta(days=1)), (place.name, day)
            assert offsets.wall(start // SECOND).date() == day, (place.name, day)
            assert offsets.wall(start // SECOND - 1).date() < day, (place.name, day)
            assert offsets.wall(end // SECOND - 1).date() == day, (place.name, day)
            assert offsets.wall(end // SECOND).date() > day, (place.name, day)


def test_a_day_lasts_from_22_to_26_hours_as_its_calendar_says(zones: Zones) -> None:
    lengths: dict[float, str] = {}
    for place, offsets, looked_at in everywhere(zones):
        for day in looked_at:
            start, end = place.day_start(day), place.day_end(day)
            assert end - start == offsets.seconds_of(day) * SECOND, (place.name, day)
            lengths[(end - start) / HOUR] = place.name
    # Two hours at once are put forward and back at Troll station, in Antarctica.
    assert lengths.keys() == {22, 23, 23.5, 24, 24.5, 25, 26}


def test_a_window_is_as_long_as_its_days(zones: Zones) -> None:
    for place, _, _ in everywhere(zones):
        for first in (date(2026, 3, 15), date(2026, 9, 15), date(2027, 10, 1)):
            last = rules.default_last_day(first)
            lengths = [
                place.day_end(first + timedelta(days=n)) - place.day_start(first + timedelta(days=n)) for n in range(31)
            ]
            start, end = departures.window(place, first, last, field="to")
            assert (start, end - start) == (place.day_start(first), sum(lengths)), (place.name, first)


# Instants --------------------------------------------------------------------------------------------------------


def instants(place: Zone, offsets: Offsets, looked_at: list[date]) -> Iterator[int]:
    """Yield both sides of each change and of the beginning of each day, and a time within the day."""
    rng = random.Random(place.name)
    for change in (at * SECOND for at in offsets.changes_s):
        yield from (change - 899 * SECOND, change - 1, change, change + 1, change + 901 * SECOND)
    for start in map(place.day_start, looked_at):
        yield from (start - 1, start, start + rng.randrange(DAY))


def test_an_instant_is_shown_with_its_offset_and_parsed_back_exactly(zones: Zones) -> None:
    for place, offsets, looked_at in everywhere(zones):
        for at in instants(place, offsets, looked_at):
            text = place.iso(at)
            read_back = datetime.fromisoformat(text)
            offset = read_back.utcoffset()
            assert offset is not None
            assert offset.total_seconds() == offsets.at(at // SECOND), (place.name, text)
            assert read_back.replace(tzinfo=None) == offsets.wall(at // SECOND), (place.name, text)
            assert clock.from_datetime(read_back) == place.parse(text) == at // SECOND * SECOND, (place.name, text)


def test_closing_time_and_duration_are_elapsed_hours(zones: Zones) -> None:
    for place, offsets, looked_at in everywhere(zones):
        for starts_at in instants(place, offsets, looked_at):
            start, hours = place.iso(starts_at), 1 + starts_at % 72
            assert _elapsed(place.iso(departures.closes_at(starts_at, hours, 0)), start) == hours
            assert _elapsed(start, place.iso(departures.ends_at(starts_at, None, 60 * hours))) == hours


def _elapsed(earlier: str, later: str) -> float:
    """Hours between two shown instants, by their texts alone."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)) / timedelta(hours=1)


# Schedules -------------------------------------------------------------------------------------------------------


def test_a_schedule_is_wall_time_through_every_gap_and_fold(zones: Zones) -> None:
    skipped = repeated = 0
    for place, offsets, looked_at in everywhere(zones):
        for wall in _walls(offsets, looked_at):
            resolved, happens = resolve_wall_time(wall, place), offsets.instants(wall)
            assert resolved.is_moved == (not happens), (place.name, wall)
            assert (resolved.note is None) == (len(happens) == 1), (place.name, wall)
            if happens:
                assert resolved.at == place.at(wall) == happens[0] * SECOND, (place.name, wall)
                repeated += len(happens) == 2
            else:
                assert resolved.at == _moved(offsets, wall) * SECOND, (place.name, wall)
                skipped += 1
    assert skipped > 500
    assert repeated > 500


def _walls(offsets: Offsets, looked_at: list[date]) -> Iterator[datetime]:
    """Times on the chosen days, and times within, before and after each change by either clock."""
    for day in looked_at:
        yield from (datetime(day.year, day.month, day.day, hour, minute) for hour, minute in ((0, 0), (2, 30), (18, 0)))
    for at in offsets.changes_s:
        for before_s in (3600, 1800, 60, 1, 0, -1, -60, -1800, -3600):
            for offset in (offsets.at(at - 1), offsets.at(at)):
                yield EPOCH + timedelta(seconds=at + offset - before_s)


def _moved(offsets: Offsets, wall: datetime) -> int:
    """Return the timestamp of a skipped time, by the offset before the change."""
    (change,) = [
        at for at in offsets.changes_s if seconds(wall) - offsets.at(at) < at <= seconds(wall) - offsets.at(at - 1)
    ]
    return seconds(wall) - offsets.at(change - 1)


# History ---------------------------------------------------------------------------------------------------------

ODD = [
    ("Pacific/Apia", date(2011, 12, 30), 0),  # skipped whole, over the date line
    ("America/Toronto", date(1919, 3, 31), 23.5),  # the clocks went forward at half past eleven
    ("America/St_Johns", date(2010, 11, 7), 25),  # and here back, at one minute past midnight, into the day before
    ("Africa/Monrovia", date(1972, 1, 7), 24 - 44.5 / 60),  # the offset loses its 44 minutes and a half
]


@pytest.mark.parametrize(("name", "day", "hours"), ODD)
def test_odd_days_of_the_past_begin_when_they_began(name: str, day: date, hours: float) -> None:
    place = zone(name)
    start = place.day_start(day)
    assert (place.day_end(day) - start) / HOUR == pytest.approx(hours)
    assert place.wall(start - 1).date() < day
    assert hours == 0 or place.wall(start).date() == day


def test_offsets_that_changed_within_a_quarter_of_an_hour_are_shown_right() -> None:
    place = zone("America/St_Johns")
    change = clock.from_datetime(datetime(2006, 10, 29, 2, 31, tzinfo=UTC))
    texts = [place.iso(change + moment * SECOND) for moment in (-60, -1, 0, 1, 839, 840)]
    assert texts == [
        "2006-10-29T00:00:00-02:30",
        "2006-10-29T00:00:59-02:30",
        "2006-10-28T23:01:00-03:30",
        "2006-10-28T23:01:01-03:30",
        "2006-10-28T23:14:59-03:30",
        "2006-10-28T23:15:00-03:30",
    ]
