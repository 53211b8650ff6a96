"""The start of the service, and what it uses when it is idle."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from support.serving.servers import free_port

from bench.measure import Goal, Reading, Sides, Take, Timing, entry
from bench.processes import ROOT, Server, cpu_s, serving, status, tree
from bench.service import Service, Shop, answer
from bench.stage import Stage

SETTLE_S = 3.0
"""Seconds after the start and a first request, which loads everything."""
LONGER = 5
"""The length of an idle run, as a multiple of a run under load."""


def timed(figure: str, value: Callable[[], float]) -> Take:
    """Return the side whose only figure is the result of a function, such as a time."""
    return lambda _: Reading({figure: value()})


@entry(
    "idle",
    "`booking serve` with its worker on PostgreSQL, without requests",
    Goal("resident MB", at_most=130, is_ratio=False),
    Goal("% of a core", at_most=1, is_ratio=False),
)
def idle(stage: Stage, stack: ExitStack) -> Sides:
    service, reader = stage.lists()
    server = stack.enter_context(service.serve(worker=True))
    answer(server, reader.get("/api/v1/bookings"))
    time.sleep(SETTLE_S)

    def take(timing: Timing) -> Reading:
        began, spent_s = time.perf_counter(), cpu_s(server.pid)
        time.sleep(timing.duration_s * LONGER)
        share = (cpu_s(server.pid) - spent_s) / (time.perf_counter() - began)
        resident = sum(process.memory_info().rss for process in tree(server.pid))
        return Reading({"resident MB": resident / 2**20, "% of a core": share * 100})

    return {"service": take}


@entry("start", "booking serve, to its first answer", Goal("ms", at_most=2.2))
def start(stage: Stage, stack: ExitStack) -> Sides:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a package is compiled when it is installed, and not at each start
    sides = {
        "booking serve": timed("ms", partial(_served_ms, *stage.lists())),
        "import fastapi, sqlalchemy": timed("ms", _imported_ms),
    }
    for take in sides.values():
        take(Timing(0.0, 0.0))  # the first read comes from the disk, and compiles what is new
    return sides


def _served_ms(service: Service, reader: Shop) -> float:
    """Measure the time from the start of the process to its first response that came from the database."""
    port, began = free_port(), time.perf_counter()

    def is_ready(server: Server) -> bool:
        return status(server, "/api/v1/me", reader.api_key) == 200

    with serving(service.command(port, worker=True), port=port, env=service.env, pause_s=0.005, is_ready=is_ready):
        return (time.perf_counter() - began) * 1e3


def _imported_ms() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi, sqlalchemy"], cwd=ROOT, check=True)
    return (time.perf_counter() - began) * 1e3


ENTRIES = (idle, start)
