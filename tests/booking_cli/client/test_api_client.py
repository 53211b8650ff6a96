"""The key, the address, and the message when a request fails."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking, Environment

from booking_cli.framework.exit_codes import ExitCode

ME = json.dumps(
    {"organization": {"slug": "fjord-tours", "name": "Fjord Tours"}, "key": {"scopes": ["bookings:read"]}}
).encode()
CONFIG = """
current = "{current}"

[profiles.home]
base_url = "{url}"
organization = "fjord-tours"
key_prefix = "svc_home"
secret_file = "{folder}/home.key"
"""


def error(code: str, **extra: Any) -> bytes:
    return json.dumps({"error": "As it is.", "code": code, **extra}).encode()


def page(*ids: str, cursor: str | None = None) -> tuple[int, bytes]:
    data = [{"id": resource_id} for resource_id in ids]
    return 200, json.dumps({"data": data, "has_more": cursor is not None, "next_cursor": cursor}).encode()


@pytest.fixture
def home(canned: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a profile in use, without settings in the environment."""
    canned.answers = [(200, ME)]
    monkeypatch.delenv("BOOKING_API_KEY")
    monkeypatch.delenv("BOOKING_BASE_URL")
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "home.key").write_text("svc_home_secret\n")
    (folder / "home.key").chmod(0o600)
    (folder / "config.toml").write_text(CONFIG.format(current="home", url=canned.base_url, folder=folder))
    return canned


def key_sent(canned: Any) -> str:
    return str(canned.requests[-1][2]["authorization"].removeprefix("Bearer "))


# Which key, which address ----------------------------------------------------------------------------------------


def test_the_profile_is_used_when_nothing_else_is_said(booking: Booking, home: Any) -> None:
    assert booking("whoami").code == 0
    assert key_sent(home) == "svc_home_secret"


def test_the_environment_wins_over_the_profile_and_says_so(
    booking: Booking, home: Any, environment: Environment
) -> None:
    environment("BOOKING_API_KEY", "svc_other_secret")
    result = booking("whoami")
    assert key_sent(home) == "svc_other_secret"
    assert result.err == "note: BOOKING_API_KEY overrides the key of the profile home\n"
    assert booking("whoami", "-q").err == ""


def test_a_flag_wins_over_the_environment(
    booking: Booking, home: Any, environment: Environment, typed: Callable[[str], None]
) -> None:
    environment("BOOKING_API_KEY", "svc_other_secret")
    environment("BOOKING_BASE_URL", "http://127.0.0.1:1")
    typed("svc_flag_secret\nmore\n")
    assert booking("whoami", "--api-key-stdin", "--base-url", home.base_url).code == 0
    assert key_sent(home) == "svc_flag_secret"


@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [("BOOKING_API_KEY", "svc_other_secret", "key"), ("BOOKING_BASE_URL", "http://127.0.0.1:1", "base URL")],
)
def test_the_error_names_the_profile_and_the_variable_that_contradicts_it(
    booking: Booking, home: Any, environment: Environment, variable: str, value: str, what: str
) -> None:
    environment(variable, value)
    refused = booking("whoami", "--profile", "home", "-o", "json")
    assert (refused.refusal, home.requests) == ((ExitCode.USAGE, "ambiguous_credentials"), [])
    message = f"--profile home and {variable} contradict each other: each names another {what}."
    assert refused.error["message"] == message


def test_a_variable_that_says_the_same_as_the_profile_is_no_contradiction(
    booking: Booking, home: Any, environment: Environment
) -> None:
    environment("BOOKING_API_KEY", "svc_home_secret")
    environment("BOOKING_BASE_URL", home.base_url + "/")
    result = booking("whoami", "--profile", "home")
    assert (result.code, result.err) == (0, "")


def test_the_error_for_an_unknown_profile_lists_the_existing_ones(
    booking: Booking, home: Any, environment: Environment
) -> None:
    refused = booking("whoami", "--profile", "work", "-o", "json")
    assert refused.refusal == (ExitCode.USAGE, "no_profile")
    assert refused.error["message"] == "There is no profile work; there are: home."
    assert refused.error["hint"] == "booking login --profile work"
    environment("BOOKING_PROFILE", "work")
    assert booking("whoami", "-o", "json").error == refused.error
    assert booking("whoami", "--profile", "home").code == 0


@pytest.mark.parametrize("name", ["a.b", "a b", "../x", "ü", "x" * 65])
def test_a_name_that_no_profile_can_have_is_refused(booking: Booking, home: Any, name: str) -> None:
    assert booking("whoami", "--profile", name, "-o", "json").error["code"] == "bad_profile"


