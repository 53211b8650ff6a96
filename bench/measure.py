"""Measures sides: one run gives a sample, rounds alternate the sides, and medians and spreads summarize them.

A side is anything that can be loaded for some time, like a server through the load client. All sides of a
workload stay up during all its rounds; only one is loaded at a time.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from bench.load import Plan, Result, drive_in_process
from bench.processes import cpu_s, machine_busy_s

BUSY_CLIENT = 0.85
"""A load client that used this share of a core probably limited the run."""


BUSY_MACHINE = 0.10
"""Other programs that used this share of the machine make a sample doubtful."""


BUSY_NEIGHBOURS = 0.4
"""The same limit if a server of ours counts as another program."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The length of a run."""

    warmup_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of one side. CPU is in microseconds per answered request, user and system."""

    throughput: float
    p50_ms: float
    p99_ms: float
    measured: int
    statuses: dict[str, int]
    server_us: float
    database_us: float
    client_us: float
    client_busy: float
    others_busy: float
    """CPU microseconds of a request, if they were counted."""
    per_cpu_s: float = 0.0
    """The answers for each CPU second of server and database, if only some answers count."""


class Side(Protocol):
    """A competitor of a workload."""

    @property
    def name(self) -> str: ...

    def run(self, timing: Timing) -> Sample: ...

    def failures(self, sample: Sample) -> list[str]:
        """Return the reasons why the sample is invalid."""
        ...


@dataclass(frozen=True, slots=True)
class HttpSide:
    """A server under the load client. `expected` are the statuses that count as an answer."""

    name: str
    plan: Plan
    server_pid: int
    database_pid: int | None
    expected: frozenset[str] = frozenset({"200"})

    def run(self, timing: Timing) -> Sample:
        plan = replace(self.plan, warmup_s=timing.warmup_s, duration_s=timing.duration_s)
        meter = Meter(self.server_pid, self.database_pid)
        result = drive_in_process(plan)
        return meter.sample(result)

    def failures(self, sample: Sample) -> list[str]:
        found = [f"{self.name}: {n} × {s}" for s, n in sample.statuses.items() if s not in self.expected]
        return found if sample.measured else [*found, f"{self.name}: nothing was answered"]


class Meter:
    """Measures the CPU time of the server, the database and the whole machine, from its creation to `sample`."""

    def __init__(self, server_pid: int | None, database_pid: int | None) -> None:
        self._pids = (server_pid, database_pid)
        self._children = _children_cpu_s()
        self._own = time.process_time()
        self._wall = time.perf_counter()
        self._before = [cpu_s(pid) if pid else 0.0 for pid in self._pids]
        self._machine = machine_busy_s()

    def sample(self, result: Result) -> Sample:
        server, database = (
            (cpu_s(pid) if pid else 0.0) - before for pid, before in zip(self._pids, self._before, strict=True)
        )
        per_request = 1e6 / max(result.total, 1)
        return Sample(
            throughput=result.throughput,
            p50_ms=result.p50_ms,
            p99_ms=result.p99_ms,
            measured=result.measured,
            statuses=result.statuses,
            server_us=server * per_request,
            database_us=database * per_request,
            client_us=result.client_cpu_s * per_request,
            client_busy=result.client_busy,
            others_busy=self.others_busy(server + database),
        )

    def others_busy(self, known_s: float) -> float:
        """Return the share of the machine that other processes used: not this process, its children, or the processes
        that are known to have used `known_s`."""
        own = time.process_time() - self._own + _children_cpu_s() - self._children
        wall = (time.perf_counter() - self._wall) * (os.cpu_count() or 1)
        return max(0.0, machine_busy_s() - self._machine - known_s - own) / wall


def cost_doubts(meter: Meter) -> list[str]:
    """Return the reasons for doubt, as for samples. A server of the measured program counts as another program here."""
    share = meter.others_busy(0.0)
    return [f"other programs used {share:.0%} of the machine"] if share > BUSY_NEIGHBOURS else []


def _children_cpu_s() -> float:
    """Return the CPU seconds of the finished children of this process: load clients, not the servers."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))


Samples = dict[str, list[Sample]]


def alternate(sides: Sequence[Side], rounds: int, timing: Timing, progress: Callable[[str], None]) -> Samples:
    """Load each side once per round; every second round in reverse order, so drift favours no side."""
    samples: Samples = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            progress(f"round {number + 1} of {rounds}: {side.name}")
            samples[side.name].append(side.run(timing))
    return samples


def ratios(ours: Sequence[Sample], floor: Sequence[Sample]) -> Spread:
    """Return the ratio of ours to the floor, round by round: disturbances of a round affect both."""
    return Spread.of([a.throughput / b.throughput for a, b in zip(ours, floor, strict=True) if b.throughput])


def failures(sides: Sequence[Side], samples: Samples) -> list[str]:
    """Return the wrong answers, which make the figures invalid."""
    found = [failure for side in sides for sample in samples[side.name] for failure in side.failures(sample)]
    return list(dict.fromkeys(found))


def doubts(samples: Samples) -> list[str]:
    """Return the reasons why a reader should not rely on the figures."""
    found = []
    for name, own in samples.items():
        busiest = max(sample.client_busy for sample in own)
        if busiest > BUSY_CLIENT:
            found.append(f"{name}: the load client used up to {busiest:.0%} of a core and may be the limit")
    others = max(sample.others_busy for own in samples.values() for sample in own)
    if others > BUSY_MACHINE:
        found.append(f"other programs used up to {others:.0%} of the machine")
    return found
