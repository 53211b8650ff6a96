"""Only the owner may open the files that the command writes, also with a umask that forbids nothing."""

import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.receivers.receivers import wait_until
from support.serving import forking
from support.serving.commands import Booking, Environment, Process
from support.serving.demo import booking_command, exported, small
from support.serving.servers import free_port
from support.serving.serving import read_until
from support.world.world import SECRET

from booking_core.base import private_files


@pytest.fixture
def start() -> Iterator[Process]:
    """Return a function that starts `booking` with a umask that forbids nothing, until the end of the test."""
    with ExitStack() as running:

        def run(*argv: str) -> forking.Process:
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            started = forking.start(["booking", *argv], text=True, umask=0, **streams)
            running.callback(started.communicate)
            running.callback(started.kill)
            return started

        yield run


def finished(*argv: str) -> int:
    """Run `booking` with such a umask to its end, and return its exit code."""
    return forking.run(["booking", *argv], text=True, umask=0).returncode


def modes(folder: Path) -> dict[str, int]:
    """Return the mode of every file and folder below, by its path."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))}


def too_open(folder: Path) -> dict[str, str]:
    """Return the paths that others or the group may read, write or enter."""
    return {path: f"{mode:o}" for path, mode in modes(folder).items() if mode & 0o077}


@pytest.fixture
def home(environment: Environment, tmp_path: Path) -> Path:
    """Return the empty folder where the commands run and keep their files."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)
    os.chdir(folder)
    environment("BOOKING_CONFIG_DIR", str(folder / "settings" / "config"))
    environment("BOOKING_MAIL_DIR", str(folder / "post" / "mails"))
    return folder


def copy_database(new_database_url: Callable[[str], str], mode: int) -> None:
    """Put an empty database of this release, with that mode, where a command without settings looks for one."""
    shutil.copyfile(new_database_url("sqlite").removeprefix("sqlite:///"), "booking.db")
    Path("booking.db").chmod(mode)


def test_a_demo_and_its_service_leave_nothing_open(home: Path, environment: Environment, start: Process) -> None:
    catalogue = home / "catalogue.json"
    catalogue.write_text(json.dumps(small("one", "EUR")))
    catalogue.chmod(0o600)
    started = start("demo", "--catalog", str(catalogue), "--port", str(free_port()))
    printed = "".join(read_until(started.stdout, "Uvicorn running on"))
    for name, value in exported(printed).items():
        environment(name, value)
    assert finished(*booking_command(printed)) == 0
    wait_until(lambda: any((home / "post" / "mails").glob("*.eml")), "the guest's mail is a file")
    database = {f".demo/booking.db{end}" for end in ("", "-wal", "-shm", ".secret", ".lock")}
    assert database | {".demo/key"} <= set(modes(home))
    assert too_open(home) == {}
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=60)
    assert too_open(home) == {}


def test_a_service_and_a_database_that_is_upgraded_are_closed(home: Path, start: Process) -> None:
    assert finished("db", "upgrade") == 0
    assert set(modes(home)) == {"booking.db"}
    assert too_open(home) == {}
    started = start("serve", "--port", "0")
    read_until(started.stdout, "Application startup complete")
    assert {"booking.db.secret", "booking.db.lock"} <= set(modes(home))
    assert too_open(home) == {}


def test_keys_and_reports_that_the_command_writes_are_closed(home: Path) -> None:
    assert finished("db", "upgrade") == 0
    create = ("--slug", "fjord", "--name", "Fjord", "--timezone", "Europe/Oslo", "--currency", "NOK")
    assert finished("orgs", "create", *create) == 0
    make = ("--org", "fjord", "--name", "one", "--all-read", "--secret-file", str(home / "new.key"))
    assert finished("keys", "create", *make) == 0
    finished("webhooks", "trigger", "booking.created", "--to", "http://127.0.0.1:9/")
    assert finished("report", "--org", "fjord", "--html", str(home / "report.html")) == 0
    assert {"new.key", "report.html"} <= set(modes(home))
    assert any(path.startswith("settings/config/") for path in modes(home))
    assert too_open(home) == {}


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=lambda argv: argv[0])
def test_files_that_an_earlier_release_left_open_are_closed_and_reported(
    home: Path, start: Process, new_database_url: Callable[[str], str], command: tuple[str, ...]
) -> None:
    copy_database(new_database_url, 0o644)
    (home / "booking.db.secret").write_text(SECRET + "\n")
    (home / "booking.db.secret").chmod(0o640)
    started = start(*command)
    logged = read_until(started.stdout, "startup complete", "the worker runs")
    assert too_open(home) == {}
    warnings = [line for line in logged if "could be read by others" in line]
    assert len(warnings) == 2
    assert "mode 0644" in warnings[0]
    assert "booking.db.secret" in warnings[1]


def test_an_upgrade_closes_what_is_open_and_says_so(
    home: Path, booking: Booking, new_database_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_database(new_database_url, 0o666)
    assert "mode 0666" in booking("db", "upgrade").err
    assert booking("db", "upgrade", "-q").err == ""
    assert too_open(home) == {}
    (home / "booking.db").chmod(0o640)
    monkeypatch.setattr(Path, "chmod", Mock(side_effect=PermissionError))  # as for the file of another owner
    assert "chmod 600" in booking("db", "upgrade").err


def test_a_folder_that_was_there_before_keeps_its_mode(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "mine").chmod(0o750)
    private_files.make_folder(home / "mine" / "new" / "newer")
    assert modes(home) == {"mine": 0o750, "mine/new": 0o700, "mine/new/newer": 0o700}


def test_a_file_that_takes_the_place_of_an_open_one_is_closed(home: Path) -> None:
    target, draft = home / "key", home / f".key.{os.getpid()}"
    for path in (target, draft):
        path.write_text("before")
        path.chmod(0o666)
    private_files.replace(target, b"after")
    assert target.read_bytes() == b"after"
    assert modes(home) == {"key": 0o600}
