"""Bookings above the capacity: an arrival rate that is a multiple of the rate of the service with waiting clients.

Above its capacity, a service should keep its throughput and refuse the rest at once. The throughput and the latencies
are measured on the created bookings. The load client uses more CPU the more it sends, and the service cannot use that
CPU. So the second side measures the service at its capacity while the same client sends as many requests a second to a
minimal server. The ratio to it, round by round, shows the service's loss through refusals.
"""

from contextlib import ExitStack
from dataclasses import replace

from bench import sink
from bench.load import Plan, drive_in_process, sending
from bench.measure import RATE, Goal, Meter, Reading, Sides, Timing, entry
from bench.service import bookings_of
from bench.stage import Stage

ORGANIZATIONS = 64
PATIENT_CLIENTS = 64
TIMES = 10
"""The arrival rate, as a multiple of the rate with waiting clients."""
CONNECTIONS_MAX = 3000
"""More than the requests that can wait: a queue has room for 2,048."""
USED_EVERY_S = 8
"""A connection that is silent for ten seconds is closed."""
SETTLED_S, DURATION_S = 8.0, 3.0
"""The warm-up of an overload, after which the queue has its full length; the shortest measurement."""
ANSWERED = frozenset({"201", "503", "unsent"})
"""A request is not sent if all connections wait for answers."""


@entry("overload", f"POST /bookings created at {TIMES} times the capacity", Goal(RATE, 0.5))
def overload(stage: Stage, stack: ExitStack) -> Sides:
    service, shops = stage.shops(ORGANIZATIONS)
    server, idle = stack.enter_context(service.serve()), stack.enter_context(sink.served())
    patient = Plan(server.port, bookings_of(shops), PATIENT_CLIENTS)
    rate = TIMES * drive_in_process(replace(patient, duration_s=DURATION_S)).throughput
    # Each connection belongs to one organization, like those of clients.
    connections = min(CONNECTIONS_MAX, int(rate * USED_EVERY_S))
    offered = replace(patient, clients=connections, rate=rate, counted="201", by_key=True)
    elsewhere = replace(offered, port=idle.port, counted="")

    def created(timing: Timing) -> Reading:
        nonlocal elsewhere
        plan, meter = _settled(offered, timing), Meter(server, stage.postgres)
        result = drive_in_process(plan)
        elsewhere = replace(elsewhere, rate=result.total / (plan.warmup_s + plan.duration_s))
        return meter.reading(result, ANSWERED)

    def reference(timing: Timing) -> Reading:
        """Measure waiting clients, while another client sends as many requests as were answered in the overload."""
        meter = Meter(server, stage.postgres)
        with sending(_settled(elsewhere, timing)):
            result = drive_in_process(_settled(patient, timing))
        return meter.reading(result, ANSWERED)

    return {"created": created, "reference": reference}


def _settled(plan: Plan, timing: Timing) -> Plan:
    return replace(plan, warmup_s=SETTLED_S, duration_s=max(timing.duration_s, DURATION_S))


ENTRIES = (overload,)
