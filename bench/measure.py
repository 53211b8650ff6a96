"""An entry of the bench, its sides, and their measurement in rounds.

A side is a function that measures something for some time, such as a server under the load client. The first side is
ours, the second its floor. All sides of an entry stay up during all its rounds; only one is measured at a time.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.load import Plan, Request, Result, drive_in_process
from bench.postgres import Postgres
from bench.processes import Server, cpu_s
from bench.stage import Stage

RATE = "requests/s"
ANSWERED = frozenset({"200"})
CREATED = frozenset({"201"})


@dataclass(frozen=True, slots=True)
class Timing:
    """The length of a run."""

    warmup_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A run of one side: its figures by name, and its wrong answers."""

    figures: Mapping[str, float]
    failures: Sequence[str] = ()


Take = Callable[[Timing], Reading]
"""Measures a side."""

Sides = dict[str, Take]
"""The sides of an entry by name, ours first."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Goal:
    """The value that a figure of our side must reach: itself, or its ratio to the floor."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    is_ratio: bool = True

    def __str__(self) -> str:
        limit = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{self.figure} {limit}{' ×' if self.is_ratio else ''}"

    def is_met(self, value: float) -> bool:
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """Sides that are measured in turn. `build` starts them in the stack."""

    name: str
    measures: str
    goals: tuple[Goal, ...]
    build: Callable[[Stage, ExitStack], Sides]
    rounds: int | None = None
    """The rounds of a run, if they are always the same."""


def entry(
    name: str, measures: str, *goals: Goal, rounds: int | None = None
) -> Callable[[Callable[[Stage, ExitStack], Sides]], Entry]:
    """Make an entry of the function that starts its sides."""
    return lambda build: Entry(name, measures, goals, build, rounds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The readings of each side of an entry, ours first."""

    entry: Entry
    readings: Mapping[str, Sequence[Reading]]

    def values(self, side: str, figure: str) -> list[float]:
        return [reading.figures[figure] for reading in self.readings[side]]

    def reached(self, goal: Goal) -> Spread:
        """Return the figure or the ratio that the goal limits. A ratio is of one round, whose disturbances affect both
        sides."""
        service, *others = (self.values(side, goal.figure) for side in self.readings)
        return Spread.of([a / b for a, b in zip(service, others[0], strict=True)] if goal.is_ratio else service)

    @property
    def failures(self) -> list[str]:
        """Return the wrong answers of all sides, each once."""
        texts = (
            f"{side}: {text}"
            for side, readings in self.readings.items()
            for reading in readings
            for text in reading.failures
        )
        return list(dict.fromkeys(texts))


def measured(entry: Entry, stage: Stage, rounds: int, timing: Timing, progress: Callable[[str], None]) -> Outcome:
    """Start the sides, measure each once per round, and stop them. Every second round is in reverse order, so a machine
    that becomes slower favours no side."""
    rounds = entry.rounds or rounds
    with ExitStack() as stack:
        sides = entry.build(stage, stack)
        readings: dict[str, list[Reading]] = {name: [] for name in sides}
        for number in range(rounds):
            for name, take in list(sides.items())[:: 1 if number % 2 == 0 else -1]:
                progress(f"round {number + 1} of {rounds}: {name}")
                readings[name].append(take(timing))
    return Outcome(entry, readings)


def under_load(
    server: Server, requests: Sequence[Request], expected: frozenset[str] = ANSWERED, database: Postgres | None = None
) -> Take:
    """Return the side of a server under the load client. `expected` are the statuses that count as an answer."""

    def take(timing: Timing) -> Reading:
        plan = Plan(server.port, requests, warmup_s=timing.warmup_s, duration_s=timing.duration_s)
        meter = Meter(server, database)
        return meter.reading(drive_in_process(plan), expected)

    return take


class Meter:
    """Measures the CPU time of the server and the database, from its creation on."""

    def __init__(self, server: Server, database: Postgres | None = None) -> None:
        self._pids = {"server µs": server.pid} | ({"database µs": database.pid} if database else {})
        self._before_s = self._spent_s()

    def _spent_s(self) -> dict[str, float]:
        return {figure: cpu_s(pid) for figure, pid in self._pids.items()}

    def figures(self, total: int) -> dict[str, float]:
        """Return the microseconds, user and system, for each of so many answers or deliveries."""
        per_answer = 1e6 / max(total, 1)
        return {figure: (spent_s - self._before_s[figure]) * per_answer for figure, spent_s in self._spent_s().items()}

    def reading(self, result: Result, expected: frozenset[str]) -> Reading:
        """Return the figures of a run under load. `expected` are the statuses that count as an answer."""
        figures = {
            RATE: result.throughput,
            "p50 ms": result.p50_ms,
            "p99 ms": result.p99_ms,
            **self.figures(result.total),
            "client µs": result.client_cpu_s / max(result.total, 1) * 1e6,
        }
        return Reading(figures, result.failures(expected))
