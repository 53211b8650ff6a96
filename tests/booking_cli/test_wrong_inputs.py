"""For every input a command ends with a line and an exit code of the table, never with a traceback.

The values are given to the options and arguments of every command, one at a time, beside arguments that work: on
PostgreSQL each value at every eighth place and each place with every eighth value, on SQLite half of the values at one
place.
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking, Environment, Process, leaves
from support.serving.every_command import ENDLESS, HOW, Everything
from support.world.world import World

from booking_cli.framework.command import Leaf
from booking_cli.framework.exit_codes import ExitCode

WRONG = (
    *("", " ", "-1", "0", "9" * 40, "1e999", "nan", "1.5.5"),
    *("\x1b[2J\x07", "a\nb", "\udcff\udcfe", "‮Ada", "x" * 5_000),
    *("/", "..", "=", "=1", "a=", "adult=" + "9" * 30, "{", "%00", "9999-99-99", "0001-01-01", "9999-12-31T23:59:59Z"),
)
"""Nothing, blanks, numbers that are none or too large, control characters, bytes that are no UTF-8, paths, halves."""


def _leaves() -> list[Leaf]:
    return [leaf for leaf in leaves() if leaf.words not in ENDLESS]


def _wrong(leaf: Leaf, sound: tuple[str, ...], value: str) -> Iterator[tuple[str, ...]]:
    """Yield the command lines with that value at each place."""
    for param in leaf.command.own_params:
        if param.param_type_name == "argument":
            yield (*leaf.words, *([value] if value[:1] != "-" else ["--", value]), *sound[1:])
        elif not param.is_flag:
            yield (*leaf.words, *sound, f"{param.opts[-1]}={value}")


@pytest.mark.parametrize("leaf", _leaves(), ids=lambda leaf: " ".join(leaf.words))
def test_a_wrong_value_is_a_line_and_an_exit_code(
    booking: Booking, shop: World, tmp_path: Path, leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("booking_sdk._retries.BACKOFF_S", 0.0)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    it = Everything(shop, booking, tmp_path)
    sound = HOW.get(leaf.words, lambda _: ())(it)
    lines: list[tuple[str, ...]] = []
    for number, value in enumerate(WRONG):
        places = list(_wrong(leaf, sound, value))
        every = max(1, 2 * len(places)) if shop.database.is_sqlite else 8
        lines += places[number % every :: every]
    wrong = [
        (argv, done.code, done.err or done.out)
        for argv in lines
        if not _is_explained(done := booking("--yes", "-o", "json", *argv))
    ]
    assert wrong == []


@pytest.mark.one_database
def test_an_option_without_its_value_is_explained_by_its_command(booking: Booking) -> None:
    refused = booking("holds", "create", "--departure", "-o", "json")
    assert (refused.code, refused.error["hint"]) == (ExitCode.USAGE, "booking holds create --help")


@pytest.mark.parametrize("leaf", _leaves(), ids=lambda leaf: " ".join(leaf.words))
def test_a_command_without_its_arguments_or_with_too_many_is_misused(
    booking: Booking, environment: Environment, leaf: Leaf
) -> None:
    if any(param.required for param in leaf.command.own_params):
        assert booking(*leaf.words, "-o", "json").error["code"] == "usage"
    refused = booking(*leaf.words, *["x"] * 9, "--nosuch", "-o", "json")
    assert (refused.code, refused.out, refused.error["code"]) == (ExitCode.USAGE, "", "usage")


def _is_explained(done: Any) -> bool:
    """Return whether a command succeeded, or explained its refusal in one object without an internal error."""
    if done.code == ExitCode.OK or done.out:
        return done.code in set(ExitCode) and "Traceback" not in done.err
    return done.error["code"] not in ("internal_error", "unreadable_answer") and bool(done.error["message"])


def _env(**changes: str | None) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@pytest.mark.parametrize("argv", [("config", "get"), ("config", "list"), ("whoami",)])
def test_without_a_home_a_command_works_or_says_why(process: Process, argv: tuple[str, ...], tmp_path: Path) -> None:
    environment = _env(HOME=None, XDG_CONFIG_HOME=None, BOOKING_CONFIG_DIR=None)
    _, errors = (started := process(*argv, env=environment)).communicate()
    assert started.returncode in (ExitCode.OK, ExitCode.USAGE, ExitCode.AUTH)
    assert "Traceback" not in errors


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_config_folder_that_cannot_be_written_is_named(booking: Booking, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir(mode=0o500)
    assert booking("webhooks", "listen", "--print-secret", "-o", "json").refusal == (ExitCode.USAGE, "bad_file")


def test_a_config_folder_that_is_a_file_is_named(booking: Booking, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    for argv in (("config", "get"), ("config", "list"), ("webhooks", "listen", "--print-secret"), ("logout",)):
        refused = booking(*argv, "-o", "json")
        assert refused.code == ExitCode.USAGE, argv
        assert refused.error["code"] in ("bad_file", "bad_config"), argv


@pytest.mark.parametrize(
    "config",
    [
        *(b"\xff\xfe", b"\x00", b"[profiles", b"profiles = 3", b'profiles = "x"', b"current = 7"),
        *(b'[profiles."a b"]\n', b"[profiles.a]\nbase_url = 3"),
    ],
)
def test_a_damaged_profile_file_is_one_line(booking: Booking, tmp_path: Path, config: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_bytes(config)
    code = "bad_profile" if b"a b" in config else "bad_config"
    for argv in (("config", "get"), ("config", "list"), ("whoami",)):
        assert booking(*argv, "-o", "json").refusal == (ExitCode.USAGE, code), argv


def test_a_database_whose_name_is_too_long_is_one_line(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_DATABASE_URL", f"sqlite:///{'x' * 5_000}.db")
    for argv in (("orgs", "list"), ("db", "current"), ("db", "upgrade"), ("db", "check")):
        done = booking(*argv, "-o", "json")
        assert done.code in (ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE), argv
        assert "internal_error" not in done.err, argv


def test_bytes_that_are_no_utf_8_are_taken_as_they_come(process: Process) -> None:
    started = process("orgs", "show", b"\xff\xfe".decode("utf-8", "surrogateescape"), env=_env(BOOKING_DATABASE_URL=""))
    _, errors = started.communicate()
    assert (started.returncode, "Traceback" in errors) == (ExitCode.USAGE, False)
