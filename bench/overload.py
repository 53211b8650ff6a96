"""More bookings than can be done: an arrival rate of 1, 2, 5 and 10 times what the service does with patient clients.

Above its capacity a service should go on doing what it can, and refuse the rest at once: the throughput is that of the
bookings that were created, and the latencies are theirs.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bench import creates
from bench.kinds import Curve, Level
from bench.load import drive_in_process
from bench.measure import HttpSide, Sample, Timing
from bench.stage import Stage

TIMES = (1, 2, 5, 10)
ORGANIZATIONS = 64
CONNECTIONS_MAX = 3000
"""More than the requests that wait: a queue has room for 2,048."""
USED_EVERY_S = 8
"""A connection that is silent for ten seconds is closed."""
WARMUP_S, DURATION_S = 1.0, 3.0
SETTLED_S = 8.0
"""The warm-up of an overload: by then the queue is as long as it gets."""
ANSWERED = frozenset({"201", "503", "unsent"})
"""A request is not sent when all connections wait for answers."""


def by_load(stage: Stage, stack: ExitStack) -> Level | None:
    """Bookings of many organizations at multiples of the rate that 64 patient clients reach."""
    if not stage.with_service:
        return None
    service, shops = stage.shops(ORGANIZATIONS, creates.ENDPOINTS)
    server = stack.enter_context(service.serve())
    side = stage.side("created", server, [request for shop in shops for request in shop.bookings()], ANSWERED)
    patient = replace(side.plan, clients=64, warmup_s=WARMUP_S, duration_s=DURATION_S)
    capacity = drive_in_process(patient).throughput

    def sides(times: int, _: ExitStack) -> Sequence[HttpSide]:
        rate = times * capacity
        plan = replace(side.plan, clients=min(CONNECTIONS_MAX, int(rate * USED_EVERY_S)), rate=rate, counted="201")
        return [Overload(side.name, plan, side.server_pid, side.database_pid, side.expected)]

    return sides


@dataclass(frozen=True, slots=True)
class Overload(HttpSide):
    """A side whose samples are taken when its queue is as long as it gets."""

    def run(self, timing: Timing) -> Sample:
        return HttpSide.run(self, Timing(SETTLED_S, max(timing.duration_s, DURATION_S)))


ENTRIES = (
    Curve("curve-overload", "POST /bookings created", "times the capacity", TIMES, TIMES, by_load, is_plotted=True),
)
