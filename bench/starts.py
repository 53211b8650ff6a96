"""The start of the service, what it uses when it is idle, and the set-up of a fresh clone."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from support.serving.servers import free_port

from bench.measure import Goal, Reading, Sides, Take, Timing, entry
from bench.processes import ROOT, Server, cpu_s, serving, status, tree
from bench.service import Service, Shop, answer
from bench.stage import Stage

UV = Path(sys.executable).parent / "uv"
_KEY = re.compile(r"BOOKING_API_KEY=(\S+)")
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
    is_ready = partial(answers_key, reader.api_key)
    with serving(service.command(port, worker=True), port=port, env=service.env, pause_s=0.005, is_ready=is_ready):
        return (time.perf_counter() - began) * 1e3


def answers_key(api_key: str, server: Server) -> bool:
    """Return whether the service answers a request with this key."""
    return status(server, "/api/v1/me", api_key) == 200


def _imported_ms() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi, sqlalchemy"], cwd=ROOT, check=True)
    return (time.perf_counter() - began) * 1e3


@entry("setup", "make run in a clone, to its first answer", Goal("s", at_most=4))
def setup(stage: Stage, stack: ExitStack) -> Sides:
    clone = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="booking-setup-"))) / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    failing_uv = clone.parent / "bin" / "uv"
    failing_uv.parent.mkdir()
    failing_uv.write_text("#!/bin/sh\nexit 1\n")
    failing_uv.chmod(0o755)
    return {
        "make run": timed("s", partial(_run_s, clone, UV)),
        "uv pip install": timed("s", partial(_install_s, clone)),
        "make run, pip alone": timed("s", partial(_run_s, clone, failing_uv)),
    }


def _run_s(clone: Path, uv: Path) -> float:
    """Measure `make run` in a clone without an environment and with empty caches, up to an answer of `GET /me`."""
    for leftover in (".venv", ".demo"):
        shutil.rmtree(clone / leftover, ignore_errors=True)
    port, began = free_port(), time.perf_counter()
    command = ["make", "-C", str(clone), "run", f"PYTHON={sys.executable}", "VENV=.venv", f"PORT={port}"]
    with tempfile.TemporaryDirectory() as cache:
        env = _empty_caches(cache) | {"PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}"}
        with serving(command, port=port, env=env, is_ready=_answers_printed_key, timeout_s=600):
            return time.perf_counter() - began


def _answers_printed_key(server: Server) -> bool:
    key = _KEY.search(server.log.read_text())
    return bool(key) and answers_key(key[1], server)


def _install_s(clone: Path) -> float:
    """Measure uv alone, with the set that `make run` installs."""
    with tempfile.TemporaryDirectory() as folder:
        env, python = os.environ | _empty_caches(f"{folder}/cache"), f"{folder}/venv/bin/python"
        began = time.perf_counter()
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, f"{folder}/venv"], env=env, check=True)
        install = [UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", "locks/run.txt"]
        subprocess.run(install, cwd=clone, env=env, check=True)
        return time.perf_counter() - began


def _empty_caches(folder: str) -> dict[str, str]:
    return {"UV_CACHE_DIR": folder, "PIP_NO_CACHE_DIR": "1"}


ENTRIES = (idle, start, setup)
