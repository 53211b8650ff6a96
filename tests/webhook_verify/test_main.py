from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from webhook_verify.__main__ import main


@pytest.fixture
def saved(tmp_path: Path, body: bytes, secret: str) -> SimpleNamespace:
    """Save a delivery in files, and return the arguments that verify it."""
    body_file, secret_file = tmp_path / "body.json", tmp_path / "secret"
    body_file.write_bytes(body)
    secret_file.write_text(f"{secret}\n", encoding="utf-8")
    return SimpleNamespace(body=body_file, secret=secret_file)


def check(saved: SimpleNamespace, *headers: str, now: float) -> int:
    given = [f"--header={header}" for header in headers]
    return main([f"--secret-file={saved.secret}", f"--now={now}", *given, str(saved.body)])


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_a_delivery_that_verifies_is_described(
    saved: SimpleNamespace, headers: dict[str, str], now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(saved, *(f"{name}: {value}" for name, value in headers.items()), now=now + 7) == 0
    shown = capsys.readouterr()
    assert shown.out == ("verified: signed 2026-06-01T07:46:40Z, 7 s ago\nevent:    evt-1\ntype:     booking.created\n")
    assert shown.err == ""


def test_the_bare_value_of_the_signature_will_do(saved: SimpleNamespace, headers: dict[str, str], now: int) -> None:
    assert check(saved, headers["Svc-Signature"], now=now) == 0


def test_secret_index_is_that_of_the_matching_secret(
    saved: SimpleNamespace,
    headers: dict[str, str],
    now: int,
    secret: str,
    other_secret: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved.secret.write_text(f"{other_secret}\n\n{secret}\n", encoding="utf-8")
    assert check(saved, headers["Svc-Signature"], now=now) == 0
    assert "secret:   number 2 of 2" in capsys.readouterr().out


def test_a_body_that_is_no_event_verifies_all_the_same(
    saved: SimpleNamespace, secret: str, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from webhook_verify import sign

    saved.body.write_bytes(b"hello")
    assert check(saved, sign(b"hello", secret, timestamp=now), now=now - 5) == 0
    shown = capsys.readouterr().out
    assert "5 s ahead" in shown
    assert "not an event" in shown


def test_a_delivery_that_does_not_verify_exits_with_11_and_the_reason(
    saved: SimpleNamespace, headers: dict[str, str], now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    saved.body.write_bytes(b"{}")
    assert check(saved, headers["Svc-Signature"], now=now) == 11
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("not verified: signature_mismatch\n")
    assert "hint" not in shown.err


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        (lambda body: body + b"\n", "newline"),
        (lambda body: body + b"\r\n", "newline"),
        (lambda body: json.dumps(json.loads(body)).encode(), "parsed and encoded again"),
        (lambda body: json.dumps(json.loads(body), indent=2).encode(), "parsed and encoded again"),
    ],
)
def test_hint_names_the_change_to_the_body(
    change: object,
    hint: str,
    saved: SimpleNamespace,
    headers: dict[str, str],
    now: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved.body.write_bytes(change(saved.body.read_bytes()))  # type: ignore[operator]
    assert check(saved, headers["Svc-Signature"], now=now) == 11
    assert hint in capsys.readouterr().err


def test_a_secret_without_its_prefix_is_found_out(
    saved: SimpleNamespace, headers: dict[str, str], secret: str, now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    saved.secret.write_text(secret[6:], encoding="utf-8")
    assert check(saved, headers["Svc-Signature"], now=now) == 11
    shown = capsys.readouterr().err
    assert "lost its whsec_" in shown
    assert secret[6:] not in shown


def test_old_delivery_prints_a_hint(
    saved: SimpleNamespace, headers: dict[str, str], now: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(saved, headers["Svc-Signature"], now=now + 86_400) == 11
    assert "--tolerance inf" in capsys.readouterr().err
    given = [f"--secret-file={saved.secret}", "--tolerance=inf", f"--header={headers['Svc-Signature']}"]
    assert main([*given, str(saved.body)]) == 0


def test_the_body_may_come_from_standard_input_and_the_secret_from_the_environment(
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
    saved.secret.write_text("two words", encoding="utf-8")
    assert "white space" in usage_error(capsys, secret, header, str(saved.body))


def test_the_help_names_the_exit_statuses_and_an_example() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "webhook_verify", "--help"], capture_output=True, text=True, check=True
    )
    for part in ("--secret-file", "--tolerance", "exit status", "11", "example", "BOOKING_WEBHOOK_SECRET"):
        assert part in done.stdout
