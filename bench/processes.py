"""Starts the processes of the bench, waits until they answer, reads their CPU time, and stops them.

CPU times are of whole process trees, so the workers of a server and the backends of a database count with their parent.
Every process is stopped at the end of its `with` block, also on Ctrl-C.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
"""The workspace; children run here to be able to import `bench`."""

HOST = "127.0.0.1"
"""The only address for listening and sending."""

STOP_TIMEOUT_S = 10.0


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
    is_ready: Callable[[Server], bool] | None = None,
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
            while not (is_ready or answers)(server):
                if child.poll() is not None or time.monotonic() > deadline:
                    tail = log.read_text(errors="replace")[-3000:]
                    raise RuntimeError(f"{' '.join(command)} is not ready (exit {child.returncode}):\n{tail}")
                time.sleep(pause_s)
            yield server
        finally:
            _stop(child)


def answers(server: Server) -> bool:
    """Return whether a request gets any response: a port may accept connections long before its workers are up."""
    with suppress(httpx.TransportError):
        httpx.get(f"http://{HOST}:{server.port}/", timeout=60)
        return True
    return False


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


def run_apart(module: str, task: Any, timeout_s: float) -> Any:
    """Run a module in a separate process, with a dataclass as JSON on its stdin; return the JSON of its stdout."""
    child = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        input=json.dumps(asdict(task)).encode(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=timeout_s,
        check=True,
    )
    return json.loads(child.stdout)


def answer_caller(work: Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]) -> None:
    """Do the work of a process that `run_apart` started: the JSON of stdin, and a dataclass for stdout."""
    import uvloop

    # One file descriptor for each client; the default limit of some systems is 256.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    json.dump(asdict(uvloop.run(work(json.load(sys.stdin)))), sys.stdout)


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its living descendants."""
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process and its descendants, including those that have ended."""
    spent_s = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent_s += times.user + times.system + times.children_user + times.children_system
    return spent_s
