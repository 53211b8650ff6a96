"""`booking webhooks`, over HTTP against a running service on both databases."""

import json
import re
import signal
from typing import Any

import pytest
from support.serving.commands import Booking, OnTerminal, Process, RecordedTerminal
from support.world.hooks import CARD, Hooks

from booking_cli.framework import event_types
from booking_cli.main import main
from booking_core.base.clock import HOUR, MINUTE, SECOND
from booking_core.models.webhooks import AttemptError

URL = "https://127.0.0.1:8443/hook"
CREATE = ("webhooks", "create", "--url", URL, "--event", "booking.created")


def create(booking: Booking, *argv: str) -> dict[str, Any]:
    result = booking(*CREATE, *argv, "-o", "json")
    assert result.code == 0, result.err
    return result.json


# Endpoints -------------------------------------------------------------------------------------------------------


def test_the_secret_of_an_endpoint_is_shown_once_and_never_again(booking: Booking, hooks: Hooks) -> None:
    endpoint = create(booking, "--event", "booking.cancelled", "--description", "The calendar")
    secret = endpoint.pop("secret")
    assert secret.startswith("whsec_")
    assert endpoint["event_types"] == ["booking.cancelled", "booking.created"]
    assert endpoint["description"] == "The calendar"
    result = booking("webhooks", "show", endpoint["id"], "-o", "json")
    listed = booking("webhooks", "list", "-o", "json")
    assert result.json == endpoint
    assert listed.json == {"data": [endpoint], "has_more": False, "next_cursor": None}
    assert secret not in result.out + listed.out


def test_a_person_is_informed_that_the_secret_is_shown_once(booking: Booking, hooks: Hooks) -> None:
    result = booking(*CREATE)
    assert "secret\twhsec_" in result.out
    assert "Save the secret now" in result.err
    assert booking(*CREATE, "--fields", "secret").out.startswith("whsec_")


def test_rotation_overlaps_for_a_day_unless_another_time_is_given(booking: Booking, hooks: Hooks) -> None:
    endpoint = create(booking)
    rotate = ("webhooks", "rotate-secret", endpoint["id"], "--json")
    rotated = booking(*rotate).json
    assert rotated["secret"] != endpoint["secret"]
    assert rotated["previous_secret_expires_at"] is not None
    leaked = create(booking)["id"]
    at_once = booking("webhooks", "rotate-secret", leaked, "--overlap", "0", "-o", "json").json
    assert at_once["previous_secret_expires_at"] is None
    assert [booking(*rotate, "--overlap", wrong).code for wrong in ("8d", "soon")] == [8, 2]


def test_a_rotation_that_would_end_a_secret_early_names_the_way_out(booking: Booking, hooks: Hooks) -> None:
    rotate = ("webhooks", "rotate-secret", create(booking)["id"], "-o", "json")
    assert [booking(*rotate).code for _ in range(2)] == [0, 0]
    refused = booking(*rotate)
    assert (*refused.refusal, refused.error["hint"]) == (7, "conflict", "--overlap 0 ends all former secrets now")
    assert booking(*rotate, "--overlap", "0").json["former_secrets"] == []


def test_what_is_given_is_changed_and_the_rest_left(booking: Booking, hooks: Hooks) -> None:
    endpoint = create(booking, "--description", "The calendar")
    update = ("webhooks", "update", endpoint["id"], "--json")
    changed = booking(*update, "--event", "customer.created", "--url", f"{URL}/2").json
    assert (changed["event_types"], changed["url"]) == (["customer.created"], f"{URL}/2")
    assert (changed["description"], changed["max_per_second"]) == ("The calendar", None)
    assert booking(*update, "--description", "").json["description"] is None
    for typed, limit in (("20", 20), ("0", None)):
        assert booking(*update, "--max-per-second", typed).json["max_per_second"] == limit
    assert booking(*update).error["message"] == "There is nothing to change."