@pytest.mark.parametrize(
    ("key", "url", "exit_code", "code", "hint"),
    [
        ("", "", ExitCode.AUTH, "not_logged_in", "run booking login, or set BOOKING_API_KEY and BOOKING_BASE_URL"),
        ("svc_some_secret", "", ExitCode.USAGE, "no_base_url", None),
        ("svc_some_secret", "ftp://example.com", ExitCode.USAGE, "bad_setting", None),
        ("svc with spaces", "http://127.0.0.1:1", ExitCode.USAGE, "bad_setting", None),
    ],
)
def test_a_missing_or_senseless_key_or_address_is_refused(
    booking: Booking, environment: Environment, key: str, url: str, exit_code: ExitCode, code: str, hint: str | None
) -> None:
    environment("BOOKING_API_KEY", key)
    environment("BOOKING_BASE_URL", url)
    refused = booking("whoami", "-o", "json")
    assert refused.refusal == (exit_code, code)
    assert hint in (None, refused.error["hint"])
    assert "with spaces" not in refused.err


def test_a_key_file_that_others_can_read_is_refused(booking: Booking, home: Any, tmp_path: Path) -> None:
    (tmp_path / "config/home.key").chmod(0o640)
    refused = booking("whoami", "-o", "json")
    assert refused.code == ExitCode.USAGE
    assert refused.error["hint"].startswith("chmod 600 ")


def test_a_key_file_that_is_gone_means_logged_out(booking: Booking, home: Any, tmp_path: Path) -> None:
    (tmp_path / "config/home.key").unlink()
    assert booking("whoami").code == ExitCode.AUTH


def test_stdin_without_a_key_is_refused(booking: Booking, canned: Any, typed: Callable[[str], None]) -> None:
    typed("")
    assert booking("whoami", "--api-key-stdin", "-o", "json").error["code"] == "no_key"


# Messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "exit_code", "code", "hint"),
    [
        (400, error("validation_failed"), 8, "validation_failed", None),
        (401, error("api_key_revoked"), 4, "api_key_revoked", "revoked"),
        (403, error("insufficient_scope", required_scope="bookings:read"), 5, "insufficient_scope", "bookings:read"),
        (404, error("not_found"), 6, "not_found", None),
        (409, error("insufficient_capacity", seats_available=3), 7, "insufficient_capacity", "seats left: 3"),
        (413, error("payload_too_large"), 8, "payload_too_large", None),
        (418, error("teapot"), 8, "teapot", None),
        (422, error("validation_failed"), 8, "validation_failed", None),
        (429, error("rate_limited"), 9, "rate_limited", "try again in 0 s"),
        (500, error("internal_error"), 10, "internal_error", None),
        (502, b"<html>Bad gateway</html>", 10, "http_502", None),
        (503, error("service_unavailable"), 10, "service_unavailable", None),
        (301, b"", 1, "http_301", None),
        (200, b"<html>Welcome</html>", 10, "unreadable_answer", "config get"),
    ],
)
def test_each_answer_has_its_exit_code_and_its_line(
    booking: Booking, canned: Any, status: int, body: bytes, exit_code: int, code: str, hint: str | None
) -> None:
    canned.answers = [(status, body)]
    refused = booking("whoami", "-o", "json")
    assert (refused.refusal, refused.out) == ((exit_code, code), "")
    error = refused.error
    assert set(error) - {"details"} == {"code", "message", "status", "request_id", "hint", "exit_code"}
    assert (error["status"], error["request_id"], error["exit_code"]) == (status, "req_canned", exit_code)
    assert hint is None or hint in error["hint"]
    plain = booking("whoami")
    assert plain.err.startswith("error: ")
    assert "request: req_canned" in plain.err.splitlines()


