"""`booking` as a separate process, and the service that it runs."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.receivers.receivers import wait_until
from support.serving import forking

COMMAND = [sys.executable, "-c", "import sys; from booking_cli.main import main; sys.exit(main())"]

_ADDRESS = re.compile(r"Uvicorn running on (http://127\.0\.0\.1:\d+)")
_READY = ("Uvicorn running on", "Application startup complete")
"""The order with several processes; with one process it is reversed."""


@contextmanager
def serving(started: forking.Process, *, is_killed: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of the service and its log so far, and stop it at the end, unless the test has killed it."""
    assert started.stderr is not None
    assert started.stdout is not None
    logged: list[str] = []
    try:
        while not all(sign in "".join(logged) for sign in _READY):
            line = started.stderr.readline()
            assert line, "".join(logged)
            logged.append(line)
        (address,) = _ADDRESS.findall("".join(logged))
        wait_for(address)
        yield address, logged
        if is_killed:
            return
        started.send_signal(signal.SIGINT)
        logged.extend(started.stderr)
        assert started.wait() == 0
    finally:
        started.kill()
        started.wait()
        started.stderr.close()
        started.stdout.close()


def read_until(lines: Iterable[str], *signs: str) -> list[str]:
    """Return the lines of a process up to the first with one of the texts, without reading further."""
    output: list[str] = []
    for line in lines:
        output.append(line)
        if any(sign in line for sign in signs):
            return output
    raise AssertionError("".join(output))


def wait_for(address: str) -> None:
    """Wait until a process listens. With several processes, each reports its start a moment too early."""
    host, _, port = address.removeprefix("http://").partition(":")

    def listens() -> bool:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
            return True
        return False

    wait_until(listens, f"a process listens on {address}")


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return the environment of a command that keeps all data in the folder, without the variables of this process."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("BOOKING_")}
    paths = {"BOOKING_DATABASE_URL": f"sqlite:///{folder / 'booking.db'}", "BOOKING_CONFIG_DIR": str(folder / "config")}
    return outside | paths | settings


def started(folder: Path, *argv: str, **settings: str) -> forking.Process:
    """Start `booking` there, with its modules loaded."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return forking.start(["booking", *argv], cwd=folder, env=environment(folder, **settings), text=True, **pipes)


def ran(folder: Path, *argv: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run `booking` there to its end."""
    return subprocess.run(
        [*COMMAND, *argv], cwd=folder, env=environment(folder, **settings), text=True, capture_output=True, check=False
    )
