"""`booking demo`: from nothing to a service whose printed calls work."""

import json
import re
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from support.demo import call, small
from support.servers import free_port

Booking = Callable[..., Any]
"""Runs the command; see conftest."""
Process = Callable[..., subprocess.Popen[str]]


def printed_by(lines: Iterable[str]) -> str:
    """Return the output of the demo: the key, and the calls up to the empty line."""
    printed = ""
    for line in lines:
        printed += line
        if printed.count("\n\n") == 3:
            break
    return printed


def play(started: subprocess.Popen[str]) -> tuple[str, list[tuple[int, Any]]]:
    """Return the demo's output and the responses to its calls, and stop it."""
    assert started.stdout is not None
    assert started.stderr is not None
    try:
        logged = list(takewhile(lambda line: "Uvicorn running on" not in line, started.stderr))
        printed = printed_by(started.stdout)
        assert "curl" in printed, logged
        answers = [call(line) for line in printed.splitlines() if line.startswith("curl ")]
        started.send_signal(signal.SIGINT)
        started.stderr.read()
        assert started.wait() == 0
        return printed + started.stdout.read(), answers
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
        started.stderr.close()


def test_the_demo_serves_what_it_printed_and_again_on_the_next_run(new_process: Process, process: Process) -> None:
    printed, answers = play(new_process("demo", "--port", str(free_port())))
    exports = dict(line.removeprefix("export ").split("=", 1) for line in printed.splitlines() if "export" in line)
    assert exports["BOOKING_DATABASE_URL"] == f"sqlite:///{Path('.demo/booking.db').absolute()}"
    assert exports["BOOKING_API_KEY"] in printed.splitlines()[0]
    assert exports["BOOKING_BASE_URL"].startswith("http://127.0.0.1:")
    assert ": booking demo --once" in printed
    assert [status for status, _ in answers[:2]] == [200, 200]
    assert answers[0][1]["organization"]["slug"] == "fjord-tours"
    if len(answers) == 3:  # the example catalogues end in 2027
        assert answers[2][0] == 201
        assert answers[2][1]["payment"]["method"] == "pay_on_site"
    key = Path(".demo/key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() in printed
    again, answers = play(process("demo", "--port", str(free_port())))
    assert key.read_text().strip() in again
    assert [status for status, _ in answers[:2]] == [200, 200]


def test_a_catalogue_of_ones_own_is_served(
    stored_on_both: Booking, process: Process, tmp_path: Path, environment: Callable[[str, str], None]
) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(small("own-tour", "CLP")))
    printed, answers = play(process("demo", "--catalog", str(file), "--port", str(free_port())))
    assert "API key of demo" in printed
    assert [status for status, _ in answers] == [200, 200, 201]
    assert answers[0][1]["organization"]["default_currency"] == "CLP"
    assert answers[2][1]["experience"]["slug"] == "own-tour"


def test_the_demo_is_an_object_in_json(booking: Booking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOKING_DATABASE_URL", "BOOKING_PUBLIC_URL"):
        monkeypatch.setenv(name, "")  # the demo sets them for the application; this takes them back afterwards
    monkeypatch.setattr("booking_cli.operator.service.run_server", lambda settings, **address: 0)
    file = tmp_path / "own.json"
    file.write_text(json.dumps(small("own-tour", "NOK")))
    shown = booking("demo", "--catalog", str(file), "--port", str(free_port()), "-o", "json").json
    assert shown["organizations"] == ["demo"]
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}", shown["key"])
    assert len(shown["calls"]) == 3


def test_a_bad_catalogue_leaves_no_organization(
    booking: Booking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BOOKING_DATABASE_URL", "BOOKING_PUBLIC_URL"):
        monkeypatch.setenv(name, "")
    file = tmp_path / "own.json"
    file.write_text('{"experiences": [{"slug": "x"}]}')
    refused = booking("demo", "--catalog", str(file), "--port", str(free_port()), "-o", "json")
    assert refused.code == 8
    assert booking("orgs", "list", "--json").json["data"] == []


def test_without_the_examples_a_catalogue_is_asked_for(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    from booking_cli.operator import demo_organizations

    missing = [each._replace(catalogue=Path("nowhere.json")) for each in demo_organizations.ORGANIZATIONS]
    monkeypatch.setattr(demo_organizations, "ORGANIZATIONS", missing)
    refused = booking("demo", "--port", str(free_port()), "-o", "json")
    assert (refused.code, refused.error["hint"]) == (2, "booking demo --catalog FILE")
