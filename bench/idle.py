"""The resources that an idle service uses."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.asking import answer
from bench.kinds import Figure, Promise, Reading
from bench.measure import Timing
from bench.processes import cpu_s, descendants
from bench.stage import FILLED, Stage

SETTLE_S = 3.0
"""Seconds after the start and a first request, which loads everything."""
WATCHED = 5
"""The length of the measurement, as a multiple of a run under load."""


def build(stage: Stage, stack: ExitStack) -> Callable[[Timing], Reading]:
    """`booking serve` with its worker, on PostgreSQL, after it has answered once."""
    service, readers, _ = stage.lists()
    server = stack.enter_context(service.serve(worker=True))
    answer(server, readers[FILLED].get("/api/v1/bookings"))
    time.sleep(SETTLE_S)

    def take(timing: Timing) -> Reading:
        began, spent = time.perf_counter(), cpu_s(server.pid)
        time.sleep(timing.duration_s * WATCHED)
        share = (cpu_s(server.pid) - spent) / (time.perf_counter() - began)
        return Reading({"resident": sum(_resident_mb(server.pid)), "processor": share * 100})

    return take


def _resident_mb(pid: int) -> Iterator[float]:
    for each in descendants(pid):
        lines = Path(f"/proc/{each}/status").read_text().splitlines()
        yield from (int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


ENTRIES = (
    Promise(
        "idle",
        "`booking serve` with its worker, nobody asking",
        (Figure("resident", "MB", at_most=130), Figure("processor", "% of a core", at_most=1)),
        build,
    ),
)
