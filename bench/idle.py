"""The resources that an idle service uses."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.measure import Entry, Goal, Reading, Timing
from bench.processes import Server, cpu_s, tree
from bench.service import answer
from bench.stage import Stage

SETTLE_S = 3.0
"""Seconds after the start and a first request, which loads everything."""
LONGER = 5
"""The length of the measurement, as a multiple of a run under load."""


@dataclass(frozen=True, slots=True)
class Idle:
    """`booking serve` with its worker, on PostgreSQL."""

    name: str
    server: Server

    def take(self, timing: Timing) -> Reading:
        began, spent_s = time.perf_counter(), cpu_s(self.server.pid)
        time.sleep(timing.duration_s * LONGER)
        share = (cpu_s(self.server.pid) - spent_s) / (time.perf_counter() - began)
        resident = sum(process.memory_info().rss for process in tree(self.server.pid))
        return Reading({"resident MB": resident / 2**20, "% of a core": share * 100})


def build(stage: Stage, stack: ExitStack) -> Sequence[Idle]:
    service, reader = stage.lists()
    server = stack.enter_context(service.serve(worker=True))
    answer(server, reader.get("/api/v1/bookings"))
    time.sleep(SETTLE_S)
    return [Idle("service", server)]


GOALS = (Goal("resident MB", at_most=130, is_ratio=False), Goal("% of a core", at_most=1, is_ratio=False))

ENTRIES = (Entry("idle", "`booking serve` with its worker, without requests", "", GOALS, build),)
