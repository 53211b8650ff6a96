"""`booking sandbox` and `booking demo`: a service from nothing, whose clock, mails and printed calls work."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from support.serving.commands import Booking, Environment, OnTerminal, Process
from support.serving.demo import call, exported, small
from support.serving.servers import free_port
from support.serving.serving import read_until
from support.world.world import World

from booking_cli.client.conformance import CHECKS
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import demo_organizations, sandbox_service
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.statements import Statement

Served = tuple[subprocess.Popen[str], dict[str, Any]]


@pytest.fixture
def served(process: Process, environment: Environment) -> Iterator[Served]:
    """Return the process of a sandbox that is served, and the object that it printed."""
    environment("BOOKING_SMTP_URL", "smtp://mail.example.com")
    started = process("sandbox", "serve", "--port", "0", "--json")
    try:
        printed = "".join([*iter(started.stdout.readline, "}\n"), "}"])
        read_until(started.stderr, "Uvicorn running on")
        yield started, json.loads(printed)
    finally:
        started.kill()
        started.communicate()


@pytest.mark.exhaustive
def test_a_sandbox_that_is_served_keeps_the_contract(
    served: Served, booking: Booking, environment: Environment, terminal: OnTerminal
) -> None:
    for name, value in served[1]["environment"].items():
        environment(name, value)
    result = booking("conformance", "-o", "json")
    outcomes = result.json["data"]
    assert (result.code, {outcome["status"] for outcome in outcomes}) == (0, {"kept"})
    assert len(outcomes) == len(CHECKS)
    code, screen = terminal("conformance")
    assert (code, f"checks: {len(CHECKS)} kept, 0 broken, 0 skipped" in screen) == (0, True)
    assert "Events are listed newest first" in screen


def test_only_a_sandbox_is_checked_for_conformance(shop: World, booking: Booking) -> None:
    assert booking("conformance", "-o", "json").refusal == (ExitCode.USAGE, "not_a_sandbox")


def test_a_sandbox_is_served_moved_read_and_stopped(served: Served, booking: Booking, environment: Environment) -> None:
    process, printed = served
    assert printed["key"].startswith("svc_test_")
    assert httpx.get(printed["ready"]).status_code == 200
    for name, value in printed["environment"].items():
        environment(name, value)
    departure = booking("availability", "-o", "json").json["data"][0]
    ada = ("--departure", departure["id"], "--guest", "adult=1", "--name", "Ada Lovelace", "--email", "ada@example.com")
    assert booking("bookings", "create", *ada, "--payment", "pay_on_site").code == 0
    reference = ("--external-reference", "A-1", "--unique", "--metadata", "channel=acme")
    checkout = booking("checkouts", "create", *ada, *reference, "-o", "json").json
    assert (checkout["booking"]["external_reference"], checkout["booking"]["metadata"]) == ("A-1", {"channel": "acme"})
    for card, status in (("pm_card_chargeDeclined", "pending"), ("pm_card_visa", "confirmed")):
        paid = booking("sandbox", "pay", checkout["id"], "--card", card, "-o", "json").json
        assert paid["checkout"]["booking"]["status"] == status
    before = booking("sandbox", "clock", "-o", "json").json
    assert before["offset_seconds"] == 0
    assert booking("sandbox", "advance", "31m", "-o", "json").json["offset_seconds"] == 31 * 60
    assert booking("sandbox", "advance", "--to", before["now"], "-o", "json").refusal == (8, "validation_failed")
    while booking("sandbox", "clock", "--fields", "status").out.strip() != "ready":
        pass  # each look takes longer than the work that it waits for
    mails = booking("sandbox", "mails", "--all", "-o", "json").json["data"]
    assert {mail["kind"] for mail in mails} == {"booking_confirmation_mail"}
    folder = Path(printed["database"]).parent
    assert folder.exists()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert not folder.exists()


def test_each_call_that_it_prints_is_answered_200(served: Served) -> None:
    answers = [call(line) for line in served[1]["calls"]]
    assert [status for status, _ in answers] == [200] * 4
    departures = answers[1][1]["data"]
    assert {departure["status"] for departure in departures} == {"open"}


@pytest.mark.parametrize("arguments", [(), ("31m", "--to", "2026-12-24T09:00")])
def test_an_advance_takes_a_duration_or_an_instant(booking: Booking, arguments: tuple[str, ...]) -> None:
    refused = booking("sandbox", "advance", *arguments, "--json")
    assert (refused.code, "duration" in refused.error["message"]) == (2, True)


def test_a_group_without_a_command_serves(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(sandbox_service, "serve", lambda _, **options: calls.append(options) or 0)
    assert booking("sandbox", "--port", "9000").code == 0
    assert booking("sandbox", "--port", "9000", "--db", "kept.db").code == 0
    assert calls == [{"port": 9000, "db": None}, {"port": 9000, "db": Path("kept.db")}]


def test_no_setting_of_the_environment_reaches_the_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("BOOKING_")]:
        monkeypatch.delenv(name)
    for name in ("SMTP_URL", "STRIPE_API_KEY", "CELLS"):
        monkeypatch.setenv(f"BOOKING_{name}", "set")
    sandbox_service._set_environment(tmp_path / "sandbox.db", 9000)
    names = {name.removeprefix("BOOKING_") for name in os.environ if name.startswith("BOOKING_")}
    assert names == {"DATABASE_URL", "PUBLIC_URL", "RATE_LIMIT", "WEBHOOK_ALLOW_HTTP", "WEBHOOK_ALLOW_CIDRS"}


# The demo ------------------------------------------------------------------------------------------------------------


SET_BY_THE_DEMO = ("DATABASE_URL", "PUBLIC_URL", "WEBHOOK_ALLOW_HTTP", "WEBHOOK_ALLOW_CIDRS")


def do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo end before it serves, and take its settings back after the test."""
    for name in SET_BY_THE_DEMO:
        monkeypatch.setenv(f"BOOKING_{name}", os.environ.get(f"BOOKING_{name}", ""))
    monkeypatch.setattr("booking_cli.operator.service.run_server", lambda settings, **address: 0)


