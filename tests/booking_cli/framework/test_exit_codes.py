"""The table of exit codes, row by row: each is provoked, with the command that a person would have run."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.databases.databases import run
from support.serving.commands import Booking, Environment, OnTerminal, Process
from support.serving.servers import Service, free_port, new_world
from support.world.world import World

from booking_cli.framework.exit_codes import ExitCode
from booking_core.base.clock import system_clock
from booking_core.db import tables
from booking_core.models.scopes import Scope

UNKNOWN = "0190f3c2-7c1e-7b1a-9d53-2f8a4c6e1b07"
ADA = ("--name", "Ada", "--email", "ada@example.com", "--payment", "invoice")


def refused(result: Any, exit_code: ExitCode, code: str, status: int | None) -> None:
    """Check the exit code, the empty stdout, and the error object with exactly the documented fields."""
    assert (result.code, result.out) == (exit_code, "")
    error = result.error
    assert set(error) - {"details"} == {"code", "message", "status", "request_id", "hint", "exit_code"}
    assert (error["code"], error["status"], error["exit_code"]) == (code, status, exit_code)
    assert (error["request_id"] is not None) == (status is not None)


def test_0_done_and_an_empty_list(booking: Booking, shop: World) -> None:
    assert booking("bookings", "list").code == ExitCode.OK == 0


def test_1_a_question_answered_with_no(shop: World, terminal: OnTerminal) -> None:
    named = {"name": "x", "prefix": "svc_12345678", "key_hash": "0" * 64, "scopes": "[]"}
    key = shop.insert(tables.api_keys, **named, created_at=shop.clock())
    assert terminal("keys", "revoke", key, answer="n\n")[0] == ExitCode.FAILED == 1


def test_2_what_cannot_be_read(booking: Booking, shop: World) -> None:
    refused(booking("bookings", "list", "--limit", "many", "-o", "json"), ExitCode.USAGE, "usage", None)
    assert ExitCode.USAGE == 2


def test_3_nobody_listens(booking: Booking, shop: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("booking_sdk._retries.BACKOFF_S", 0.0)
    failed = booking("whoami", "--base-url", f"http://127.0.0.1:{free_port()}", "-o", "json")
    refused(failed, ExitCode.NETWORK, "network_error", None)
    assert ExitCode.NETWORK == 3


def test_4_a_key_that_opens_nothing(booking: Booking, shop: World, environment: Environment) -> None:
    for key, code in (
        (shop.key(revoked_at=shop.clock()), "api_key_revoked"),
        (shop.key(expires_at=shop.clock() - 1), "api_key_expired"),
        ("svc_" + "x" * 40, "api_key_invalid"),
    ):
        environment("BOOKING_API_KEY", key)
        refused(booking("whoami", "-o", "json"), ExitCode.AUTH, code, 401)
    assert ExitCode.AUTH == 4


def test_5_a_key_that_may_not(booking: Booking, shop: World, environment: Environment) -> None:
    environment("BOOKING_API_KEY", shop.key(Scope.BOOKINGS_READ))
    failed = booking("customers", "list", "-o", "json")
    refused(failed, ExitCode.FORBIDDEN, "insufficient_scope", 403)
    assert "customers:read" in failed.error["hint"]
    shop.change(tables.organizations, shop.org, api_app=False)
    refused(booking("bookings", "list", "-o", "json"), ExitCode.FORBIDDEN, "app_not_enabled", 403)
    assert ExitCode.FORBIDDEN == 5


def test_6_no_such_thing(booking: Booking, shop: World) -> None:
    for argv in (("bookings", "get"), ("customers", "get"), ("gift-cards", "get"), ("events", "get")):
        refused(booking(*argv, UNKNOWN, "-o", "json"), ExitCode.NOT_FOUND, "not_found", 404)
    assert ExitCode.NOT_FOUND == 6


def test_7_not_now(booking: Booking, shop: World) -> None:
    departure = shop.departure(shop.experience(), seats=1)
    argv = ("bookings", "create", "--departure", departure, "--guest", "adult=2", *ADA, "-o", "json")
    refused(booking(*argv), ExitCode.CONFLICT, "insufficient_capacity", 409)
    assert ExitCode.CONFLICT == 7


def test_8_a_request_that_is_wrong(booking: Booking, shop: World) -> None:
    forged = booking("bookings", "list", "--starting-after", "forged", "-o", "json")
    refused(forged, ExitCode.INVALID, "validation_failed", 400)
    departure = shop.departure(shop.experience())
    argv = ("bookings", "create", "--departure", departure, "--guest", "giant=1", *ADA, "-o", "json")
    refused(booking(*argv), ExitCode.INVALID, "validation_failed", 422)
    assert ExitCode.INVALID == 8


def test_9_too_many_requests(
    booking: Booking, new_database_url: Callable[[str], str], environment: Environment, tmp_path: Path
) -> None:
    busy = Service(new_database_url("sqlite"), tmp_path / "log", BOOKING_RATE_LIMIT="1/3600").start()
    try:
        with new_world(busy.url) as world:
            environment("BOOKING_API_KEY", world.key())
        environment("BOOKING_BASE_URL", f"http://127.0.0.1:{busy.ports[0]}")
        assert booking("whoami").code == 0
        failed = booking("whoami", "-o", "json")
    finally:
        busy.stop()
    refused(failed, ExitCode.RATE_LIMITED, "rate_limited", 429)
    assert failed.error["hint"].startswith("try again in ")
    assert ExitCode.RATE_LIMITED == 9


def test_10_the_services_own_failure(booking: Booking, canned: Any) -> None:
    canned.answers = [(500, b'{"error": "Something broke.", "code": "internal_error"}')]
    refused(booking("whoami", "-o", "json"), ExitCode.SERVER, "internal_error", 500)
    assert ExitCode.SERVER == 10


def test_11_a_signature_of_somebody_else(booking: Booking, environment: Environment, tmp_path: Path) -> None:
    environment("BOOKING_WEBHOOK_SECRET", "whsec_" + "QUJD" * 11)
    (tmp_path / "body").write_text("{}")
    header = "t=1795262400,v1=" + "0" * 64
    failed = booking("webhooks", "verify", "body", "--header", f"Svc-Signature: {header}", "-o", "json")
    assert (failed.code, failed.error["exit_code"]) == (ExitCode.SIGNATURE, 11)


def test_12_a_list_that_broke_off(booking: Booking, canned: Any) -> None:
    page = b'{"data": [{"id": "a"}], "has_more": true, "next_cursor": "b"}'
    canned.answers = [(200, page), (500, b'{"error": "Something broke.", "code": "internal_error"}')]
    failed = booking("bookings", "list", "--all", "-o", "jsonl")
    assert (failed.code, failed.error["exit_code"]) == (ExitCode.PARTIAL, 12)


def test_13_something_waits_for_a_person(fjord: Booking) -> None:
    assert fjord("doctor").code == ExitCode.OK
    at, owner = system_clock(), fjord("orgs", "show", "fjord-tours", "-o", "json").json["id"]
    effect = f"'{owner}', 'kind:{owner}', 'kind', '{owner}', '{{}}', 'failed', {at}, {at}, {at}, 'TemplateError'"
    columns = "organization_id, key, kind, subject_id, payload, status, due_at, created_at, completed_at, last_error"
    run(os.environ["BOOKING_DATABASE_URL"], f"INSERT INTO effects ({columns}) VALUES ({effect})")
    waits = fjord("doctor", "-o", "json")
    assert (waits.code, waits.json["data"][0]["kind"]) == (ExitCode.NEEDS_PERSON, "needs_person")
    assert ExitCode.NEEDS_PERSON == 13


def test_130_ctrl_c(shop: World, process: Process) -> None:
    waiting = process("events", "tail", "--follow", "-v")
    assert any(line.startswith("< 200") for line in waiting.stderr)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (ExitCode.INTERRUPTED, "")
    assert "Traceback" not in err


def test_every_row_of_the_table_is_provoked_here() -> None:
    rows = {int(name.split("_")[1]) for name in globals() if name.startswith("test_") and name.split("_")[1].isdigit()}
    assert rows == set(ExitCode)
