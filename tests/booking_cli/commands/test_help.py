"""The pages about the command itself, and that they tell the truth."""

import re
from pathlib import Path

from support.serving.commands import Booking, OnTerminal, leaves

from booking_cli.framework.exit_codes import MEANINGS, ExitCode

README = (Path(__file__).parents[3] / "booking_cli/README.md").read_text()


def test_every_exit_code_has_its_line(booking: Booking) -> None:
    rows = booking("help", "exit-codes", "-o", "json").json["data"]
    assert [row["exit_code"] for row in rows] == sorted(ExitCode)
    assert [row["meaning"] for row in rows] == list(MEANINGS.values())


def test_the_readme_has_the_same_exit_codes() -> None:
    assert re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE) == [
        (str(int(code)), meaning) for code, meaning in MEANINGS.items()
    ]


def test_every_variable_that_is_read_is_documented(booking: Booking) -> None:
    rows = booking("help", "environment", "-o", "json").json["data"]
    documented = {name for row in rows for name in row["variable"].split(", ")}
    root = Path(__file__).parents[3]
    sources = [
        *root.glob("booking_cli/**/*.py"),
        root / "booking_core/base/settings.py",
        *root.glob("booking_sdk/*.py"),
    ]
    read = {name for path in sources for name in re.findall(r"\"(BOOKING_[A-Z_]+)\"", path.read_text())}
    assert len(read) > 20
    assert read <= documented


def test_the_help_of_a_command_and_of_a_group_is_shown(booking: Booking) -> None:
    for words in (("webhooks",), ("webhooks", "deliveries"), ("bookings", "create"), ("serve",)):
        assert booking("help", *words).out == booking(*words, "--help").out
    assert booking("help").out == booking("--help").out
    assert booking("help", "webhooks", "-o", "json").json["text"].startswith("Usage: booking webhooks")


def test_help_about_something_unknown_names_what_is_near(booking: Booking) -> None:
    for words, meant in (
        ("webhoks", "webhooks"),
        ("exit-code", "exit-codes"),
        ("webhooks deliverys", "deliveries"),
        ("bookings creat", "create"),
    ):
        refused = booking("help", *words.split(), "-o", "json")
        assert (refused.code, refused.out) == (2, "")
        assert refused.error["message"].endswith(f"Did you mean {meant!r}?")
    assert "There is no help about 'serve more'." in booking("help", "serve", "more").err
    assert "Did you mean" not in booking("help", "qqq").err


def test_what_goes_to_which_stream_is_documented(booking: Booking) -> None:
    text = booking("help", "output").out
    assert "one JSON object per line" in text
    assert booking("help", "output", "-o", "json").json == {"text": text.rstrip("\n")}


def test_every_command_stands_on_one_page(booking: Booking) -> None:
    rows = booking("commands", "-o", "json").json["data"]
    assert [row["command"] for row in rows] == [" ".join(("booking", *leaf.words)) for leaf in leaves()]
    assert all(row["summary"].endswith(".") and row["examples"] for row in rows)


def test_the_page_fits_a_terminal(terminal: OnTerminal) -> None:
    code, screen = terminal("commands", "--color", "never")
    assert code == 0
    assert max(map(len, screen.splitlines())) <= 100
    assert "Show a booking." in screen


def test_every_command_stands_in_the_readme() -> None:
    documented = set(re.findall(r"^\| `booking ([a-z -]+?)(?: [^a-z`][^`]*)?` \|", README, re.MULTILINE))
    assert documented == {" ".join(leaf.words) for leaf in leaves()}
