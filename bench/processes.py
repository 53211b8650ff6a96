"""Starts the processes of the bench, waits until they answer, reads their CPU time, and stops them.

CPU times come from /proc (Linux) for whole process trees, so the workers of a server and the backends of a database
count with their parent. Every process is stopped at the end of its `with` block, also on Ctrl-C.
"""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
"""The workspace; children run here to be able to import `bench`."""

HOST = "127.0.0.1"
"""The only address for listening and sending."""

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers on 127.0.0.1."""

    pid: int
    port: int
    log: Path


def free_port() -> int:
    """Return a TCP port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(args: Sequence[str], *, port: int, env: dict[str, str] | None = None) -> Iterator[Server]:
    """Run a command that listens on `port`; yield it when it answers, and stop it and its children afterwards.

    The child leads a separate process group: Ctrl-C reaches only the bench, which then stops its children in order.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                args, cwd=ROOT, env=os.environ | (env or {}), stdout=out, stderr=out, start_new_session=True
            )
        try:
            _wait_until_answering(child, " ".join(args), port, log)
            yield Server(child.pid, port, log)
        finally:
            _stop(child)


def _wait_until_answering(child: subprocess.Popen[bytes], name: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            break
        if _answers(port):
            return
        time.sleep(0.05)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    raise RuntimeError(f"{name} did not answer on {port} (exit {child.returncode}):\n{tail}")


def _answers(port: int) -> bool:
    """Return whether a request gets any response: a port may accept connections long before its workers are up."""
    connection = http.client.HTTPConnection(HOST, port, timeout=START_TIMEOUT_S)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()
    return True


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_TIMEOUT_S)
    finally:
        # The leader may have ended and a worker not; the group is ours.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def run_apart(module: str, wanted: Any, timeout_s: float) -> Any:
    """Run a module in a separate process, with a dataclass as JSON on its stdin; return the JSON of its stdout."""
    child = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        input=json.dumps(asdict(wanted)).encode(),
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


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, of a process and all its descendants, including those that have
    ended."""
    ticks, children = _scan()
    return sum(ticks.get(each, 0) for each in _tree(pid, children)) * _TICK_S


def descendants(pid: int) -> list[int]:
    """Return a process and all its living descendants."""
    return list(_tree(pid, _scan()[1]))


def _tree(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    todo = [pid]
    while todo:
        current = todo.pop()
        yield current
        todo.extend(children.get(current, ()))


def machine_busy_s() -> float:
    """Return the busy CPU seconds of all processors since boot, for all programs of the machine."""
    with Path("/proc/stat").open() as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * _TICK_S


def _scan() -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return ticks by pid (including finished children), and children by parent."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The command name is in parentheses and may contain spaces; the numbers start after the last one.
        fields = stat[stat.rindex(")") + 2 :].split()
        pid, parent = int(entry.name), int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
        children.setdefault(parent, []).append(pid)
    return ticks, children
