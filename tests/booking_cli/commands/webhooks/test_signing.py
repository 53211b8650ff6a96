"""`booking webhooks sign` and `verify`: no service is needed, and next to nothing is loaded."""

import io
import json
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.serving.commands import Booking, Environment, OnTerminal, loaded_modules

from webhook_verify import Verifier, generate_secret
from webhook_verify.testing import make_event, signed_request


@pytest.fixture
def secret(booking: Booking) -> str:
    """The endpoint's secret, in a file and nowhere else."""
    secret = generate_secret()
    Path("hook.secret").write_text(secret + "\n")
    return secret


@pytest.fixture
def body(secret: str) -> bytes:
    """Write the body of a delivery to body.json and return it."""
    _, content = signed_request(make_event("booking.created", data={"object": {"note": "på brygga"}}), secret)
    Path("body.json").write_bytes(content)
    return content


def from_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False))


def headers_of(out: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in out.splitlines())


# sign ------------------------------------------------------------------------------------------------------------


def test_what_is_signed_verifies_and_has_every_header_of_a_delivery(booking: Booking, secret: str, body: bytes) -> None:
    signed = booking("webhooks", "sign", "body.json", "--secret-file", "hook.secret")
    headers = headers_of(signed.out)
    expected, _ = signed_request(body, secret)
    assert headers.keys() == expected.keys()
    assert headers["User-Agent"] == "Svc-Webhooks/1.0"
    assert Verifier(secret).verify(body, headers).event_type == "booking.created"
    assert secret not in signed.out + signed.err