def test_an_endpoint_is_disabled_and_resumed(booking: Booking, hooks: Hooks) -> None:
    endpoint = create(booking)
    off = booking("webhooks", "update", endpoint["id"], "--disable", "-o", "json").json
    assert (off["status"], off["disabled_reason"]) == ("disabled", "manual")
    resumed = booking("webhooks", "enable", endpoint["id"])
    assert "status\tenabled\n" in resumed.out
    assert f"booking webhooks recover {endpoint['id']}" in resumed.err


def test_an_endpoint_is_deleted_once(booking: Booking, hooks: Hooks) -> None:
    hook_id = create(booking)["id"]
    assert booking("webhooks", "delete", hook_id, "--yes", "-o", "json").json == {"id": hook_id, "deleted": True}
    assert booking("webhooks", "delete", hook_id, "--yes", "--json").code == 6


# Deliveries ------------------------------------------------------------------------------------------------------


def test_a_test_is_queued_and_found_in_the_log(booking: Booking, hooks: Hooks) -> None:
    endpoint = create(booking)
    assert f"booking webhooks deliveries show {endpoint['id']} " in booking("webhooks", "test", endpoint["id"]).err
    again = booking("webhooks", "test", endpoint["id"], "-o", "json").json
    assert (again["event_type"], again["status"], again["trigger"]) == ("ping", "queued", "test")
    result = booking("webhooks", "deliveries", "show", endpoint["id"], again["id"], "-o", "json")
    assert result.json == again
    first, _ = booking("webhooks", "deliveries", "list", endpoint["id"], "-o", "json").json["data"]
    assert first["id"] == again["id"]