def test_a_service_that_nobody_serves_exits_3(
    booking: Booking, canned: Any, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("booking_sdk._retries.BACKOFF_S", 0.0)
    environment("BOOKING_BASE_URL", "http://127.0.0.1:1")
    refused = booking("whoami", "-o", "json")
    assert (refused.refusal, refused.error["exit_code"]) == ((ExitCode.NETWORK, "network_error"), 3)


@pytest.mark.parametrize("command", ["whoami", "api GET me", "bookings list", "events tail --follow"])
@pytest.mark.parametrize(
    ("body", "codes"),
    [(b" " * (64 * 2**20 + 1), {"answer_too_large"}), (b"[" * 100_000, {"unreadable_answer", "bad_answer"})],
    ids=["too large", "too deep"],
)
def test_a_response_too_large_or_too_deep_is_refused(
    booking: Booking, canned: Any, command: str, body: bytes, codes: set[str]
) -> None:
    canned.answers = [(200, body)]
    exit_code, code = booking(*command.split(), "-o", "json").refusal
    assert exit_code == ExitCode.SERVER
    assert code in codes


def test_a_list_that_is_none_is_explained(booking: Booking, canned: Any) -> None:
    canned.answers = [(200, b'{"hello": "world"}')]
    assert booking("bookings", "list", "-o", "json").refusal == (ExitCode.SERVER, "unreadable_answer")


def test_a_list_that_breaks_off_says_where_to_go_on(booking: Booking, canned: Any) -> None:
    canned.answers = [page("a", "b", cursor="cursor-2"), (404, error("not_found"))]
    refused = booking("bookings", "list", "--all", "-o", "jsonl")
    assert refused.code == ExitCode.PARTIAL
    assert [json.loads(line)["id"] for line in refused.out.splitlines()] == ["a", "b"]
    assert refused.error["hint"] == "continue with --starting-after cursor-2"
    assert (refused.error["status"], refused.error["exit_code"]) == (404, 12)


def test_a_list_that_leads_nowhere_is_given_up(booking: Booking, canned: Any) -> None:
    canned.answers = [page(cursor="again")]
    assert booking("bookings", "list", "--all").code == ExitCode.SERVER
    assert len(canned.requests) == 2


def test_an_empty_page_in_the_middle_ends_no_list(booking: Booking, canned: Any) -> None:
    canned.answers = [page(cursor="one"), page("a")]
    assert booking("bookings", "list", "--fields", "id").out == "a\n"


def test_verbose_tells_each_attempt_and_no_secret(booking: Booking, canned: Any) -> None:
    canned.answers = [(503, error("service_unavailable")), (200, ME)]
    result = booking("whoami", "-v")
    assert result.code == 0
    lines = result.err.splitlines()
    assert lines[2] == "> GET /api/v1/me"
    assert lines[3].startswith("< 503 in ")
    assert "retrying in 0.0 s" in lines[4]
    assert lines[-1].endswith("request req_canned")
    assert booking("whoami", "-v", "-o", "json").err == ""


# Changes that must not happen twice ------------------------------------------------------------------------------

CREATE = ("customers", "create", "--email", "ada@example.com", "--name", "Ada")


def keys_sent(canned: Any) -> list[str]:
    return [headers["idempotency-key"] for _, _, headers in canned.requests]


def test_attempts_of_one_run_share_a_key_and_runs_do_not(booking: Booking, canned: Any) -> None:
    canned.answers = [(503, error("service_unavailable")), (201, b"{}")]
    assert [booking(*CREATE).code, booking(*CREATE).code] == [0, 0]
    first, again, second = keys_sent(canned)
    assert first == again != second
    assert first.startswith("cli-")


def test_a_given_key_is_sent(booking: Booking, canned: Any) -> None:
    result = booking(*CREATE, "--idempotency-key", "order-1017", "-v")
    assert keys_sent(canned) == ["order-1017"]
    assert "idempotency key: order-1017" in result.err


@pytest.mark.parametrize("key", ["short", "x" * 201, "with\nline", "mit-Ümlaut-darin", " order-1017", "order-1017 "])
def test_a_key_that_the_service_would_refuse_is_not_sent(booking: Booking, canned: Any, key: str) -> None:
    assert booking(*CREATE, "--idempotency-key", key).code == ExitCode.USAGE
    assert canned.requests == []


def test_an_unknown_outcome_is_reported_with_the_key_and_what_to_run(booking: Booking, canned: Any) -> None:
    canned.answers = [(500, error("internal_error"))]
    refused = booking(*CREATE, "-o", "json")
    assert refused.code == ExitCode.SERVER
    (key,) = set(keys_sent(canned))
    hint = f"run the same command with --idempotency-key {key}: it makes the change once, and shows the result"
    assert refused.error["hint"] == hint


def test_a_connection_that_breaks_is_an_unknown_outcome(
    booking: Booking, environment: Environment, canned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("booking_sdk._retries.BACKOFF_S", 0.0)
    canned.answers = [(200, b"")]

    def cut(*_: object, **__: object) -> Any:
        from booking_sdk._retries import Failure

        return Failure(sent=True, timed_out=True, reason="no whole answer came in time")

    monkeypatch.setattr("booking_sdk._sync._transport.Transport.send", cut)
    refused = booking(*CREATE, "--idempotency-key", "order-1017", "-o", "json")
    assert refused.refusal == (ExitCode.NETWORK, "timeout")
    assert refused.error["message"].endswith("no whole answer came in time; it may have been carried out.")
    assert "--idempotency-key order-1017" in refused.error["hint"]


def test_interrupted_the_key_is_reported(booking: Booking, canned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("booking_cli.client.api_client.request", interrupt)
    ended = booking(*CREATE, "--idempotency-key", "order-1017", "-o", "json")
    assert ended.code == ExitCode.INTERRUPTED
    assert "--idempotency-key order-1017" in ended.error["hint"]


def test_the_config_is_private(booking: Booking, home: Any, tmp_path: Path) -> None:
    booking("config", "set", "profile=home")
    assert stat.S_IMODE((tmp_path / "config/config.toml").stat().st_mode) == 0o600
