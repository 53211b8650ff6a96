"""Bookings above the capacity: an arrival rate that is a multiple of the rate of the service with waiting clients.

Above its capacity, a service should keep its throughput and refuse the rest at once. The throughput and the latencies
are measured on the created bookings. The load client uses more CPU the more it sends, and the service cannot use that
CPU. So the second side measures the service at its capacity while the same client sends as many requests a second to a
minimal server. The ratio to it, round by round, shows the service's loss through refusals.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bench import sink
from bench.load import Plan, Result, drive_in_process
from bench.measure import RATE, Entry, Goal, Meter, Reading, Timing
from bench.processes import Server, cpu_s
from bench.stage import Stage

ORGANIZATIONS = 64
PATIENT_CLIENTS = 64
CONNECTIONS_MAX = 3000
"""More than the requests that can wait: a queue has room for 2,048."""
USED_EVERY_S = 8
"""A connection that is silent for ten seconds is closed."""
SETTLED_S, DURATION_S = 8.0, 3.0
"""The warm-up of an overload, after which the queue has its full length; the shortest measurement."""
ANSWERED = frozenset({"201", "503", "unsent"})
"""A request is not sent if all connections wait for answers."""


@dataclass(slots=True)
class _Load:
    """The plans of both sides, and the requests a second that were answered in the latest overload."""

    server: Server
    database_pid: int
    patient: Plan
    offered: Plan
    answered: float

    def drive(self, plan: Plan, timing: Timing) -> Result:
        return drive_in_process(replace(plan, warmup_s=SETTLED_S, duration_s=max(timing.duration_s, DURATION_S)))

    def meter(self) -> Meter:
        return Meter(self.server.pid, self.database_pid)


@dataclass(frozen=True, slots=True)
class Overload:
    """The service under the offered rate."""

    name: str
    load: _Load

    def take(self, timing: Timing) -> Reading:
        meter, result = self.load.meter(), self.load.drive(self.load.offered, timing)
        self.load.answered = result.total / (SETTLED_S + max(timing.duration_s, DURATION_S))
        return meter.reading(result, ANSWERED)


@dataclass(frozen=True, slots=True)
class Reference:
    """The service under waiting clients, while another client sends as many requests as in the overload to a minimal
    server."""

    name: str
    load: _Load
    idle: Server

    def take(self, timing: Timing) -> Reading:
        elsewhere = replace(self.load.offered, port=self.idle.port, rate=self.load.answered, counted="")
        meter, idle_s = self.load.meter(), cpu_s(self.idle.pid)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.load.drive, elsewhere, timing)
            result = self.load.drive(self.load.patient, timing)
        return meter.reading(result, ANSWERED, idle_s=cpu_s(self.idle.pid) - idle_s)


@dataclass(frozen=True, slots=True)
class Overloading:
    """Start a service of many organizations. Each connection belongs to one of them, like those of clients."""

    times: int

    def __call__(self, stage: Stage, stack: ExitStack) -> Sequence[Overload | Reference]:
        service, shops = stage.shops(ORGANIZATIONS)
        server = stack.enter_context(service.serve())
        requests = [request for shop in shops for request in shop.bookings()]
        patient = Plan(server.port, requests, PATIENT_CLIENTS)
        rate = self.times * drive_in_process(replace(patient, duration_s=DURATION_S)).throughput
        connections = min(CONNECTIONS_MAX, int(rate * USED_EVERY_S))
        offered = replace(patient, clients=connections, rate=rate, counted="201", by_key=True)
        load = _Load(server, stage.postgres.pid, patient, offered, rate)
        return [Overload("created", load), Reference("reference", load, stack.enter_context(sink.served()))]


ENTRIES = tuple(
    Entry(
        f"overload-{times}",
        f"POST /bookings created at {times} times the capacity",
        "the service at its capacity",
        (Goal(RATE, 0.5),),
        Overloading(times),
    )
    for times in (2, 10)
)
