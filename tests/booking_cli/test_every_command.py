"""Every command: its JSON, its answers to wrong inputs, and the commands that `booking doctor` names."""

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking, Environment, Process, leaves
from support.serving.every_command import ENDLESS, HOW, Everything, Words
from support.world.world import World

from booking_cli.commands.registry import MODULES
from booking_cli.framework import output_fields
from booking_cli.framework.command import OUTPUT_SPEC, Leaf, OutputSpec
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import paths_of
from booking_core.upkeep import doctor

# JSON ----------------------------------------------------------------------------------------------------------------


OF_CELLS = {("cells", "create")}
"""They need several cells of PostgreSQL; their own tests read their output."""
OF_SANDBOXES = {
    ("conformance",),
    ("sandbox", "clock"),
    ("sandbox", "advance"),
    ("sandbox", "mails"),
    ("sandbox", "pay"),
}
"""They need the key of a sandbox; their own tests read their output."""


def _commands() -> list[Words]:
    commands = [leaf.words for leaf in leaves()]
    return [words for words in commands if words not in ENDLESS | OF_CELLS | OF_SANDBOXES]


@pytest.fixture
def it(shop: World, booking: Booking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Everything:
    key = shop.key()

    class Stdin:
        isatty = staticmethod(lambda: False)
        readline = staticmethod(lambda: f"{key}\n")

    everything = Everything(shop, booking, tmp_path)
    monkeypatch.setenv("BOOKING_MAIL_DIR", str(tmp_path / "mails"))  # or the doctor tells that mails cannot leave
    monkeypatch.setattr("sys.stdin", Stdin)
    assert booking("login", "--api-key-stdin", "--secret-file", str(tmp_path / "kept")).code == 0
    return everything


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_every_command_writes_parsable_json_of_its_shape(it: Everything, words: Words) -> None:
    def run(name: str, *options: str) -> Any:
        # Logging in again needs another profile: the key's file of the first profile is in use.
        profile = ("--profile", name) if words == ("login",) else ()
        return it.booking(*words, *HOW.get(words, lambda _: ())(it), *profile, *options)

    one, many = run("one", "-o", "json"), run("many", "-o", "jsonl")
    assert (one.code, one.err) == (0, "")
    assert (many.code, many.err) == (0, "")
    _assert_that_the_modes_agree(words, one.json, [json.loads(line) for line in many.out.splitlines()])
    if shape := _declared(words).shape:
        _assert_that_it_has(shape, one.json)
        _assert_that_it_names_the_fields_of(shape, run("refused", "--fields", "nosuch", "-o", "json"))


def _assert_that_the_modes_agree(words: Words, whole: Any, lines: list[Any]) -> None:
    assert isinstance(whole, dict)
    if "data" in whole and words != ("api",) and isinstance(whole["data"], list):
        assert {"data", "has_more", "next_cursor"} <= whole.keys()
        assert all(isinstance(entry, dict) for entry in lines)
    else:
        (line,) = lines
        assert line.keys() == whole.keys()


def _assert_that_it_has(shape: str, whole: Any) -> None:
    items = whole["data"] if isinstance(whole.get("data"), list) else [whole]
    assert [path for path in set(paths_of(items)) if not output_fields.has_field(shape, path)] == []


def _assert_that_it_names_the_fields_of(shape: str, refused: Any) -> None:
    assert (refused.code, refused.out, refused.error["code"]) == (2, "", "unknown_field")
    names, _, parts = refused.error["hint"].removeprefix("the fields are ").partition("; their parts have a dot: ")
    paths = output_fields.paths(shape)
    assert {path.removesuffix(".*") for path in paths if "." not in path.removesuffix(".*")} <= set(names.split(", "))
    assert not parts or parts in paths


def test_every_command_that_takes_arguments_is_among_them() -> None:
    assert set(HOW) <= set(_commands())


READS = {
    ("cells", "list"),
    *{("config", name) for name in ("list", "get")},
    *{(name, "list") for name in ("experiences", "bookings", "customers", "gift-cards", "events", "webhooks", "orgs")},
    *{(name, "get") for name in ("experiences", "bookings", "holds", "customers", "gift-cards", "events")},
    ("bookings", "quote"),
    *{("checkouts", "get"), ("stripe", "show"), ("stripe", "payments")},
    ("gift-cards", "transactions"),
    *{("webhooks", name) for name in ("show", "sign", "verify", "trigger")},
    *{("webhooks", "deliveries", name) for name in ("list", "show")},
    *{("keys", name) for name in ("list", "show")},
    *{("mails", name) for name in ("list", "show")},
    *{("customers", "export"), ("audit", "list")},
    *{("catalog", name) for name in ("export", "validate")},
    *{("db", name) for name in ("current", "check")},
    *{("departures", name) for name in ("list", "get", "show", "manifest")},
    *{("payments", name) for name in ("list", "due")},
    *{("refunds", name) for name in ("list", "show")},
    ("secrets", "status"),
    *{("events", "tail"), ("orgs", "show"), ("logout",)},
    *{(name,) for name in ("whoami", "availability", "report", "api", "doctor", "completion", "commands", "help")},
}
"""Commands without a change that `--fields` could hide; `api` shows any answer, and `logout` has one message."""


def _declared(words: Words) -> OutputSpec:
    leaf = next(leaf for leaf in leaves() if leaf.words == words)
    spec: OutputSpec = getattr(leaf.command.callback, OUTPUT_SPEC, OutputSpec())
    return spec


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_a_command_that_changes_something_declares_what_it_writes(words: Words) -> None:
    declared = _declared(words)
    assert declared.changes is (words not in READS), (
        'declare @command(..., shape="…", changes=True), or name it in READS'
    )
    assert declared.shape or not declared.changes


# Wrong inputs --------------------------------------------------------------------------------------------------------


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
    """The values are given to the options and arguments one at a time, beside arguments that work: on PostgreSQL each
    value at every eighth place and each place with every eighth value, on SQLite half of the values at one place."""
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
        (argv, result.code, result.err or result.out)
        for argv in lines
        if not _is_explained(result := booking("--yes", "-o", "json", *argv))
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


def _is_explained(result: Any) -> bool:
    """Return whether a command succeeded, or explained its refusal in one object without an internal error."""
    if result.code == ExitCode.OK or result.out:
        return result.code in set(ExitCode) and "Traceback" not in result.err
    return result.error["code"] not in ("internal_error", "unreadable_answer") and bool(result.error["message"])


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
        result = booking(*argv, "-o", "json")
        assert result.code in (ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE), argv
        assert "internal_error" not in result.err, argv


def test_bytes_that_are_no_utf_8_are_taken_as_they_come(process: Process) -> None:
    started = process("orgs", "show", b"\xff\xfe".decode("utf-8", "surrogateescape"), env=_env(BOOKING_DATABASE_URL=""))
    _, errors = started.communicate()
    assert (started.returncode, "Traceback" in errors) == (ExitCode.USAGE, False)


# Remedies ------------------------------------------------------------------------------------------------------------


OPERATORS = {"departures", "refunds", "secrets"}
"""Groups of commands that an operator has as soon as they are installed."""


def commands() -> list[str]:
    """Yield every command."""
    remedies = [check.remedy for check in doctor.CHECKS if check.remedy]
    steps = (step for remedy in remedies for step in re.split(", (?:then|or) ", remedy))
    return sorted({step for step in steps if step.startswith("booking ")})


def command_of(words: list[str]) -> Any:
    """Return the command that the words begin with."""
    for leaf in leaves():
        if tuple(words[: len(leaf.words)]) == leaf.words:
            return leaf.command
    return None


def test_remedies_name_commands() -> None:
    assert len(commands()) > 8


@pytest.mark.parametrize("command", commands())
def test_a_command_of_a_remedy_is_one_and_has_its_options(command: str) -> None:
    words = command.split()[1:]
    if words[0] not in MODULES:
        assert words[0] in OPERATORS
        return
    leaf_command = command_of(words)
    assert leaf_command is not None, command
    options = {name for parameter in leaf_command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
