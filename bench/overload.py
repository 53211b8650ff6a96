"""Bookings above the capacity: an arrival rate of 1, 2, 5 and 10 times the rate of the service with waiting clients.

Above its capacity, a service should keep its throughput and refuse the rest at once. The throughput and the latencies
are measured on the created bookings. The load client uses more CPU the more it sends, and the service cannot use that
CPU. So the second side measures the service at its capacity while the same client sends as many requests a second to a
minimal server. The ratio to it, round by round, shows the service's loss through refusals.
"""

import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from bench import creates, sink
from bench.kinds import Curve, Level
from bench.load import Plan, drive_in_process
from bench.measure import HttpSide, Meter, Sample, Timing
from bench.processes import Server, cpu_s
from bench.stage import Stage

TIMES = (1, 2, 5, 10)
ORGANIZATIONS = 64
PATIENT_CLIENTS = 64
CONNECTIONS_MAX = 3000
"""More than the requests that can wait: a queue has room for 2,048."""
USED_EVERY_S = 8
"""A connection that is silent for ten seconds is closed."""
WARMUP_S, DURATION_S = 1.0, 3.0
SETTLED_S = 8.0
"""The warm-up of an overload: after it, the queue has its full length."""
ANSWERED = frozenset({"201", "503", "unsent"})
"""A request is not sent if all connections wait for answers."""
CREATED = "201"


def by_load(stage: Stage, stack: ExitStack) -> Level:
    """Return the sides: bookings of many organizations at multiples of the rate that 64 waiting clients reach.

    Each connection belongs to one organization, like the connections of clients.
    """
    service, shops = stage.shops(ORGANIZATIONS, creates.ENDPOINTS)
    server = stack.enter_context(service.serve())
    idle = stack.enter_context(sink.served())
    side = stage.side("created", server, [request for shop in shops for request in shop.bookings()], ANSWERED)
    patient = replace(side.plan, clients=PATIENT_CLIENTS, warmup_s=WARMUP_S, duration_s=DURATION_S)
    capacity = drive_in_process(patient).throughput

    def sides(times: int, _: ExitStack) -> Sequence[HttpSide]:
        rate = times * capacity
        connections = min(CONNECTIONS_MAX, int(rate * USED_EVERY_S))
        plan = replace(side.plan, clients=connections, rate=rate, counted=CREATED, by_key=True)
        answered = Answered(rate)
        ours = side.server_pid, side.database_pid, side.expected
        return [
            Overload(side.name, plan, *ours, answered=answered),
            Reference("reference", patient, *ours, answered=answered, idle=idle, sent=plan),
        ]

    return sides


@dataclass(slots=True)
class Answered:
    """The requests a second that were answered in the latest overload; before the first, the offered rate."""

    rate: float


@dataclass(frozen=True, slots=True)
class Overload(HttpSide):
    """A side whose samples are taken when its queue has its full length."""

    answered: Answered = field(kw_only=True)

    def run(self, timing: Timing) -> Sample:
        settled = _settled(timing)
        sample = HttpSide.run(self, settled)
        answers = sum(count for status, count in sample.statuses.items() if status.isdigit())
        self.answered.rate = answers / (settled.warmup_s + settled.duration_s)
        return replace(sample, per_cpu_s=created_per_cpu_s(sample))


@dataclass(frozen=True, slots=True)
class Reference(HttpSide):
    """The service under waiting clients, while another client sends as many requests as in the overload to a minimal
    server."""

    answered: Answered = field(kw_only=True)
    idle: Server = field(kw_only=True)
    sent: Plan = field(kw_only=True)

    def run(self, timing: Timing) -> Sample:
        elsewhere = replace(self.sent, port=self.idle.port, rate=self.answered.rate, counted="")
        meter, idle_s, began = Meter(self.server_pid, self.database_pid), cpu_s(self.idle.pid), time.perf_counter()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(drive_in_process, _lasting(elsewhere, timing))
            result = drive_in_process(_lasting(self.plan, timing))
        sample = meter.sample(result)
        idle_share = (cpu_s(self.idle.pid) - idle_s) / (time.perf_counter() - began) / (os.cpu_count() or 1)
        others_busy = max(0.0, sample.others_busy - idle_share)
        return replace(sample, others_busy=others_busy, per_cpu_s=created_per_cpu_s(sample))


def _settled(timing: Timing) -> Timing:
    return Timing(SETTLED_S, max(timing.duration_s, DURATION_S))


def _lasting(plan: Plan, timing: Timing) -> Plan:
    settled = _settled(timing)
    return replace(plan, warmup_s=settled.warmup_s, duration_s=settled.duration_s)


def created_per_cpu_s(sample: Sample) -> float:
    """Return the bookings created for each CPU second of the service and the database, over the whole run."""
    statuses = Counter(sample.statuses)
    answers = sum(count for status, count in statuses.items() if status.isdigit())
    spent_s = answers * (sample.server_us + sample.database_us) / 1e6
    return statuses[CREATED] / spent_s if spent_s else 0.0


ENTRIES = (
    Curve("curve-overload", "POST /bookings created", "times the capacity", TIMES, TIMES, by_load, has_reference=True),
)
