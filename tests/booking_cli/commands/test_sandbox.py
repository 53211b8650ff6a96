"""`booking sandbox`: a service from nothing, whose clock and mails its commands reach."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.serving.commands import Booking, Environment, OnTerminal, Process
from support.serving.demo import call
from support.serving.serving import read_until
from support.world.world import World

from booking_cli.client.conformance import CHECKS
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.operator import sandbox_service

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
    kept = ("--external-reference", "A-1", "--unique", "--metadata", "channel=acme")
    checkout = booking("checkouts", "create", *ada, *kept, "-o", "json").json
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
    left = {name.removeprefix("BOOKING_") for name in os.environ if name.startswith("BOOKING_")}
    assert left == {"DATABASE_URL", "PUBLIC_URL", "RATE_LIMIT", "WEBHOOK_ALLOW_HTTP", "WEBHOOK_ALLOW_CIDRS"}
