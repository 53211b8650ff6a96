from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from webhook_verify import sign
from webhook_verify.__main__ import main


@pytest.fixture
def saved(tmp_path: Path, body: bytes, secret: str) -> SimpleNamespace:
    """Save a delivery in files, and return the arguments that verify it."""
    body_file, secret_file = tmp_path / "body.json", tmp_path / "secret"
    body_file.write_bytes(body)
    secret_file.write_text(f"{secret}\n", encoding="utf-8")
    return SimpleNamespace(body=body_file, secret=secret_file)


Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(saved: SimpleNamespace, headers: dict[str, str], now: int, capsys: pytest.CaptureFixture[str]) -> Check:
    """Return a function that runs the command, and returns its exit status and its output."""

    def run(*lines: str, later: float = 0) -> tuple[int, str, str]:
        options = [f"--header={header}" for header in lines or [headers["Svc-Signature"]]]
        status = main([f"--secret-file={saved.secret}", f"--now={now + later}", *options, str(saved.body)])
        return status, *capsys.readouterr()

    return run


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_a_delivery_that_verifies_is_described(check: Check, headers: dict[str, str]) -> None:
    described = "verified: signed 2026-06-01T07:46:40Z, 7 s ago\nevent:    evt-1\ntype:     booking.created\n"
    assert check(*(f"{name}: {value}" for name, value in headers.items()), later=7) == (0, described, "")
    assert check(headers["Svc-Signature"])[0] == 0


def test_secret_index_is_that_of_the_matching_secret(
    check: Check, saved: SimpleNamespace, secret: str, other_secret: str
) -> None:
    saved.secret.write_text(f"{other_secret}\n\n{secret}\n", encoding="utf-8")
    status, output, _ = check()
    assert status == 0
    assert "secret:   number 2 of 2" in output


def test_a_body_that_is_no_event_verifies_all_the_same(
    check: Check, saved: SimpleNamespace, secret: str, now: int
) -> None:
    saved.body.write_bytes(b"hello")
    status, output, _ = check(sign(b"hello", secret, timestamp=now), later=-5)
    assert status == 0
    assert "5 s ahead" in output
    assert "not an event" in output


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda _: b"{}", None),
        (lambda body: body + b"\n", "newline"),
        (lambda body: body + b"\r\n", "newline"),
        (lambda body: json.dumps(json.loads(body)).encode(), "parsed and encoded again"),
        (lambda body: json.dumps(json.loads(body), indent=2).encode(), "parsed and encoded again"),
    ],
    ids=["another body", "LF added", "CRLF added", "compact again", "indented"],
)
def test_a_changed_body_exits_with_11_and_a_hint_at_the_change(
    change: Callable[[bytes], bytes], hint: str | None, check: Check, saved: SimpleNamespace
) -> None:
    saved.body.write_bytes(change(saved.body.read_bytes()))
    status, output, error = check()
    assert (status, output) == (11, "")
    assert error.startswith("not verified: signature_mismatch\n")
    assert hint in error if hint else "hint" not in error


def test_a_secret_without_its_prefix_is_a_usage_error(
    saved: SimpleNamespace, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved.secret.write_text(secret[6:], encoding="utf-8")
    error = usage_error(capsys, f"--secret-file={saved.secret}", "--header=t=1,v1=a", str(saved.body))
    assert "whsec_" in error
    assert secret[6:] not in error


def test_old_delivery_prints_a_hint(check: Check, saved: SimpleNamespace, headers: dict[str, str]) -> None:
    status, _, error = check(later=86_400)
    assert status == 11
    assert "--tolerance inf" in error
    arguments = [f"--secret-file={saved.secret}", "--tolerance=inf", f"--header={headers['Svc-Signature']}"]
    assert main([*arguments, str(saved.body)]) == 0


def test_standard_input_gives_the_body_and_the_environment_the_secret(
    monkeypatch: pytest.MonkeyPatch, body: bytes, headers: dict[str, str], secret: str, now: int
) -> None:
    monkeypatch.setenv("BOOKING_WEBHOOK_SECRET", f"whsec_old,{secret}")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(body)))
    assert main([f"--header=svc-signature: {headers['Svc-Signature']}", f"--now={now}", "-"]) == 0


def test_wrong_usage_exits_with_2(
    saved: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BOOKING_WEBHOOK_SECRET", raising=False)
    secret, header = f"--secret-file={saved.secret}", "--header=t=1,v1=a"
    assert "--header" in usage_error(capsys, secret, str(saved.body))
    assert "BOOKING_WEBHOOK_SECRET" in usage_error(capsys, header, str(saved.body))
    assert "No such file" in usage_error(capsys, secret, header, "/nowhere/body.json")
    assert "No such file" in usage_error(capsys, "--secret-file=/nowhere/secret", header, str(saved.body))
    assert "tolerance" in usage_error(capsys, secret, header, "--tolerance=-1", str(saved.body))
    saved.secret.write_text(" \n", encoding="utf-8")
    assert "holds none" in usage_error(capsys, secret, header, str(saved.body))


def test_the_help_names_the_exit_statuses_and_an_example() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "webhook_verify", "--help"], capture_output=True, text=True, check=True
    )
    for part in ("--secret-file", "--tolerance", "exit status", "11", "example", "BOOKING_WEBHOOK_SECRET"):
        assert part in result.stdout
