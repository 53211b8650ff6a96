"""Instants and zones. An instant is an integer of microseconds since 1970 UTC, the same in both databases.

Wall time appears only in the input of clients and catalogues, and in responses.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from booking_core.models import timestamps
from booking_core.models.reasons import Fault

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
END_OF_TIME = 253_402_300_800 * SECOND + 2 * DAY
"""Later than every local 9999-12-31, in any zone."""

YEARS = (1970, 9997)
"""The years that a timestamp of an operator may lie in. Ends and offsets are added to it, and the calendar ends with
the year 9999."""

Clock = Callable[[], int]
"""Gives the instant it is."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive on purpose: arithmetic that cannot overflow at year 1 or 9999
_SHOWN_MAX = 16_384
"""The size of a zone's cache of texts: departures begin, end and close at the same few thousand timestamps."""
_BUCKET_S = 900
_BUCKETS_MAX = 50_000
_BUCKETS_SINCE_S = 315_532_800
"""1980. Before it lie offsets with seconds, and beyond year 1 nothing that a bucket could begin with."""
_EARLIEST, _LATEST = (
    (datetime(year, 1, 1) - _EPOCH) // timedelta(microseconds=1)  # noqa: DTZ001 - as the epoch, on both sides
    for year in (YEARS[0], YEARS[1] + 1)
)
_TWO = tuple(f"{n:02}" for n in range(60))

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def system_clock() -> int:
    """Return the current time by this machine's clock."""
    return time.time_ns() // 1000


def elapsed_s() -> float:
    """Return seconds since some instant, by a clock that nobody sets; where the system tells, a sleep of the machine
    counts too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def has_passed(length: int, since: int, now: int) -> bool:
    """Return True if the time has passed. After the clock was set back it counts as passed, since an hourly job would
    otherwise wait for as long as the clock had been ahead."""
    return not 0 <= now - since < length


def from_datetime(at: datetime) -> int:
    """Return the timestamp of an aware datetime."""
    offset = at.utcoffset()
    if offset is None:
        raise ValueError("a datetime without an offset is no instant")
    return _wall(at) - offset // timedelta(microseconds=1)


def to_datetime(at: int) -> datetime:
    """Return the timestamp as an aware UTC datetime."""
    return datetime.fromtimestamp(at // SECOND, UTC).replace(microsecond=at % SECOND)


def within_years(at: int) -> int:
    """Return the timestamp, if it can be stored and shown in every zone.

    Raises:
        Fault: it is before or after YEARS.
    """
    if not _EARLIEST <= at < _LATEST:
        raise Fault("out_of_range", f"must lie between the years {YEARS[0]} and {YEARS[1]}")
    return at


def _wall(at: datetime) -> int:
    return (at.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


def parse_date(text: str) -> date:
    """Parse a date, written exactly `YYYY-MM-DD`.

    Raises:
        Fault: it is not.
    """
    if not _DATE.fullmatch(text):
        raise Fault("wrong_format", "must be a date written YYYY-MM-DD")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Fault("wrong_format", "is not a day of the calendar") from None


class Zone:
    """A time zone of the IANA database, and how an instant is shown in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = ZoneInfo(name)
        self._buckets: dict[int, tuple[str, int, str]] = {}
        self.iso_again = lru_cache(_SHOWN_MAX)(self.iso)
        """As `iso`, for instants that are shown again and again."""

    def iso(self, at: int) -> str:
        """ISO 8601 to the second with the zone's offset at that instant, e.g. `2026-12-24T10:00:00+01:00`."""
        bucket, second = divmod(at // SECOND, _BUCKET_S)
        quarter = self._buckets.get(bucket) or self._learn(bucket)
        if quarter is None:
            return self.wall(at).replace(microsecond=0).isoformat()
        prefix, minute, suffix = quarter
        return f"{prefix}{_TWO[minute + second // 60]}:{_TWO[second % 60]}{suffix}"

    def iso_or_none(self, at: int | None) -> str | None:
        """Return the instant as `iso` does; None for None."""
        return None if at is None else self.iso(at)

    def _learn(self, bucket: int) -> tuple[str, int, str] | None:
        """Return what all timestamps of a quarter of an hour share: date and hour, first minute, offset.

        Availability shows thousands of timestamps in one response. Each quarter is looked up in the zone database once.

        None for a quarter with a change of the clocks, as in St. John's at one minute past midnight.
        """
        start_s = bucket * _BUCKET_S
        if start_s < _BUCKETS_SINCE_S:
            return None
        first = datetime.fromtimestamp(start_s, self.info).isoformat()
        last = datetime.fromtimestamp(start_s + _BUCKET_S - 1, self.info).isoformat()
        if first[19:] != last[19:] or first[:14] != last[:14]:
            return None
        if len(self._buckets) >= _BUCKETS_MAX:
            self._buckets.clear()
        quarter = self._buckets[bucket] = (first[:14], int(first[14:16]), first[19:])
        return quarter

    def wall(self, at: int) -> datetime:
        """Return the timestamp as an aware datetime of this zone."""
        return to_datetime(at).astimezone(self.info)

    def at(self, wall: datetime) -> int:
        """Return the timestamp of a naive wall time. A time that happens twice is the first; a time that a clock change
        skips is moved forward by the gap."""
        return _wall(wall) - self._offset(wall, 0)

    def _offset(self, wall: datetime, fold: int) -> int:
        """Around a gap or a fold: the offset before it, or with `fold` the one after it."""
        offset = wall.replace(tzinfo=self.info, fold=fold).utcoffset()
        return (offset or timedelta()) // timedelta(microseconds=1)

    def day_start(self, day: date) -> int:
        """Return the first timestamp of a local day. Midnight may be skipped (Santiago) or happen twice (Havana)."""
        midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - wall time of this zone
        before, after = self._offset(midnight, 0), self._offset(midnight, 1)
        if before >= after:
            return _wall(midnight) - before
        # The clocks were put forward over midnight, perhaps from before it (Toronto, 1919): the day begins at the
        # change, which is somewhere within the gap.
        earliest, latest = (_wall(midnight) - after) // SECOND, (_wall(midnight) - before) // SECOND
        while earliest < latest:
            middle = (earliest + latest) // 2
            if self.wall(middle * SECOND).date() < day:
                earliest = middle + 1
            else:
                latest = middle
        return latest * SECOND

    def day_end(self, day: date) -> int:
        """Return the first timestamp after a local day, which may be 23, 23.5, 24.5 or 25 hours long."""
        return END_OF_TIME if day == date.max else self.day_start(day + timedelta(days=1))

    def parse(self, text: str) -> int:
        """Parse an ISO 8601 timestamp: without an offset it is wall time of this zone, without a time midnight.

        A space where a `+` stood in an unescaped URL is read as `+` (decision R10).

        Raises:
            Fault: it is no timestamp.
        """
        wall, micros, offset = timestamps.split(text)
        if offset is None:
            return self.at(wall) + micros
        return _wall(wall) + micros - offset * MINUTE


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Return the zone of an IANA name, one object for each name.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        return Zone(name)
    except (OSError, ValueError, KeyError):  # zoneinfo: not found, a path outside its folder, a folder
        raise ValueError(f"{name!r} is not a time zone of the IANA database") from None
