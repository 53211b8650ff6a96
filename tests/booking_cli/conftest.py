"""The command, run as a shell runs it: in this process, in another, or on a terminal."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from booking_cli.main import main

COMMAND = [sys.executable, "-c", "import sys; from booking_cli.main import main; sys.exit(main())"]


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which holds one JSON value and nothing else."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """stderr, which holds one JSON object and nothing else."""
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


Booking = Callable[..., Result]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """An empty folder to run in, and no setting from outside; sets one."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("BOOKING_") or name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name)
    return monkeypatch.setenv


@pytest.fixture
def booking(environment: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> Booking:
    """Runs `booking` in this process."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        code = main(argv)
        captured = capsys.readouterr()
        return Result(int(code), captured.out, captured.err)

    return run


def _on(booking: Booking, environment: Callable[[str, str], None], url: str) -> Booking:
    environment("BOOKING_DATABASE_URL", url)
    environment("BOOKING_SECRET_KEY", "a secret key for tests")
    return booking


def _with_fjord_tours(booking: Booking) -> Booking:
    create = ("--slug", "fjord-tours", "--name", "Fjord Tours", "--timezone", "Europe/Oslo", "--currency", "NOK")
    assert booking("orgs", "create", *create).code == 0
    return booking


@pytest.fixture
def stored(
    booking: Booking, environment: Callable[[str, str], None], new_database_url: Callable[[str], str]
) -> Booking:
    """Runs `booking` on an empty SQLite database of this test's own."""
    return _on(booking, environment, new_database_url("sqlite"))


@pytest.fixture
def fjord(stored: Booking) -> Booking:
    """The same, with the organization fjord-tours in it."""
    return _with_fjord_tours(stored)


@pytest.fixture
def stored_on_both(booking: Booking, environment: Callable[[str, str], None], fresh_database_url: str) -> Booking:
    """Runs `booking` on an empty database of this test's own, of either kind."""
    return _on(booking, environment, fresh_database_url)


@pytest.fixture
def fjord_on_both(stored_on_both: Booking) -> Booking:
    """The same, with the organization fjord-tours in it."""
    return _with_fjord_tours(stored_on_both)


@pytest.fixture
def process(environment: Callable[[str, str], None]) -> Callable[..., subprocess.Popen[str]]:
    """Starts `booking` in a process of its own."""

    def start(*argv: str, **settings: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*COMMAND, *argv], text=True, **(pipes | settings))

    return start


@pytest.fixture
def terminal(environment: Callable[[str, str], None]) -> Callable[..., tuple[int, str]]:
    """Runs `booking` on a terminal of 100 columns, with somebody typing `answer`: exit code and screen."""

    def run(*argv: str, answer: str = "") -> tuple[int, str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        os.write(ours, answer.encode())
        environment_of = {**os.environ, "TERM": "xterm"}
        with subprocess.Popen(
            [*COMMAND, *argv], stdin=theirs, stdout=theirs, stderr=theirs, env=environment_of
        ) as started:
            os.close(theirs)
            screen = b""
            while True:
                try:
                    chunk = os.read(ours, 65536)
                except OSError:  # the last one on the other side has gone
                    break
                if not chunk:
                    break
                screen += chunk
        os.close(ours)
        return started.returncode, screen.decode().replace("\r\n", "\n")

    return run
