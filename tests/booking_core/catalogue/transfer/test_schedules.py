"""Schedules become departures in wall time, also where the clock changes."""

from typing import Any

import pytest

from booking_core.base.clock import zone
from booking_core.catalogue.transfer import InvalidCatalogue, Note, rules


def schedule(first: str, last: str | None = None, **keys: Any) -> dict[str, Any]:
    """Return a schedule of every day, by default at half past two."""
    days = {"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from": first, "to": last or first}
    return days | {"times": ["02:30"], "seats_total": 1} | keys


def planned(
    *schedules: dict[str, Any], timezone: str = "Europe/Oslo", departures: list[dict[str, Any]] | None = None
) -> tuple[list[str], tuple[Note, ...]]:
    """Return the starts, as they are shown, and the notes."""
    tour = {"slug": "night", "title": "Night", "duration_minutes": 60, "schedules": list(schedules)}
    plan = rules.plan({"experiences": [tour | {"departures": departures or []}]}, zone(timezone))
    return [zone(timezone).iso(entry.values["starts_at"]) for entry in plan.departures], plan.notes


MOVED = "2027-03-28 02:30 never happens and is moved forward: 2027-03-28T03:30:00+02:00"
SCHEDULES: dict[str, tuple[list[dict[str, Any]], list[str], list[str]]] = {
    "only its weekdays, the first and the last day too": (
        [schedule("2026-12-05", "2026-12-12", weekdays=["sat", "sun"], times=["10:00", "14:00"])],
        [f"2026-12-{day}T{hour}:00:00+01:00" for day in ("05", "06", "12") for hour in (10, 14)],
        [],
    ),
    "the same wall time across a clock change": (
        [schedule("2027-03-27", "2027-03-28", times=["10:00"])],
        ["2027-03-27T10:00:00+01:00", "2027-03-28T10:00:00+02:00"],
        [],
    ),
    "a time that never happens is moved forward by the gap": (
        [schedule("2027-03-27", "2027-03-29")],
        ["2027-03-27T02:30:00+01:00", "2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"],
        [MOVED],
    ),
    "of a time that happens twice the first": (
        [schedule("2027-10-31")],
        ["2027-10-31T02:30:00+02:00"],
        ["2027-10-31 02:30 happens twice and the first is taken: 2027-10-31T02:30:00+02:00"],
    ),
    "no second departure where one is moved onto another": (
        [schedule("2027-03-28", times=["02:30", "03:30"])],
        ["2027-03-28T03:30:00+02:00"],
        [MOVED],
    ),
    "no second departure where one is moved onto a departure of another schedule": (
        [schedule("2027-03-28"), schedule("2027-03-28", times=["03:30"])],
        ["2027-03-28T03:30:00+02:00"],
        [MOVED],
    ),
}


@pytest.mark.parametrize(("schedules", "starts", "messages"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_schedule_becomes_departures_and_reports_what_a_clock_change_moves(
    schedules: list[dict[str, Any]], starts: list[str], messages: list[str]
) -> None:
    times, notes = planned(*schedules)
    assert times == starts
    assert notes == tuple(Note("/experiences/0/schedules/0/times/0", message) for message in messages)


def test_a_departure_written_by_itself_stands_for_the_scheduled_one() -> None:
    entry = {"starts_at": "2026-12-05T09:00:00Z", "seats_total": 7, "status": "closed"}
    starts, _ = planned(schedule("2026-12-05", "2026-12-06", times=["10:00"]), departures=[entry])
    assert starts == ["2026-12-05T10:00:00+01:00", "2026-12-06T10:00:00+01:00"]


def test_starts_and_ends_written_one_by_one_are_reported_as_well() -> None:
    entry = {"starts_at": "2027-03-28T02:30:00", "ends_at": "2027-10-31T02:30:00", "seats_total": 7}
    _, notes = planned(departures=[entry])
    assert [note.pointer for note in notes] == [
        f"/experiences/0/departures/0/{key}" for key in ("starts_at", "ends_at")
    ]
    _, notes = planned(departures=[entry | {key: f"{entry[key]}+02:00" for key in ("starts_at", "ends_at")}])
    assert notes == ()


@pytest.mark.exhaustive
def test_a_catalogue_makes_at_most_a_hundred_thousand_departures() -> None:
    minutes = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
    with pytest.raises(InvalidCatalogue) as refused:
        planned(schedule("2026-01-01", "2027-01-01", times=minutes))
    assert "more than 100000 departures" in refused.value.problems[0].message
