"""The report of the bench compares our side with its floor, round by round."""

import os
from pathlib import Path

import pytest

from bench.load import Result
from bench.measure import RATE, Entry, Goal, Meter, Outcome, Reading
from bench.processes import Server
from bench.report import as_json


def outcome(goal: Goal, service: list[float], floor: list[float]) -> Outcome:
    entry = Entry("entry", "GET /", (goal,), lambda stage, stack: {})
    sides = {"service": service, "floor": floor}
    return Outcome(entry, {side: [Reading({RATE: value}) for value in values] for side, values in sides.items()})


def test_a_ratio_is_taken_within_each_round() -> None:
    reached = outcome(Goal(RATE, 0.5), [50, 10, 90], [100, 10, 100]).reached(Goal(RATE, 0.5))
    assert (reached.median, reached.low, reached.high) == (0.9, 0.5, 1.0)


def test_a_goal_without_a_floor_is_a_limit_of_the_figure() -> None:
    goal = Goal(RATE, at_most=60, is_ratio=False)
    assert outcome(goal, [50, 70, 20], []).reached(goal).median == 50
    assert (goal.is_met(60), goal.is_met(61), str(goal)) == (True, False, "requests/s ≤ 60")


def test_a_least_ratio_is_met_from_its_limit_on() -> None:
    goal = Goal(RATE, 0.5)
    assert (goal.is_met(0.5), goal.is_met(0.49), str(goal)) == (True, False, "requests/s ≥ 0.5 ×")


def test_a_status_that_is_no_answer_is_a_failure() -> None:
    server = Server(os.getpid(), 0, Path())
    reading = Meter(server).reading(Result(1, 1, 1, 1, 3, {"200": 2, "503": 1}, 0.3), frozenset({"200"}))
    assert reading.failures == ["1 × 503"]
    assert reading.figures["client µs"] == pytest.approx(100_000)


def test_the_json_has_every_reading_and_the_goal() -> None:
    goal = Goal(RATE, 0.5)
    report = as_json(outcome(goal, [50.0], [100.0]))
    assert report["goals"] == {"requests/s ≥ 0.5 ×": {"median": 0.5, "low": 0.5, "high": 0.5}}
    assert report["readings"]["service"] == [{"figures": {RATE: 50.0}, "failures": ()}]
