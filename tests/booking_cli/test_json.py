"""Every command's JSON, read by a parser: in both modes stdout holds JSON and nothing else, and stderr nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.serving.commands import Booking, leaves
from support.serving.every_command import ENDLESS, HOW, Everything, Words
from support.world.world import World

from booking_cli.framework import output_fields
from booking_cli.framework.command import OUTPUT_SPEC, OutputSpec
from booking_cli.framework.formatting import paths_of

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
    found = [leaf.words for leaf in leaves()]
    return [words for words in found if words not in ENDLESS | OF_CELLS | OF_SANDBOXES]


@pytest.fixture
def it(shop: World, booking: Booking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Everything:
    key = shop.key()

    class Stdin:
        isatty = staticmethod(lambda: False)
        readline = staticmethod(lambda: f"{key}\n")

    made = Everything(shop, booking, tmp_path)
    monkeypatch.setenv("BOOKING_MAIL_DIR", str(tmp_path / "mails"))  # or the doctor tells that mails cannot leave
    monkeypatch.setattr("sys.stdin", Stdin)
    assert booking("login", "--api-key-stdin", "--secret-file", str(tmp_path / "kept")).code == 0
    return made


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
        assert all(isinstance(each, dict) for each in lines)
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
    *{("config", each) for each in ("list", "get")},
    *{(each, "list") for each in ("experiences", "bookings", "customers", "gift-cards", "events", "webhooks", "orgs")},
    *{(each, "get") for each in ("experiences", "bookings", "holds", "customers", "gift-cards", "events")},
    ("bookings", "quote"),
    *{("checkouts", "get"), ("stripe", "show"), ("stripe", "payments")},
    ("gift-cards", "transactions"),
    *{("webhooks", each) for each in ("show", "sign", "verify", "trigger")},
    *{("webhooks", "deliveries", each) for each in ("list", "show")},
    *{("keys", each) for each in ("list", "show")},
    *{("mails", each) for each in ("list", "show")},
    *{("customers", "export"), ("audit", "list")},
    *{("catalog", each) for each in ("export", "validate")},
    *{("db", each) for each in ("current", "check")},
    *{("departures", each) for each in ("list", "get", "show", "manifest")},
    *{("payments", each) for each in ("list", "due")},
    *{("refunds", each) for each in ("list", "show")},
    ("secrets", "status"),
    *{("events", "tail"), ("orgs", "show"), ("logout",)},
    *{(each,) for each in ("whoami", "availability", "report", "api", "doctor", "completion", "commands", "help")},
}
"""Commands without a change that `--fields` could hide; `api` shows any answer, and `logout` has one message."""


def _declared(words: Words) -> OutputSpec:
    leaf = next(each for each in leaves() if each.words == words)
    found: OutputSpec = getattr(leaf.command.callback, OUTPUT_SPEC, OutputSpec())
    return found


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_a_command_that_changes_something_declares_what_it_writes(words: Words) -> None:
    declared = _declared(words)
    assert declared.changes is (words not in READS), (
        'declare @command(..., shape="…", changes=True), or name it in READS'
    )
    assert declared.shape or not declared.changes
