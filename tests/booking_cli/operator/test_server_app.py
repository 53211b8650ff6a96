"""Processes that `booking serve` starts do not outlive it."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.api.connections import parsed
from support.receivers.receivers import wait_until
from support.serving.serving import serving, started
from support.world.world import SECRET

from booking_cli.operator import server_app

POST = b"POST /api/v1/bookings HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.exhaustive(but="--workers 2]")
@pytest.mark.parametrize("options", ["--workers 2 --no-worker", "--workers 2", "--reload"])
def test_a_supervisor_that_is_killed_takes_its_processes_along(
    options: str, new_database_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = new_database_url("sqlite" if options == "--reload" else "postgresql")
    settings = {"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET}
    supervisor = started(tmp_path, "serve", "--port", "0", *options.split(), **settings)
    with serving(supervisor, is_killed=True) as (address, _):
        host, _, port = address.removeprefix("http://").partition(":")
        processes = psutil.Process(supervisor.pid).children(recursive=True)
        assert alive(processes)
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(POST + b"{")
            supervisor.send_signal(signal.SIGKILL)
            client.sendall(b"}")  # at once: the processes are given less than a second
            (response,) = parsed(b"".join(iter(lambda: client.recv(65_536), b"")))
            assert response.status == 401  # a request in progress is answered
        supervisor.wait()
        wait_until(lambda: not alive(processes), "its processes have ended")
    with socket.create_server((host, int(port))):
        pass  # the port is free


def test_they_are_given_less_than_a_second() -> None:
    assert server_app.FINISH_S < 1


def test_a_process_that_nobody_started_watches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app.threading, "Thread", lambda **_: pytest.fail("there is nobody to watch"))
    server_app.end_with_parent()


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_that_crashes_shows_the_stacks_of_its_threads(
    command: str, new_database_url: Callable[[str], str], tmp_path: Path
) -> None:
    settings = {"BOOKING_DATABASE_URL": new_database_url("postgresql"), "BOOKING_SECRET_KEY": SECRET}
    options = ["--port", "0", "--no-worker"] if command == "serve" else []
    with started(tmp_path, command, *options, **settings) as process:
        ready = "Application startup complete" if command == "serve" else "settings: "
        log = iter(process.stderr)
        assert any(ready in line for line in log)
        if command == "worker":
            wait_until(lambda: len(psutil.Process(process.pid).threads()) > 1, "it has begun to work")
        process.send_signal(signal.SIGSEGV)
        text = "".join(log)
        assert process.wait() == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in text
    assert "most recent call first" in text
