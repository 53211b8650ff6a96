"""The shell blocks of the guides, run as they are printed."""

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pages
from support.serving.commands import Booking, Environment, Process
from support.serving.demo import call, exported
from support.serving.servers import free_port
from support.serving.serving import read_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def demo(process: Process) -> Iterator[dict[str, str]]:
    """Run the demo, and return the variables that it prints."""
    started = process("demo", "--port", str(free_port()))
    try:
        read_until(started.stderr, "Uvicorn running on")
        yield exported("".join(read_until(started.stdout, "curl -s")))
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate()


def at_a_shell(command: str) -> str:
    """Run a line as a reader types it, in the environment of the test, and return its output."""
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout


@pytest.mark.component("curl", package="curl")
def test_the_first_five_minutes_work(booking: Booking, environment: Environment, demo: dict[str, str]) -> None:
    for name, value in demo.items():
        environment(name, value)
    (me,), (day, availability), (book,), commands = pages.commands("start.md")
    assert json.loads(at_a_shell(me))["organization"]["slug"] == "fjord-tours"
    page = at_a_shell(f"{day}\n{availability}")
    assert page.startswith('{\n    "data": [\n'), "it is indented"
    departure = next(
        entry for entry in json.loads(page)["data"] if entry["status"] == "open" and entry["seats_available"] >= 4
    )
    tiers = json.loads(at_a_shell(me.replace("/me", f"/experiences/{departure['experience_id']}")))["price_tiers"]
    ids = {"DEPARTURE": departure["id"], "TIER": next(tier["id"] for tier in tiers if tier["seats_per_unit"] == 1)}
    request = re.sub("DEPARTURE|TIER", lambda match: ids[match[0]], book)
    (head, body), (again, same) = (at_a_shell(request).split("\n\n") for _ in range(2))
    assert [text.partition("\n")[0] for text in (head, again)] == ["HTTP/1.1 201 Created"] * 2
    assert ["idempotent-replayed: true" in text.lower() for text in (head, again)] == [False, True]
    assert same == body
    for command in commands:
        result = booking(*shlex.split(command)[1:])
        assert result.code == 0, (command, result.err)
    ((register,),) = pages.commands("guides/receivers/index.md")
    # The demo may call this machine; the name of the page has no address in a network without DNS.
    local = os.path.expandvars(register).replace("https://shop.example", "http://127.0.0.1:8999")
    assert call(local)[0] == 201


def run_pages(booking: Booking, *names: str) -> None:
    """Run every command of the pages."""
    for command in (command for name in names for block in pages.commands(name) for command in block):
        program, *words = shlex.split(command)
        result = booking(*words)
        assert (program, result.code) == ("booking", 0), (command, result.err)


def test_the_operators_commands_work_on_a_new_database(stored: Booking) -> None:
    run_pages(stored, *(f"guides/operators/{page}.md" for page in ("index", "health", "watching")))


def test_the_commands_of_the_runbooks_work_one_after_the_other(stored: Booking) -> None:
    runbooks = ("install", "sizing", "upgrade", "backup", "keys", "failover", "alerts")
    run_pages(stored, *(f"operations/{page}.md" for page in runbooks))


def test_the_commands_about_what_guests_see_work(fjord: Booking) -> None:
    run_pages(fjord, "guides/merchants/guests.md")


def blocks() -> list[list[str]]:
    """Return the commands of each block of the guide, whole lines."""
    part = (ROOT / "docs/guides/merchants/index.md").read_text()
    texts = re.findall(r"```console\n(.*?)```", part, re.DOTALL)
    return [[line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")] for block in texts]


class Shell:
    """Runs the lines, with the ids filled in."""

    def __init__(self, booking: Booking, environment: Environment, folder: Path) -> None:
        self.booking, self.environment, self.folder = booking, environment, folder
        self.ids: dict[str, str] = {}

    def run(self, line: str) -> Any:
        line = line.replace("$PWD", str(self.folder)).replace("examples/", shlex.quote(f"{ROOT}/examples") + "/")
        for name, value in self.ids.items():
            line = re.sub(rf"\b{name}\b", value, line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            if name != "PATH":
                self.environment(name, value)
            return None
        program, *words = shlex.split(line, comments=True)
        assert program == "booking"
        result = self.booking(*words)
        assert result.code == 0, (line, result.err)
        return result


@pytest.mark.exhaustive
def test_the_merchants_guide_works_on_what_make_run_serves(
    booking: Booking, environment: Environment, demo: dict[str, str], tmp_path: Path
) -> None:
    shell = Shell(booking, environment, tmp_path)
    setup, _, around, by_hand = blocks()
    answers = [shell.run(line) for line in setup]
    assert "fjord-tours" in answers[3].out, "it is the database of the demo"
    assert f"database: {tmp_path / '.demo/booking.db'} (SQLite)" in answers[3].err
    for name, value in demo.items():
        environment(name, value)
    entries = booking("availability", "--from", "tomorrow", "-o", "json").json["data"]
    free = [entry for entry in entries if entry["status"] == "open" and entry["seats_available"] >= 4]
    tier = next(entry["id"] for entry in free[0]["price_tiers"] if entry["seats_per_unit"] == 1)
    shell.ids = {"DEPARTURE": free[0]["id"], "OTHER": free[1]["id"], "TIER": tier}
    names = {" hold ": "HOLD", " checkout ": "BOOKING", " bookings create ": "INVOICED"}
    for line in (*around, *by_hand):
        result = shell.run(line)
        resource_id = dict(pair.split("\t", 1) for pair in result.out.splitlines() if "\t" in pair).get("id", "")
        shell.ids |= {name: resource_id for command, name in names.items() if command in line}
