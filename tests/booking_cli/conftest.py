"""The command, run as a shell runs it: in this process, in another, or on a terminal."""

import fcntl
import json
import logging
import os
import pty
import shutil
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.databases.reused_connections import reused_connections
from support.receivers.sockets import Call, Receiver
from support.serving import forking
from support.serving.commands import Booking, Environment, OnTerminal, Process, RecordedTerminal, Result, Terminal
from support.serving.servers import Service
from support.serving.serving import COMMAND
from support.serving.shell import logged_in, running
from support.world.hooks import Hooks
from support.world.world import SECRET, FixedClock, World, make_world

from booking_cli.main import main
from booking_core.base.clock import system_clock
from booking_core.db.engine import Database

PROXIES = tuple(write(f"{kind}_proxy") for kind in ("http", "https", "all") for write in (str.lower, str.upper))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one database for `make test`: the functions below the commands have their tests on both.

    Modules that run SQL, or processes that depend on the database, are marked `both_databases`.
    """
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(folder) and item.get_closest_marker("both_databases") is None:
            item.add_marker(pytest.mark.one_database)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the terminal size and the proxies of this machine."""
    for name in ("COLUMNS", "LINES", "GITHUB_ACTIONS", *PROXIES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    """Return a function that sets a variable, in an empty folder without other settings."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("BOOKING_") or name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BOOKING_CONFIG_DIR", str(tmp_path / "config"))  # never the folder of the developer
    return monkeypatch.setenv


@pytest.fixture
def booking(environment: Environment, capsys: pytest.CaptureFixture[str]) -> Booking:
    """Return a function that runs `booking` in this process."""

    def run(*argv: str) -> Result:
        capsys.readouterr()
        code = main(argv)
        captured = capsys.readouterr()
        # A command that logs has set their stream to its stderr, which ends with the test.
        logging.getLogger("booking.audit").handlers.clear()
        return Result(int(code), captured.out, captured.err)

    return run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that sets the content of stdin."""

    def hold(text: str) -> None:
        lines = iter(text.splitlines(keepends=True))
        stdin = SimpleNamespace(isatty=lambda: False, readline=lambda: next(lines, ""))
        monkeypatch.setattr("sys.stdin", stdin)

    return hold


def _on(booking: Booking, environment: Environment, url: str) -> Booking:
    environment("BOOKING_DATABASE_URL", url)
    environment("BOOKING_SECRET_KEY", SECRET)
    return booking


def _with_fjord_tours(booking: Booking) -> Booking:
    create = ("--slug", "fjord-tours", "--name", "Fjord Tours", "--timezone", "Europe/Oslo", "--currency", "NOK")
    assert booking("orgs", "create", *create).code == 0
    return booking


@pytest.fixture
def stored(booking: Booking, environment: Environment, new_database_url: Callable[[str], str]) -> Booking:
    """Return a function that runs `booking` on an empty SQLite database of this test."""
    return _on(booking, environment, new_database_url("sqlite"))


@pytest.fixture
def upgraded(environment: Environment, new_database_url: Callable[[str], str], tmp_path: Path) -> None:
    """Put an empty database of this release where a command without settings looks for one."""
    file = shutil.copyfile(new_database_url("sqlite").removeprefix("sqlite:///"), tmp_path / "booking.db")
    file.chmod(0o600)


@pytest.fixture
def fjord(stored: Booking) -> Booking:
    """Return the same with the organization fjord-tours."""
    return _with_fjord_tours(stored)


@pytest.fixture
def stored_on_both(booking: Booking, environment: Environment, fresh_database_url: str) -> Booking:
    """Return a function that runs `booking` on an empty database of this test, of either kind."""
    return _on(booking, environment, fresh_database_url)


@pytest.fixture
def fjord_on_both(stored_on_both: Booking) -> Booking:
    """Return the same with the organization fjord-tours."""
    return _with_fjord_tours(stored_on_both)


@pytest.fixture
def world(stored_on_both: Booking, fresh_database_url: str) -> Iterator[World]:
    """Return the organization fjord-tours in the command's database, at the time of this machine."""
    clock = FixedClock(system_clock())
    with closing(Database(fresh_database_url, clock=clock)) as database:
        yield make_world(database, clock, slug="fjord-tours", refund_late_percent=50)


@pytest.fixture
def departure(world: World) -> str:
    """Return a departure of it with fifty seats."""
    return world.departure(world.experience(), seats=50)


_PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture
def process(environment: Environment) -> Process:
    """Return a function that starts `booking` in a separate process, with its modules loaded."""
    return lambda *argv, **settings: forking.start(["booking", *argv], text=True, **(_PIPES | settings))


@pytest.fixture
def new_process(environment: Environment) -> Process:
    """Return a function that starts `booking` in a new interpreter, for tests of the start itself."""
    return lambda *argv, **settings: subprocess.Popen([*COMMAND, *argv], text=True, **(_PIPES | settings))


@pytest.fixture
def nobody_reads() -> Iterator[int]:
    """Return a pipe whose reading end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def terminal(environment: Environment) -> OnTerminal:
    """Return a function that runs `booking` on a terminal of 100 columns and types `answer`, at once or after the
    question `at`. It returns the exit code and the screen."""

    def run(*argv: str, answer: str = "", at: str = "") -> tuple[int, str]:
        controller, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        typed = 0 if at else os.write(controller, answer.encode())
        environment_of = {**os.environ, "TERM": "xterm"}
        with forking.start(
            ["booking", *argv], stdin=screen, stdout=screen, stderr=screen, env=environment_of, start_new_session=True
        ) as started:
            os.close(screen)
            screen = b""
            while True:
                try:
                    chunk = os.read(controller, 65536)
                except OSError:  # the last one on the other side has gone
                    break
                if not chunk:
                    break
                screen += chunk
                if answer and not typed and at.encode() in screen:
                    typed = os.write(controller, answer.encode())
        os.close(controller)
        return started.returncode, screen.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def recorded_terminal(monkeypatch: pytest.MonkeyPatch) -> RecordedTerminal:
    """Return a function that makes stdout a terminal of that width without color, which records the output."""

    def record(columns: int) -> Terminal:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("sys.stdout", recorded := Terminal())
        return recorded

    return record


@pytest.fixture(scope="session")
def running_service(
    backend: str, new_database_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Return the service, running on either database."""
    with running(new_database_url(backend), tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def shop(running_service: Service, environment: Environment, tmp_path: Path) -> Iterator[World]:
    """Return an organization of this test; the environment has its key, and the database of the running service."""
    with reused_connections(), logged_in(running_service, environment, tmp_path) as hooks:
        environment("BOOKING_DATABASE_URL", running_service.url)
        environment("BOOKING_SECRET_KEY", SECRET)
        yield hooks.world


@pytest.fixture
def hooks(running_service: Service, environment: Environment, tmp_path: Path) -> Iterator[Hooks]:
    """Return an organization of this test with its webhooks; the environment has its key."""
    with logged_in(running_service, environment, tmp_path) as hooks:
        yield hooks


@dataclass
class Canned:
    """A service that returns prepared responses, and records the requests."""

    base_url: str
    answers: list[tuple[int, bytes]]
    """Status and body; the last one is given again and again."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path and headers."""
    bodies: list[Any] = field(default_factory=list)


@pytest.fixture
def canned(environment: Environment, tmp_path: Path) -> Iterator[Canned]:
    """Return such a service; the environment has its base URL."""

    def handle(call: Call) -> None:
        while call.read():
            line, _, rest = call.receiver.requests[-1].partition(b"\r\n")
            request, (method, path, _) = message_from_bytes(rest), line.decode().split()
            canned.requests.append((method, path, {name.lower(): text for name, text in request.items()}))
            sent = request.get_payload(decode=True)
            canned.bodies.append(json.loads(sent) if sent else None)
            status, body = canned.answers.pop(0) if len(canned.answers) > 1 else canned.answers[0]
            head = f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\nRetry-After: 0\r\nX-Request-Id: req_canned"
            call.send(f"{head}\r\n\r\n".encode() + body)

    with closing(Receiver(handle)) as server:
        canned = Canned(server.url(path=""), [(200, b"{}")])
        environment("BOOKING_BASE_URL", canned.base_url)
        environment("BOOKING_API_KEY", "svc_canned")
        environment("BOOKING_CONFIG_DIR", str(tmp_path / "config"))
        yield canned