def test_the_body_comes_from_stdin_unless_a_file_is_named(
    booking: Booking, secret: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for argv in ((), ("-",)):
        from_stdin(monkeypatch, body)
        signed = booking("webhooks", "sign", *argv, "--secret-file", "hook.secret")
        Verifier(secret).verify(body, headers_of(signed.out))


def test_a_delivery_signed_at_a_given_time_is_the_same_every_time(booking: Booking, body: bytes) -> None:
    argv = ("webhooks", "sign", "body.json", "--secret-file", "hook.secret", "--timestamp", "1780300000", "--json")
    first, second = booking(*argv).json["headers"], booking(*argv).json["headers"]
    assert first["Svc-Signature"] == second["Svc-Signature"]
    assert first["Svc-Signature"].startswith("t=1780300000,v1=")
    assert booking("webhooks", "sign", "body.json", "--timestamp", "-1").code == 2


@pytest.mark.parametrize("content", [b'{"id":"1"}', b"caf\xe9 \xff", b"", "på brygga".encode()])
def test_a_delivery_printed_as_json_verifies_whatever_its_body(booking: Booking, secret: str, content: bytes) -> None:
    Path("any").write_bytes(content)
    signed = booking("webhooks", "sign", "any", "--secret-file", "hook.secret", "-o", "json")
    Path("saved.json").write_text(signed.out)
    verified = booking("webhooks", "verify", "--delivery", "saved.json", "--secret-file", "hook.secret", "--json")
    assert verified.json["verified"] is True
    assert booking("webhooks", "sign", "any", "-o", "jsonl").json["headers"]["Content-Type"] == "application/json"


# Secrets ---------------------------------------------------------------------------------------------------------


def test_each_profile_without_a_secret_gets_its_own_and_keeps_it(
    booking: Booking, body: bytes, environment: Environment, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "webhook-secrets"
    for profile in ("default", "default", "staging"):
        environment("BOOKING_PROFILE", profile)
        signed = headers_of(booking("webhooks", "sign", "body.json").out)
        Verifier((folder / profile).read_text().strip()).verify(body, signed)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"webhook-secrets": 0o700, "default": 0o600, "staging": 0o600}
    assert (folder / "staging").read_text() != (folder / "default").read_text()


def test_a_file_wins_over_the_environment_and_that_over_the_profile(
    booking: Booking, secret: str, body: bytes, environment: Environment
) -> None:
    old, new = generate_secret(), generate_secret()
    environment("BOOKING_WEBHOOK_SECRET", f"{new},{old}")
    rotating = headers_of(booking("webhooks", "sign", "body.json").out)
    assert Verifier(old).verify(body, rotating)
    assert Verifier(new).verify(body, rotating)
    by_file = headers_of(booking("webhooks", "sign", "body.json", "--secret-file", "hook.secret").out)
    assert Verifier(secret).verify(body, by_file)


@pytest.mark.parametrize("content", ["", "\n\n", "two words", b"\xff\xfe"])
def test_a_file_that_holds_no_secret_exits_2(booking: Booking, body: bytes, content: str | bytes) -> None:
    Path("odd").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused = booking("webhooks", "sign", "body.json", "--secret-file", "odd", "--json")
    assert refused.code == refused.error["exit_code"] == 2
    assert "odd" in refused.error["message"]


def test_a_folder_that_cannot_be_written_exits_2(booking: Booking, body: bytes) -> None:
    Path("config").mkdir()
    Path("config/webhook-secrets").write_text("in the way")
    refused = booking("webhooks", "sign", "body.json", "--json")
    assert refused.refusal == (2, "bad_file")
    assert "BOOKING_WEBHOOK_SECRET" in refused.error["hint"]


# verify ----------------------------------------------------------------------------------------------------------


def test_a_delivery_is_verified_by_body_and_headers(booking: Booking, secret: str, body: bytes) -> None:
    headers, _ = signed_request(body, [generate_secret(), secret])
    Path("hook.secret").write_text(f"{generate_secret()}\n{secret}\n")
    lines = [f"--header={name}: {value}" for name, value in headers.items()]
    verified = booking("webhooks", "verify", "body.json", *lines, "--secret-file", "hook.secret", "-o", "json")
    assert verified.code == 0
    assert verified.json["event_id"] == json.loads(body)["id"]
    assert (verified.json["event_type"], verified.json["secret_index"]) == ("booking.created", 1)
    signature = ("--header", headers["Svc-Signature"])
    bare = booking("webhooks", "verify", "body.json", *signature, "--secret-file", "hook.secret")
    assert (bare.code, bare.out.startswith("verified\ttrue\n")) == (0, True)


def test_headers_may_stand_in_a_file_and_the_body_on_stdin(
    booking: Booking, secret: str, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers, _ = signed_request(body, secret)
    Path("headers.txt").write_text("\r\n".join(f"{name}: {value}" for name, value in headers.items()) + "\r\n\r\n")
    from_stdin(monkeypatch, body)
    verified = booking("webhooks", "verify", "--headers", "headers.txt", "--secret-file", "hook.secret", "-o", "jsonl")
    assert verified.json["verified"] is True


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_a_request_that_was_saved_as_it_came_is_verified(booking: Booking, secret: str, body: bytes, end: str) -> None:
    headers, _ = signed_request(body, secret)
    lines = ["POST /hook?from=http://example.com HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    Path("request.txt").write_bytes(end.join(lines).encode() + 2 * end.encode() + body)
    verified = booking("webhooks", "verify", "--delivery", "request.txt", "--secret-file", "hook.secret")
    assert verified.code == 0


def refusal(booking: Booking, headers: dict[str, str], *argv: str) -> Any:
    lines = [f"--header={name}: {value}" for name, value in headers.items()]
    refused = booking("webhooks", "verify", "body.json", *lines, "--secret-file", "hook.secret", "-o", "json", *argv)
    assert refused.code == refused.error["exit_code"] == 11
    assert refused.out == ""
    return refused.error


def test_what_is_wrong_is_named_and_exits_11(booking: Booking, secret: str, body: bytes) -> None:
    now = int(time.time())
    for headers, code in (
        (signed_request(body, secret, timestamp=now - 3600)[0], "timestamp_too_old"),
        (signed_request(body, secret, timestamp=now + 3600)[0], "timestamp_too_new"),
        (signed_request(body, secret)[0] | {"Svc-Event-Type": "ping"}, "header_body_mismatch"),
        ({"Content-Type": "application/json"}, "header_missing"),
        ({"Svc-Signature": "t=1"}, "no_supported_scheme"),
    ):
        assert refusal(booking, headers)["code"] == code
    foreign = refusal(booking, signed_request(body, generate_secret())[0])
    assert foreign["hint"] == "verified with the secret of hook.secret"
    assert secret not in json.dumps(foreign)


def test_time_can_be_given_or_left_out_of_it(booking: Booking, secret: str, body: bytes) -> None:
    headers, _ = signed_request(body, secret, timestamp=1_780_300_000)
    argv = ("webhooks", "verify", "body.json", "--header", headers["Svc-Signature"], "--secret-file", "hook.secret")
    assert booking(*argv).code == 11
    assert booking(*argv, "--tolerance", "inf").code == 0
    assert booking(*argv, "--now", "1780300003.5").code == 0
    assert booking(*argv, "--now", "1780300301").code == 11
    assert booking(*argv, "--tolerance", "-1").code == 2


def test_the_hint_says_what_happened_to_the_body_on_the_way(booking: Booking, secret: str, body: bytes) -> None:
    headers, _ = signed_request(body, secret)
    Path("body.json").write_bytes(body + b"\n")
    assert "a newline was added" in refusal(booking, headers)["hint"]
    Path("body.json").write_text(json.dumps(json.loads(body), indent=2))
    assert "parsed and encoded again" in refusal(booking, headers)["hint"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("body.json",), "The headers of the delivery are missing"),
        (("body.json", "--delivery", "body.json"), "--delivery contains headers and body"),
        (("nowhere.json", "--header", "t=1"), "nowhere.json cannot be read"),
        (("--delivery", "body.json"), "body.json is not a delivery"),
        (("--delivery", "no-blank-line"), "no-blank-line is not a delivery"),
        (("--delivery", "odd-pairs"), "odd-pairs is not a delivery"),
    ],
)
def test_what_cannot_be_read_exits_2(booking: Booking, body: bytes, argv: tuple[str, ...], message: str) -> None:
    Path("no-blank-line").write_text("Svc-Signature: t=1")
    Path("odd-pairs").write_text('{"headers": [["a"], ["b", 1]], "body": ""}')
    refused = booking("webhooks", "verify", *argv, "--secret-file", "hook.secret", "--json")
    assert refused.code == 2
    assert message in refused.error["message"]


# Manners ---------------------------------------------------------------------------------------------------------


def test_the_offline_commands_load_no_library(booking: Booking, body: bytes) -> None:
    sign = ("webhooks", "sign", "body.json", "--secret-file", "hook.secret")
    Path("saved.json").write_text(booking(*sign, "--json").out)
    heavy = ("sqlalchemy", "fastapi", "httpx", "pydantic", "uvicorn", "rich", "booking_sdk", "booking_server")
    lines = (
        *("webhooks --help", "webhooks deliveries list --help", "webhooks listen --help", "webhooks trigger --help"),
        *(" ".join(sign), "webhooks sign body.json"),
        "webhooks verify --delivery saved.json --secret-file hook.secret",
        "webhooks verify body.json --header t=1,v1=0 --secret-file hook.secret",
        "webhooks trigger ping -o json",
    )
    assert loaded_modules((*heavy, "ssl", "http.client"), lines) == {}


def test_a_delivery_is_checked_or_made_without_what_the_other_commands_load(
    body: bytes, environment: Environment, secret: str
) -> None:
    environment("BOOKING_WEBHOOK_SECRET", secret)
    client = (f"booking_cli.client.{name}" for name in ("api_client", "profiles"))
    others = ("endpoints", "deliveries", "listen", "trigger", "samples")
    unneeded = (*client, *(f"booking_cli.commands.webhooks.{name}" for name in others), "tempfile", "random", "base64")
    lines = ("webhooks sign body.json", "webhooks verify body.json --header t=1,v1=0")
    assert loaded_modules(unneeded, lines) == {}


def test_on_a_terminal_the_headers_stand_as_they_are_sent(body: bytes, terminal: OnTerminal) -> None:
    code, screen = terminal("webhooks", "sign", "body.json")
    headers = headers_of(screen)
    assert (code, headers["Content-Type"]) == (0, "application/json")
    signature = ("--header", headers["Svc-Signature"])
    code, screen = terminal("webhooks", "verify", "body.json", *signature, "--color", "never")
    assert (code, screen.splitlines()[0].split()) == (0, ["verified", "true"])
