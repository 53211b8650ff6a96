"""Schedules become departures in wall time, also where the clock changes."""

from typing import Any

import pytest

from booking_core.base.clock import zone
from booking_core.catalogue.catalog import InvalidCatalogue, Note, rules


def schedule(**keys: Any) -> dict[str, Any]:
    every_day = {"weekdays": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "times": ["02:30"], "seats_total": 1}
    return every_day | keys


def planned(
    *schedules: dict[str, Any], timezone: str = "Europe/Oslo", departures: list[dict[str, Any]] | None = None
) -> tuple[list[str], tuple[Note, ...]]:
    """Return the starts, as they are shown, and the notes."""
    tour = {"slug": "night", "title": "Night", "duration_minutes": 60, "schedules": list(schedules)}
    plan = rules.plan({"experiences": [tour | {"departures": departures or []}]}, zone(timezone))
    return [zone(timezone).iso(entry.given["starts_at"]) for entry in plan.departures], plan.notes


def test_first_and_last_day_belong_to_a_schedule_and_only_its_weekdays() -> None:
    starts, notes = planned(
        schedule(weekdays=["sat", "sun"], times=["10:00", "14:00"], **{"from": "2026-12-05", "to": "2026-12-12"})
    )
    assert starts == [
        f"2026-12-{day}T{hour}:00:00+01:00" for day in ("05", "06", "12") for hour in (10, 14)
    ]  # a Saturday, the Sunday, and the Saturday after
    assert notes == ()


def test_a_schedule_holds_its_wall_time_across_a_clock_change() -> None:
    starts, notes = planned(schedule(times=["10:00"], **{"from": "2027-03-27", "to": "2027-03-28"}))
    assert starts == ["2027-03-27T10:00:00+01:00", "2027-03-28T10:00:00+02:00"]
    assert notes == ()


def test_a_time_that_never_happens_is_moved_forward_by_the_gap_and_reported() -> None:
    starts, notes = planned(schedule(**{"from": "2027-03-27", "to": "2027-03-29"}))
    assert starts == ["2027-03-27T02:30:00+01:00", "2027-03-28T03:30:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert notes == (
        Note(
            "/experiences/0/schedules/0/times/0",
            "2027-03-28 02:30 never happens and is moved forward: 2027-03-28T03:30:00+02:00",
        ),
    )


def test_a_time_that_happens_twice_is_the_first_and_reported() -> None:
    starts, notes = planned(schedule(**{"from": "2027-10-31", "to": "2027-10-31"}))
    assert starts == ["2027-10-31T02:30:00+02:00"]
    assert "happens twice and the first is taken" in notes[0].message


def test_what_is_moved_onto_another_start_makes_no_second_departure() -> None:
    night = {"from": "2027-03-28", "to": "2027-03-28"}
    for schedules in (
        [schedule(times=["02:30", "03:30"], **night)],
        [schedule(times=["02:30"], **night), schedule(times=["03:30"], **night)],
    ):
        starts, notes = planned(*schedules)
        assert starts == ["2027-03-28T03:30:00+02:00"]
        assert len(notes) == 1


def test_a_departure_written_by_itself_stands_for_the_scheduled_one() -> None:
    own = {"starts_at": "2026-12-05T09:00:00Z", "seats_total": 7, "status": "closed"}
    starts, _ = planned(schedule(times=["10:00"], **{"from": "2026-12-05", "to": "2026-12-06"}), departures=[own])
    assert starts == ["2026-12-05T10:00:00+01:00", "2026-12-06T10:00:00+01:00"]


def test_starts_and_ends_written_one_by_one_are_reported_as_well() -> None:
    own = {"starts_at": "2027-03-28T02:30:00", "ends_at": "2027-10-31T02:30:00", "seats_total": 7}
    _, notes = planned(departures=[own])
    assert [note.pointer for note in notes] == [
        "/experiences/0/departures/0/starts_at",
        "/experiences/0/departures/0/ends_at",
    ]
    _, notes = planned(departures=[own | {key: f"{own[key]}+02:00" for key in ("starts_at", "ends_at")}])
    assert notes == ()


def test_two_schedules_that_meet_are_reported_once_with_how_often_and_when_first() -> None:
    with pytest.raises(InvalidCatalogue) as refused:
        planned(
            schedule(times=["10:00", "12:00"], **{"from": "2026-12-01", "to": "2026-12-31"}),
            schedule(times=["12:00"], **{"from": "2026-12-30", "to": "2027-01-31"}),
        )
    assert refused.value.problems == (
        (
            "/experiences/0/schedules/1/times/0",
            "meets /experiences/0/schedules/0/times/1, 2 times, first at 2026-12-30T12:00:00+01:00",
        ),
    )


def test_days_in_the_wrong_order_are_reported_with_what_else_is_wrong() -> None:
    with pytest.raises(InvalidCatalogue) as refused:
        planned(schedule(seats_total=-1, **{"from": "2026-12-01", "to": "2026-11-30"}))
    assert {problem.pointer for problem in refused.value.problems} == {
        "/experiences/0/schedules/0/seats_total",
        "/experiences/0/schedules/0/to",
    }


def test_a_catalogue_makes_at_most_a_hundred_thousand_departures() -> None:
    minutes = [f"{hour:02}:{minute:02}" for hour in range(24) for minute in range(60)]
    century = schedule(times=minutes, **{"from": "2026-01-01", "to": "2027-01-01"})
    with pytest.raises(InvalidCatalogue) as refused:
        planned(century)
    assert "more than 100000 departures" in refused.value.problems[0].message
