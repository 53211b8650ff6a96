"""Starts the processes of the bench, waits for them, reads their CPU time, and stops them.

CPU times are of whole process trees, so the workers of a server and the backends of a database count with their parent.
Every process is stopped at the end of its `with` block, also on Ctrl-C.
"""

import gc
import multiprocessing
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from booking_cli.operator.service import raise_open_files_limit

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
"""The workspace; children run here to be able to import `bench`."""

HOST = "127.0.0.1"
"""The only address for listening and sending."""

STOP_TIMEOUT_S = 10.0
GIVE_UP_S = 240.0
"""Longer than any work of another process, and than anything that the bench waits for."""
LOOK_AGAIN_S = 0.02

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["bench.feed"])  # it loads the modules of all functions that run in another process


@dataclass(frozen=True, slots=True)
class Server:
    """A process that is ready; a server answers on 127.0.0.1."""

    pid: int
    port: int
    log: Path


@contextmanager
def serving(
    command: Sequence[str],
    *,
    port: int = 0,
    env: dict[str, str] | None = None,
    is_ready: Callable[[Server], object] | None = None,
    pause_s: float = 0.05,
    timeout_s: float = 60.0,
) -> Iterator[Server]:
    """Run a command; yield it when it answers on `port`, or `is_ready`, and stop it and its children afterwards.

    The child leads a separate process group: Ctrl-C reaches only the bench, which then stops its children in order.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, cwd=ROOT, env=os.environ | (env or {}), stdout=out, stderr=out, start_new_session=True
            )
        server = Server(child.pid, port, log)
        try:
            deadline = time.monotonic() + timeout_s
            while not (is_ready or status)(server):
                if child.poll() is not None or time.monotonic() > deadline:
                    tail = log.read_text(errors="replace")[-3000:]
                    raise RuntimeError(f"{' '.join(command)} is not ready (exit {child.returncode}):\n{tail}")
                time.sleep(pause_s)
            yield server
        finally:
            _stop(child)


def status(server: Server, path: str = "/", api_key: str = "") -> int:
    """Return the status of an answer, 0 without one: a port may accept connections long before its workers are up."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with suppress(httpx.TransportError):
        return httpx.get(f"http://{HOST}:{server.port}{path}", headers=headers, timeout=60).status_code
    return 0


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGCONT)
    child.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_TIMEOUT_S)
    finally:
        # The leader may have ended and a worker not; the group is ours.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@contextmanager
def beside(work: Callable[..., T], *arguments: Any) -> Iterator[Callable[[], T]]:
    """Run a function in another process; yield the function that waits for its result. The process ends with the
    block."""
    with _forks.Pool(1, _begin) as pool:
        yield partial(pool.apply_async(work, arguments).get, GIVE_UP_S)


def _begin() -> None:
    gc.disable()  # a collection during a run would count as latency of the server
    raise_open_files_limit()  # a connection for each client
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C the bench ends the process


def wait_for(happened: Callable[[], object], event: str, within_s: float = GIVE_UP_S) -> None:
    """Wait until the condition is true, and raise an error after that time."""
    deadline = time.monotonic() + within_s
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {within_s:.0f} s for {event}")
        time.sleep(LOOK_AGAIN_S)


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its living descendants."""
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process and its descendants, including ended ones."""
    spent_s = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent_s += times.user + times.system + times.children_user + times.children_system
    return spent_s
