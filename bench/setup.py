"""The set-up of a fresh clone, from `make run` to the first answer, with empty caches."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.kinds import Contender, Cost
from bench.processes import ROOT, free_port
from bench.stage import Stage
from bench.starts import answers

UV = Path(sys.executable).parent / "uv"
GIVE_UP_S = 600.0
_KEY = re.compile(r"BOOKING_API_KEY=(\S+)")


def _setting_up(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="booking-setup-")))
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    with_uv, without = folder / "with-uv", folder / "without"
    for programs in (with_uv, without):
        programs.mkdir()
    (with_uv / "uv").symlink_to(UV)
    (without / "uv").write_text("#!/bin/sh\nexit 1\n")
    (without / "uv").chmod(0o755)
    return [
        Contender("make run, uv", lambda: _run_s(clone, with_uv)),
        Contender("uv pip install", lambda: _install_s(clone)),
        Contender("make run, pip", lambda: _run_s(clone, without)),
    ]


def _run_s(clone: Path, programs: Path) -> float:
    """Measure `make run` in a clone without an environment, up to an answer of `GET /me`."""
    for leftover in (".venv", ".demo"):
        shutil.rmtree(clone / leftover, ignore_errors=True)
    port, log = free_port(), clone / "run.log"
    with tempfile.TemporaryDirectory() as cache, log.open("w") as output:
        env = _empty_caches(cache) | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        began = time.perf_counter()
        command = ["make", "run", f"PYTHON={sys.executable}", "VENV=.venv", f"PORT={port}"]
        child = subprocess.Popen(command, cwd=clone, env=env, stdout=output, stderr=output, start_new_session=True)
        try:
            while not ((key := _KEY.search(log.read_text())) and answers(port, {"Authorization": f"Bearer {key[1]}"})):
                if child.poll() is not None or time.perf_counter() > began + GIVE_UP_S:
                    raise RuntimeError(f"make run does not answer, exit {child.returncode}: {log.read_text()[-2000:]}")
                time.sleep(0.02)
            return time.perf_counter() - began
        finally:
            os.killpg(child.pid, signal.SIGINT)
            child.wait(30)


def _install_s(clone: Path) -> float:
    """Measure uv alone, with the set that `make run` installs."""
    with tempfile.TemporaryDirectory() as folder:
        env, python = _empty_caches(f"{folder}/cache"), f"{folder}/venv/bin/python"
        began = time.perf_counter()
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, f"{folder}/venv"], env=env, check=True)
        install = [UV, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", "locks/run.txt"]
        subprocess.run(install, cwd=clone, env=env, check=True)
        return time.perf_counter() - began


def _empty_caches(folder: str) -> dict[str, str]:
    return {**os.environ, "UV_CACHE_DIR": folder, "PIP_NO_CACHE_DIR": "1"}


ENTRIES = (Cost("setup", "make run in a clone, to its first answer", "uv pip install of its set", "s", 4, _setting_up),)
