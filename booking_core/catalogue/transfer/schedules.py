"""Expand schedules into departures. A clock change may skip or repeat a wall time of the zone."""

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from booking_core.base.clock import Zone
from booking_core.catalogue.transfer.document import Day, Note, Problem, Schedule

YEARS_MAX = 5
"""The longest schedule. A longer one is more likely a typing mistake in the year."""
STARTS_MAX = 100_000
"""The most departures of one catalogue's schedules, which one transaction can still write."""

_DAY = TypeAdapter[date](Day)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class ResolvedTime(NamedTuple):
    """The instant of a wall time."""

    at: int
    is_moved: bool
    """A clock change skips the wall time, so it was moved forward by the gap."""
    note: str | None


def resolve_wall_time(wall: datetime, zone: Zone) -> ResolvedTime:
    """Return the instant of a naive wall time, with a note when a clock change skips or repeats it."""
    at = zone.at(wall)
    before = wall.replace(tzinfo=zone.info, fold=0).utcoffset()
    after = wall.replace(tzinfo=zone.info, fold=1).utcoffset()
    if before == after or before is None or after is None:
        return ResolvedTime(at, False, None)
    is_moved = before < after
    happens = "never happens and is moved forward" if is_moved else "happens twice and the first is taken"
    return ResolvedTime(at, is_moved, f"{wall:%Y-%m-%d %H:%M} {happens}: {zone.iso(at)}")


class Start(NamedTuple):
    """A departure of a schedule."""

    pointer: str
    seats_total: int
    at: int
    is_moved: bool
    note: str | None


class Timetable(NamedTuple):
    """The departures that one experience's schedules add to those written one by one."""

    starts: list[Start]
    notes: list[Note]
    problems: list[Problem]


def timetable(schedules: Iterable[tuple[str, dict[str, Any]]], written: set[int], zone: Zone) -> Timetable:
    """Expand schedules, each with its JSON pointer, into departures.

    A single departure (their starts are in `written`) replaces the scheduled one of the same start. Two schedules with
    a common start are a problem, reported once for each pair.
    """
    result = Timetable([], [], [])
    starts: dict[int, Start] = {}
    met: dict[tuple[str, str], list[int]] = {}
    # Starts that a clock change moved come last: an existing departure of the same start takes precedence.
    for start in sorted(_expanded(schedules, zone, result.problems), key=lambda start: start.is_moved):
        existing = starts.get(start.at)
        if start.note:
            result.notes.append(Note(start.pointer, start.note))
        if start.at in written or (existing and start.is_moved):
            continue
        if existing:
            met.setdefault((start.pointer, existing.pointer), []).append(start.at)
        else:
            starts[start.at] = start
    for (path, other), instants in met.items():
        first = zone.iso(min(instants))
        result.problems.append(Problem(path, f"meets {other}, {len(instants)} times, first at {first}"))
    result.starts.extend(sorted(starts.values(), key=lambda start: start.at))
    return result


def _expanded(schedules: Iterable[tuple[str, dict[str, Any]]], zone: Zone, problems: list[Problem]) -> Iterator[Start]:
    count = 0
    for path, raw in schedules:
        if not _is_in_order(path, raw, problems):
            continue
        try:
            schedule = Schedule.model_validate(raw)
        except ValidationError:  # mistakes of shape are reported elsewhere
            continue
        for start in _starts(path, schedule, zone):
            count += 1
            if count > STARTS_MAX:
                problems.append(Problem(path, f"makes more than {STARTS_MAX} departures"))
                return
            yield start


def _is_in_order(path: str, raw: dict[str, Any], problems: list[Problem]) -> bool:
    """Check the order of the days, also in a schedule with other mistakes: all problems are reported at once."""
    try:
        days = (_DAY.validate_python(raw.get("to")) - _DAY.validate_python(raw.get("from"))).days
    except ValidationError:  # reported already
        return False
    if days < 0:
        problems.append(Problem(f"{path}/to", "is before from"))
    elif days > YEARS_MAX * 366:
        problems.append(Problem(f"{path}/to", f"is more than {YEARS_MAX} years after from"))
    else:
        return True
    return False


def _starts(path: str, schedule: Schedule, zone: Zone) -> Iterator[Start]:
    weekdays = {_WEEKDAYS.index(name) for name in schedule.weekdays}
    times = [(f"{path}/times/{i}", time) for i, time in enumerate(schedule.times)]
    days = (schedule.first + timedelta(days=i) for i in range((schedule.last - schedule.first).days + 1))
    for day in days:
        for pointer, time in times if day.weekday() in weekdays else ():
            yield Start(pointer, schedule.seats_total, *resolve_wall_time(datetime.combine(day, time), zone))
