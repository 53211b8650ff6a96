"""The words that Tab offers, and the scripts that request them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.serving.commands import Booking, Environment

from booking_cli.commands.help import SHELLS
from booking_cli.commands.registry import MODULES


@pytest.fixture
def offered(booking: Booking, environment: Environment) -> Callable[[str], list[str]]:
    def complete(line: str) -> list[str]:
        environment("_BOOKING_COMPLETE", "complete_bash")
        environment("COMP_WORDS", f"booking {line}")
        environment("COMP_CWORD", str(line.count(" ") + 1))
        return booking().out.split()

    return complete


WITH_TYPES = ("webhooks create --event", "webhooks listen --event", "events list --type", "events tail --type")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", list(MODULES)),
        ("web", ["webhooks"]),
        ("keys r", ["revoke", "rotate"]),
        ("webhooks deliveries ", ["list", "show", "retry"]),
        ("-o json logi", ["login"]),
        ("bookings cancel x --refu", ["--refund"]),
        ("bookings cancel x --refund ", ["auto", "none", "full"]),
        ("bookings create --payment in", ["invoice"]),
        ("bookings list -o j", ["json", "jsonl"]),
        ("bookings list --json --st", ["--status", "--starting-after"]),
        ("completion ", list(SHELLS)),
        *((f"{command} customer", ["customer.created", "customer.updated", "customer.*"]) for command in WITH_TYPES),
        ("webhooks trigger pi", ["ping"]),
        ("webhooks deliveries list x --event-type booking.con", ["booking.confirmed"]),
        ("help we", ["webhooks"]),
        ("help ex", ["exit-codes", "experiences"]),
        ("config get b", ["base_url"]),
        ("keys create --scope webhooks", ["webhooks:manage"]),
        ("events list --resource-type gift", ["gift_card"]),
        ("bookings get ", []),
        ("mails ", ["list", "show", "retry"]),
        ("mails list --status un", ["unwritten"]),
    ],
)
def test_words_are_offered_by_their_beginning(offered: Callable[[str], list[str]], line: str, words: list[str]) -> None:
    assert offered(line) == words


def test_a_shell_that_shows_descriptions_gets_them(booking: Booking, environment: Environment) -> None:
    environment("_BOOKING_COMPLETE", "complete_fish")
    environment("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    environment("_TYPER_COMPLETE_ARGS", "booking who")
    assert booking().out.startswith("whoami\tSee ")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(booking: Booking, shell: str) -> None:
    script = booking("completion", shell).out
    assert "_BOOKING_COMPLETE" in script
    assert booking("completion", shell, "-o", "json").json == {"shell": shell, "script": script}
    if binary := shutil.which(shell):
        checked = subprocess.run([binary, "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes(booking: Booking) -> None:
    script = booking("completion", "bash").out
    words = 'COMP_WORDS=(booking keys ro); COMP_CWORD=2; _booking_completion booking; echo "${COMPREPLY[@]}"'
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", script + words], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "rotate\n"
