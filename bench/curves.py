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


def by_clients(build: Callable[[Stage, ExitStack], Sequence[HttpSide]]) -> Callable[[Stage, ExitStack], Level]:
    """Return the sides of a workload, which stay up, under a growing number of clients."""

    def started(stage: Stage, stack: ExitStack) -> Level:
        sides = build(stage, stack)
        return lambda clients, _: [replace(side, plan=replace(side.plan, clients=clients)) for side in sides]

    return started


ENTRIES = (
    Curve(
        "curve-create",
        "POST /bookings, 64 organizations",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(creates.Creating(64, 1)),
    ),
    Curve(
        "curve-list",
        "GET /bookings?limit=25",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(reads.bookings(25)),
    ),
)
