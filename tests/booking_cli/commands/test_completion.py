"""What Tab offers, and the scripts that ask for it."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from booking_cli.commands.completion import SHELLS
from booking_cli.commands.registry import MODULES

Booking = Callable[..., Any]
Environment = Callable[[str, str], None]


@pytest.fixture
def offered(booking: Booking, environment: Environment) -> Callable[..., list[str]]:
    environment("BOOKING_COMPLETE", "words")
    return lambda *words: booking(*words).out.splitlines()


def test_commands_are_offered_by_their_beginning(offered: Callable[..., list[str]]) -> None:
    assert offered("") == list(MODULES)
    assert offered("web") == ["webhooks"]
    assert offered("keys", "r") == ["revoke", "rotate"]
    assert offered("webhooks", "deliveries", "") == ["list", "show", "retry"]
    assert offered("nonsense", "") == []
    assert offered("-o", "json", "logi") == ["login"]


def test_options_are_offered_and_their_values(offered: Callable[..., list[str]]) -> None:
    assert "--refund" in offered("bookings", "cancel", "--re")
    assert offered("bookings", "cancel", "--refund", "") == ["auto", "none", "full"]
    assert offered("bookings", "create", "--payment", "in") == ["invoice"]
    assert offered("bookings", "list", "-o", "j") == ["json", "jsonl"]
    assert offered("bookings", "list", "--json", "--st") == ["--status", "--starting-after"]
    assert offered("completion", "") == list(SHELLS)
    of_gift_cards = ["gift_card.issued", "gift_card.redeemed", "gift_card.restored", "gift_card.*"]
    assert offered("webhooks", "create", "--event", "gift") == of_gift_cards
    for words in (("events", "list", "--type"), ("events", "tail", "--type"), ("webhooks", "listen", "--event")):
        assert offered(*words, "customer") == ["customer.created", "customer.updated", "customer.*"]
    assert offered("webhooks", "trigger", "pi") == ["ping"]
    assert offered("webhooks", "deliveries", "list", "--event-type", "booking.con") == ["booking.confirmed"]
    assert offered("help", "we") == ["webhooks"]
    assert offered("help", "ex") == ["exit-codes", "experiences"]
    assert offered("config", "get", "b") == ["base_url"]
    assert offered("keys", "create", "--scope", "webhooks") == ["webhooks:manage"]
    assert offered("events", "list", "--resource-type", "gift") == ["gift_card"]
    assert offered("bookings", "get", "") == []
    assert offered("mails", "") == ["list", "show", "retry"]
    assert offered("mails", "list", "--status", "un") == ["unwritten"]


def test_a_shell_that_shows_descriptions_gets_them(booking: Booking, environment: Environment) -> None:
    environment("BOOKING_COMPLETE", "described")
    assert booking("who").out == "whoami\tShow the organization and the scopes of the API key.\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(booking: Booking, shell: str) -> None:
    script = booking("completion", shell).out
    assert "BOOKING_COMPLETE" in script
    assert booking("completion", shell, "-o", "json").json == {"shell": shell, "script": script}
    if binary := shutil.which(shell):
        checked = subprocess.run([binary, "-n"], input=script, text=True, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_an_unknown_shell_is_refused(booking: Booking) -> None:
    assert "'tcsh' is not one of bash, zsh, fish, powershell." in booking("completion", "tcsh").err


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes(booking: Booking, tmp_path: Path) -> None:
    command = tmp_path / "booking"
    code = "import sys; from booking_cli.main import main; sys.exit(main())"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    script = booking("completion", "bash").out
    asked = 'COMP_WORDS=(booking keys ro); COMP_CWORD=2; _booking; echo "${COMPREPLY[@]}"'
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script + asked], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "rotate\n"