def test_the_log_is_filtered_and_walked_in_pages(booking: Booking, hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    (first, *_) = hooks.publish(times=3)
    hooks.succeed(hooks.one(free=1))
    argv = ("webhooks", "deliveries", "list", endpoint)
    assert len(booking(*argv, "--status", "queued", "--json").json["data"]) == 2
    (succeeded,) = booking(*argv, "--status", "succeeded", "--json").json["data"]
    assert succeeded["attempts"][0]["response_status"] == 200
    assert [delivery["event_id"] for delivery in booking(*argv, "--event-id", first, "--json").json["data"]] == [first]
    assert booking(*argv, "--event-type", "booking.created", "--json").json["data"] == []
    page = booking(*argv, "--limit", "2", "--json").json
    assert (len(page["data"]), page["has_more"]) == (2, True)
    rest = booking(*argv, "--limit", "2", "--starting-after", page["next_cursor"], "--json").json
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    everything = booking(*argv, "--all", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["id"] for line in everything] == [row["id"] for row in page["data"] + rest["data"]]
    assert len(booking(*argv).out.splitlines()) == 3
    assert booking(*argv, "--status", "lost", "--json").code == 2


def test_a_dead_delivery_is_tried_once_more(booking: Booking, hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    hooks.publish()
    hooks.fail_until_dead()
    (dead,) = booking("webhooks", "deliveries", "list", endpoint, "--status", "dead", "--json").json["data"]
    retried = booking("webhooks", "deliveries", "retry", endpoint, dead["id"], "-o", "json").json
    assert (retried["status"], retried["max_attempts"]) == ("queued", 7)
    refused = booking("webhooks", "deliveries", "retry", endpoint, dead["id"], "--json")
    assert (refused.code, refused.error["status"]) == (7, 409)


@pytest.mark.parametrize("off", [False, True])
def test_recover_does_what_its_dry_run_said(booking: Booking, hooks: Hooks, off: bool) -> None:
    endpoint = hooks.endpoint()
    hooks.publish(times=2)
    hooks.fail_until_dead()
    if off:
        booking("webhooks", "update", endpoint, "--disable")
        hooks.publish()
        booking("webhooks", "enable", endpoint)
    argv = ("webhooks", "recover", endpoint, "--since", "2000-01-01T00:00:00")
    for _ in range(2):
        tried = booking(*argv, "--dry-run", "-o", "json").json
        assert tried == {"matched": 2 + off, "dead": 2, "failed": int(off), "dry_run": True}
    assert booking(*argv, "--status", "dead", "--dry-run", "--json").json["matched"] == 2
    assert booking(*argv, "--event", "booking.created", "--dry-run", "--json").json["matched"] == 0
    first, second = (booking(*argv, "-o", "json").json for _ in range(2))
    assert (first["matched"], second["matched"]) == (2 + off, 0)
    listed = booking("webhooks", "deliveries", "list", endpoint, "--recovery-id", first["id"], "--json").json["data"]
    assert len(listed) == 2 + off
    assert {row["status"] for row in hooks.deliveries()} == {"queued"}


def test_recover_takes_a_time_of_the_organization_and_a_length(booking: Booking, hooks: Hooks) -> None:
    endpoint = hooks.endpoint()
    hooks.publish()
    hooks.fail_until_dead()
    for since, until, matched in (
        ("2h", None, 1),
        ("2h", "1h", 0),
        ("2000-01-01", "2001-01-01", 0),
        ("2000-01-01T00:00:00Z", "2999-01-01T00:00:00+01:00", 1),
    ):
        argv = ("webhooks", "recover", endpoint, "--since", since, *(("--until", until) if until else ()))
        assert booking(*argv, "--dry-run", "--json").json["matched"] == matched
    assert booking("webhooks", "recover", endpoint, "--since", "yesterday", "--json").code == 2


def test_a_watch_tells_of_each_change_until_it_is_interrupted(booking: Booking, hooks: Hooks, process: Process) -> None:
    endpoint = hooks.endpoint()
    hooks.publish()
    with process("webhooks", "deliveries", "list", endpoint, "--watch", "-o", "json") as started:
        assert json.loads(started.stdout.readline())["status"] == "queued"
        hooks.succeed(hooks.one())
        assert json.loads(started.stdout.readline())["status"] == "succeeded"
        started.send_signal(signal.SIGINT)
        assert started.stdout.read() == ""
        assert started.wait() == 130


# Refusals --------------------------------------------------------------------------------------------------------


# On a terminal ---------------------------------------------------------------------------------------------------


def test_on_a_terminal_the_watch_has_a_line_for_each_change(
    booking: Booking, hooks: Hooks, monkeypatch: pytest.MonkeyPatch, recorded_terminal: RecordedTerminal
) -> None:
    endpoint, screen, looks = hooks.endpoint(), recorded_terminal(100), iter(range(3))
    hooks.publish()

    def between_two_looks(_: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt
        if hooks.deliveries()[0]["status"] == "queued":
            hooks.succeed(hooks.one())

    monkeypatch.setattr("booking_cli.commands.webhooks.deliveries.time.sleep", between_two_looks)
    assert main(["webhooks", "deliveries", "list", endpoint, "--watch", "--color", "always"]) == 130
    header, queued, succeeded = screen.getvalue().splitlines()
    assert header.split()[:4] == ["\x1b[1mid", "status", "http", "error"]
    assert max(map(len, (queued, succeeded))) <= 100
    assert [line.split()[1] for line in (queued, succeeded)] == ["queued", "succeeded"]


def test_a_delivery_is_shown_with_a_table_of_its_attempts(booking: Booking, hooks: Hooks, terminal: OnTerminal) -> None:
    endpoint = hooks.endpoint()
    hooks.publish()
    hooks.fail_until_dead()
    (dead,) = booking("webhooks", "deliveries", "list", endpoint, "--json").json["data"]
    _, screen = terminal("webhooks", "deliveries", "show", endpoint, dead["id"], "--color", "never")
    pairs, _, attempts = screen.partition("\n\n")
    assert re.match(r"Dead since [-\d]+ [:\d]+, after 6 attempts, the last with 500 from receiver\.example\.\n", pairs)
    assert "failure_reason        attempts_exhausted\n" in pairs
    heading, *rows = attempts.splitlines()
    assert heading.split()[:4] == ["number", "started_at", "http", "error"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert max(map(len, screen.splitlines())) <= 100


def test_a_delivery_is_explained_in_a_sentence(booking: Booking, hooks: Hooks, terminal: OnTerminal) -> None:
    endpoint = hooks.endpoint(url="https://receiver.example/hook")

    def explained(event_id: str) -> str:
        (row,) = [row for row in hooks.deliveries() if row["event_id"] == event_id]
        _, screen = terminal("webhooks", "deliveries", "show", endpoint, row["id"], "--color", "never")
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "T", screen.splitlines()[0])

    first, second = hooks.publish(CARD, times=2)
    (other,) = hooks.publish()
    assert explained(first) == "Waits for a worker, due since T."
    assert explained(second) == "Waits for the first attempt of event 1 of the same gift card."
    claimed = {delivery.event_id: delivery for delivery in hooks.claim()}
    assert explained(first) == "An attempt is under way since T."
    hooks.record(hooks.result(claimed[first], AttemptError.HTTP_STATUS, 503))
    assert explained(first) == "Waits for the retry at T, after 503 from receiver.example."
    hooks.succeed(claimed[other])
    assert explained(other) == "Delivered at T, after 1 attempt."
    hooks.disable(endpoint)
    assert explained(second) == "Not sent: endpoint disabled since T."
    hooks.enable(endpoint)
    assert explained(second).startswith("Not sent: the endpoint was disabled at T. ")


def test_a_delivery_whose_worker_died_is_explained(booking: Booking, hooks: Hooks, terminal: OnTerminal) -> None:
    endpoint = hooks.endpoint(url="https://receiver.example/hook", events=1)

    def explained() -> str:
        (row,) = hooks.rows()
        _, screen = terminal("webhooks", "deliveries", "show", endpoint, row["id"], "--color", "never")
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "T", screen.splitlines()[0])

    sentences = []
    for _ in range(3):
        hooks.one(lease_s=30)
        sentences.append(explained())
        hooks.world.clock.advance(30 * SECOND)
        hooks.rescue()
        sentences.append(explained())
    under_way, waits = "An attempt is under way since T.", "Waits for a worker, due since T."
    assert sentences[:5] == [under_way, waits, under_way, waits, under_way]
    assert sentences[5] == "Waits for the retry at T, after no answer from receiver.example."


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_says_how_long_an_endpoint_fails(
    booking: Booking, hooks: Hooks, recorded_terminal: RecordedTerminal, width: int
) -> None:
    now = hooks.world.clock()
    failing = {"enabled_at": now - 80 * HOUR, "created_at": now - 90 * HOUR, "consecutive_failures": 6}
    hooks.endpoint(**failing, last_success_at=now - 20 * HOUR - MINUTE)
    hooks.endpoint(**failing)
    hooks.endpoint(**failing | {"consecutive_failures": 5})
    screen = recorded_terminal(width)
    assert booking("webhooks", "list").code == 0
    header, *lines = screen.getvalue().splitlines()
    assert {re.search(r"failing for \d+ h|enabled", line)[0] for line in lines} == {
        *("failing for 20 h", "failing for 80 h", "enabled")
    }
    assert "url" in header


def test_an_empty_list_says_what_to_do(booking: Booking, hooks: Hooks) -> None:
    empty = booking("webhooks", "list", "-o", "table")
    assert empty.out == ""
    assert "booking webhooks create" in empty.err


def test_a_type_that_the_service_does_not_have_is_one_short_line(booking: Booking, hooks: Hooks) -> None:
    argv = ("webhooks", "create", "--url", URL, "--event", "order.made")
    refused = booking(*argv)
    assert (refused.code, refused.out) == (8, "")
    error, request, hint = refused.err.splitlines()
    assert error == "error: The service has no such event type."
    assert request.startswith("request: req_")
    assert hint == "hint: booking help event-types lists the event types"
    assert booking(*argv, "-o", "json").error["details"][0]["field"] == "event_types.0"
    assert len(booking("help", "event-types").out.splitlines()) == len(event_types.TYPES)
