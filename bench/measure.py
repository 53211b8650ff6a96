"""An entry of the bench, its sides, and their measurement in rounds.

A side is anything that can be measured for some time, such as a server under the load client. The first side is ours,
the second its floor. All sides of an entry stay up during all its rounds; only one is measured at a time.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from bench.load import Plan, Request, Result, drive_in_process
from bench.postgres import Postgres
from bench.processes import Server, cpu_s, machine_busy_s
from bench.stage import Stage

BUSY_CLIENT = 0.85
"""A load client that used this share of a core probably limited the run."""

BUSY_MACHINE = 0.10
"""Other programs that used this share of the machine make a reading doubtful."""

RATE = "requests/s"


@dataclass(frozen=True, slots=True)
class Timing:
    """The length of a run."""

    warmup_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A run of one side: its figures by name, its wrong answers, and reasons to doubt it."""

    figures: Mapping[str, float]
    failures: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class Side(Protocol):
    """A competitor of an entry."""

    @property
    def name(self) -> str: ...

    def take(self, timing: Timing) -> Reading: ...


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
    floor: str
    goals: tuple[Goal, ...]
    build: Callable[[Stage, ExitStack], Sequence[Side]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The readings of each side of an entry, ours first."""

    entry: Entry
    readings: Mapping[str, Sequence[Reading]]

    def values(self, side: str, figure: str) -> list[float]:
        return [reading.figures[figure] for reading in self.readings[side]]

    def reached(self, goal: Goal) -> Spread:
        """Return what is compared with the goal. Ratios are of one round: disturbances of it affect both sides."""
        ours, *others = (self.values(side, goal.figure) for side in self.readings)
        return Spread.of([a / b for a, b in zip(ours, others[0], strict=True)] if goal.is_ratio else ours)

    @property
    def failures(self) -> list[str]:
        return self._unique("failures")

    @property
    def doubts(self) -> list[str]:
        return self._unique("doubts")

    def _unique(self, kind: str) -> list[str]:
        texts = (
            f"{side}: {text}"
            for side, readings in self.readings.items()
            for reading in readings
            for text in getattr(reading, kind)
        )
        return list(dict.fromkeys(texts))


def measured(entry: Entry, stage: Stage, rounds: int, timing: Timing, progress: Callable[[str], None]) -> Outcome:
    """Start the sides, measure each once per round, and stop them. Every second round is in reverse order, so a machine
    that becomes slower favours no side."""
    with ExitStack() as stack:
        sides = entry.build(stage, stack)
        readings: dict[str, list[Reading]] = {side.name: [] for side in sides}
        for number in range(rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                progress(f"round {number + 1} of {rounds}: {side.name}")
                readings[side.name].append(side.take(timing))
    return Outcome(entry, readings)


# Sides -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    """A side whose only figure is the result of a function, such as a time."""

    name: str
    figure: str
    value: Callable[[], float]

    def take(self, timing: Timing) -> Reading:
        return Reading({self.figure: self.value()})


@dataclass(frozen=True, slots=True)
class HttpSide:
    """A server under the load client. `expected` are the statuses that count as an answer."""

    name: str
    plan: Plan
    server_pid: int
    database_pid: int | None
    expected: frozenset[str] = frozenset({"200"})

    @classmethod
    def of(
        cls,
        name: str,
        server: Server,
        requests: Sequence[Request],
        expected: frozenset[str] = frozenset({"200"}),
        *,
        database: Postgres | None = None,
    ) -> "HttpSide":
        return cls(name, Plan(server.port, requests), server.pid, database and database.pid, expected)

    def take(self, timing: Timing) -> Reading:
        plan = replace(self.plan, warmup_s=timing.warmup_s, duration_s=timing.duration_s)
        meter = Meter(self.server_pid, self.database_pid)
        return meter.reading(drive_in_process(plan), self.expected)


class Meter:
    """Measures the CPU time of the server, the database and the whole machine, from its creation to `reading`."""

    def __init__(self, server_pid: int | None, database_pid: int | None) -> None:
        self._pids = (server_pid, database_pid)
        self._began = time.perf_counter()
        self._own_s = _own_s()
        self._spent_s = self._spent()
        self._machine_s = machine_busy_s()

    def _spent(self) -> list[float]:
        return [cpu_s(pid) if pid else 0.0 for pid in self._pids]

    def reading(self, result: Result, expected: frozenset[str], idle_s: float = 0.0) -> Reading:
        """Return the figures of a run under load, with CPU in microseconds for each answered request, user and system.

        `idle_s` is CPU of another process that is not to count as another program.
        """
        spent = [after - before for after, before in zip(self._spent(), self._spent_s, strict=True)]
        per_request = 1e6 / max(result.total, 1)
        wall_s = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        others_s = machine_busy_s() - self._machine_s - sum(spent) - idle_s - (_own_s() - self._own_s)
        doubts = []
        if result.client_busy > BUSY_CLIENT:
            doubts.append("the load client used nearly a core and may be the limit")
        if others_s / wall_s > BUSY_MACHINE:
            doubts.append("other programs used more than a tenth of the machine")
        figures = {
            RATE: result.throughput,
            "p50 ms": result.p50_ms,
            "p99 ms": result.p99_ms,
            "server µs": spent[0] * per_request,
            "database µs": spent[1] * per_request,
            "client µs": result.client_cpu_s * per_request,
        }
        failures = [f"{count} × {status}" for status, count in result.statuses.items() if status not in expected]
        return Reading(figures, tuple(failures), tuple(doubts))


def _own_s() -> float:
    """Return the CPU seconds of this process and of its finished children: load clients, not the servers."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
