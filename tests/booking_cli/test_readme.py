"""The merchants' guide, run as it is printed on the database that `booking demo` serves."""

import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from support.servers import free_port

Booking = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]

ROOT = Path(__file__).parents[2]


def blocks() -> list[list[str]]:
    """Return the commands of each block of the guide, whole lines."""
    part = (ROOT / "docs/guides/merchants/index.md").read_text()
    found = re.findall(r"```console\n(.*?)```", part, re.DOTALL)
    return [[line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")] for block in found]


class Shell:
    """Runs the lines, with the ids filled in."""

    def __init__(self, booking: Booking, environment: Callable[[str, str], None], folder: Path) -> None:
        self.booking, self.environment, self.folder = booking, environment, folder
        self.ids: dict[str, str] = {}

    def run(self, line: str) -> Any:
        line = line.replace("$PWD", str(self.folder)).replace("examples/", f"{ROOT}/examples/")
        for name, value in self.ids.items():
            line = re.sub(rf"\b{name}\b", value, line)
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            if name != "PATH":
                self.environment(name, value)
            return None
        program, *words = shlex.split(line, comments=True)
        assert program == "booking"
        done = self.booking(*words)
        assert done.code == 0, (line, done.err)
        return done


def test_the_merchants_guide_works_on_what_make_run_serves(
    booking: Booking, environment: Callable[[str, str], None], process: Process, tmp_path: Path
) -> None:
    started = process("demo", "--port", str(free_port()))
    assert started.stderr is not None
    assert started.stdout is not None
    try:
        list(takewhile(lambda line: "Uvicorn running on" not in line, started.stderr))
        shell = Shell(booking, environment, tmp_path)
        setup, _, around, by_hand = blocks()
        answers = [shell.run(line) for line in setup]
        assert "fjord-tours" in answers[3].out, "it is the database of the demo"
        assert f"database: {tmp_path / '.demo/booking.db'} (SQLite)" in answers[3].err
        for name, value in _exports(started.stdout).items():
            environment(name, value)
        found = booking("availability", "--from", "tomorrow", "--fields", "id,seats_available").out.splitlines()
        free = [line.split("\t")[0] for line in found if int(line.split("\t")[1]) >= 4]
        shell.ids = {"DEPARTURE": free[0], "OTHER": free[1]}
        names = {" hold ": "HOLD", " checkout ": "BOOKING", " bookings create ": "INVOICED"}
        for line in (*around, *by_hand):
            done = shell.run(line)
            made = dict(pair.split("\t", 1) for pair in done.out.splitlines() if "\t" in pair).get("id", "")
            shell.ids |= {name: made for command, name in names.items() if command in line}
    finally:
        started.send_signal(signal.SIGINT)
        started.communicate()


def _exports(lines: Any) -> dict[str, str]:
    """Return the variables that the demo prints."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith("export "):
            (word,) = shlex.split(line, comments=True)[1:]
            name, _, value = word.partition("=")
            found[name] = value
        elif found:
            break
    return found
