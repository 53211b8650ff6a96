"""Curves of throughput and latency under a growing number of clients."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from bench import creates, reads
from bench.kinds import Curve, Level
from bench.measure import HttpSide
from bench.stage import Stage

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK_CLIENTS = (1, 16, 256)


def by_clients(build: Callable[[Stage, ExitStack], Sequence[HttpSide]]) -> Callable[[Stage, ExitStack], Level | None]:
    """Return the sides of a workload, which stay up, under a growing number of clients."""

    def started(stage: Stage, stack: ExitStack) -> Level | None:
        sides = build(stage, stack)
        if not sides:
            return None
        return lambda clients, _: [replace(side, plan=replace(side.plan, clients=clients)) for side in sides]

    return started


ENTRIES = (
    Curve(
        "curve-create",
        "POST /bookings, 64 organizations",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(creates.Creating(64, 1).served),
        is_plotted=True,
    ),
    Curve(
        "curve-list",
        "GET /bookings?limit=25",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(reads.bookings(25)),
        is_plotted=True,
    ),
)