def play(started: subprocess.Popen[str]) -> tuple[str, list[tuple[int, Any]]]:
    """Return the demo's output and the responses to its calls, and stop it."""
    try:
        logged = read_until(started.stderr, "Uvicorn running on")
        printed = "".join(read_until(started.stdout, "curl -s"))
        assert "curl" in printed, logged
        variables = exported(printed)
        answers = [call(Template(line).substitute(variables)) for line in printed.splitlines() if "curl -s" in line]
        started.send_signal(signal.SIGINT)
        started.stderr.read()
        assert started.wait() == 0
        return printed + started.stdout.read(), answers
    finally:
        started.kill()
        started.communicate()


@pytest.mark.exhaustive
def test_the_demo_serves_what_it_printed_and_again_on_the_next_run(new_process: Process, process: Process) -> None:
    printed, answers = play(new_process("demo", "--port", str(free_port())))
    exports = exported(printed)
    assert exports["BOOKING_DATABASE_URL"] == f"sqlite:///{Path('.demo/booking.db').absolute()}"
    assert exports["BOOKING_BASE_URL"].startswith("http://127.0.0.1:")
    assert printed.count(exports["BOOKING_API_KEY"]) == 1
    assert "\nbooking demo --once " in printed
    assert f"{exports['BOOKING_BASE_URL']}/manage/" in printed, "the page of a guest"
    assert all(len(line) <= 80 for line in printed.splitlines() if not line.startswith(("export", "  ")))
    assert [(status, answer["organization"]["slug"]) for status, answer in answers] == [(200, "fjord-tours")]
    key = Path(".demo/key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() == exports["BOOKING_API_KEY"]
    again, answers = play(process("demo", "--port", str(free_port())))
    assert exported(again)["BOOKING_API_KEY"] == exports["BOOKING_API_KEY"]
    assert [status for status, _ in answers] == [200]


def test_a_catalogue_of_ones_own_is_served(
    stored_on_both: Booking, process: Process, tmp_path: Path, environment: Environment
) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(small("own-tour", "CLP")))
    printed, answers = play(process("demo", "--catalog", str(file), "--port", str(free_port())))
    assert "An API key of demo " in printed
    ((status, answer),) = answers
    assert (status, answer["organization"]["default_currency"]) == (200, "CLP")


def test_the_demo_is_an_object_in_json(booking: Booking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_serve(monkeypatch)
    file = tmp_path / "own.json"
    file.write_text(json.dumps(small("own-tour", "NOK")))
    demo = booking("demo", "--catalog", str(file), "--port", str(free_port()), "-o", "json").json
    assert demo["organizations"] == ["demo"]
    assert re.fullmatch(r"svc_[0-9A-Za-z]{40}", demo["key"])
    assert demo["booking"]["guests"] == [{"tier_id": "standard", "count": 1}]
    assert demo["environment"]["BOOKING_API_KEY"] == demo["key"]


@pytest.mark.exhaustive(but="sqlite")
def test_the_demo_has_every_delivery_state_and_only_dead_ones_are_findings(
    stored_on_both: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_serve(monkeypatch)
    assert stored_on_both("demo", "--port", str(free_port())).code == 0
    with contextlib.closing(Database(os.environ["BOOKING_DATABASE_URL"])) as database, database.reading() as tx:
        rows = tx.all(Statement(select(tables.deliveries.c.status, tables.deliveries.c.attempt_count)))
        endpoints = tx.all(Statement(select(tables.webhook_endpoints.c.status, tables.webhook_endpoints.c.url)))
    assert {("succeeded", 1), ("queued", 1), ("dead", 6)} <= {tuple(row) for row in rows}
    assert {row[0] for row in endpoints} == {"enabled", "disabled"}
    assert all(row[1].startswith("http://localhost:") for row in endpoints)
    findings = stored_on_both("doctor", "-o", "json")
    assert (findings.code, {row["kind"] for row in findings.json["data"]}) == (13, {"needs_person"})


def test_a_bad_catalogue_leaves_no_organization(
    booking: Booking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_serve(monkeypatch)
    file = tmp_path / "own.json"
    file.write_text('{"experiences": [{"slug": "x"}]}')
    refused = booking("demo", "--catalog", str(file), "--port", str(free_port()), "-o", "json")
    assert refused.code == 8
    assert booking("orgs", "list", "--json").json["data"] == []


def test_without_the_examples_a_catalogue_is_asked_for(booking: Booking, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [demo._replace(catalogue=Path("nowhere.json")) for demo in demo_organizations.ORGANIZATIONS]
    monkeypatch.setattr(demo_organizations, "ORGANIZATIONS", missing)
    for option in (("--port", str(free_port())), ("--once",)):
        refused = booking("demo", *option, "-o", "json")
        assert (*refused.refusal, refused.error["hint"]) == (2, "no_examples", "booking demo --catalog FILE")
