"""`python -m docsite.terminal`: draw docs/images/terminal.svg from the output of commands on the demo's data."""

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from docsite.build import ROOT

COLUMNS = 92
PICTURE = ROOT / "docs/images/terminal.svg"
EXPERIENCE = "Bergen food walk"
"""Has departures of the same size and price in each month."""
FREE_AFTER = timedelta(days=30)
"""The demo has no bookings of later departures, so the numbers of seats are the same on every day."""
COMMANDS = (
    "booking experiences list --limit 4",
    "booking bookings create --departure DEPARTURE --guest adult=2 --name 'Ada Lovelace' --email ada@example.com"
    " --payment pay_on_site --fields booking_number,status,departure.starts_at,totals.total",
    "booking bookings create --departure DEPARTURE --guest adult=400 --name Grace --email grace@example.com"
    " --payment invoice",
    "booking events list --limit 3",
)
BOOKING = str(Path(sys.executable).with_name("booking"))


def picture() -> str:
    """Serve the demo, run the commands on a terminal, and return the picture."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        # Nothing of the person's settings and profiles is in the picture.
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
        command = [BOOKING, "demo", "--port", port, "-o", "jsonl"]
        with subprocess.Popen(  # noqa: S603
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as demo:
            try:
                environment |= served(demo)
                departure = free_departure(environment)
                commands = [command.replace("DEPARTURE", departure) for command in COMMANDS]
                return drawn([(command, printed(command, environment)) for command in commands])
            finally:
                demo.terminate()


def served(demo: Any) -> dict[str, str]:
    """Return the variables of the demo's clients, when the demo is serving."""
    variables: dict[str, str] = json.loads(demo.stdout.readline())["environment"]
    next(line for line in demo.stderr if "Uvicorn running" in line)
    return variables


def free_departure(environment: dict[str, str]) -> str:
    """Return the id of a departure without bookings."""
    experiences = map(json.loads, printed("booking experiences list -o jsonl --all", environment).splitlines())
    experience = next(row["id"] for row in experiences if row["title"].startswith(EXPERIENCE))
    day = (datetime.now(UTC) + FREE_AFTER).date()
    words = f"booking availability --from {day} --experience {experience} --limit 1 --fields id -o tsv"
    return printed(words, environment).split()[0]


def printed(command: str, environment: dict[str, str]) -> str:
    """Return the output of a command on a terminal."""
    controller, terminal = pty.openpty()
    words = [BOOKING, *shlex.split(command)[1:]]
    with subprocess.Popen(words, stdout=terminal, stderr=terminal, env=environment):  # noqa: S603
        os.close(terminal)
        output = b"".join(iter(lambda: _read(controller), b""))
    os.close(controller)
    return output.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the terminal was closed on the other side
        return b""


def drawn(runs: list[tuple[str, str]]) -> str:
    """Return the picture of commands and their output, which loads no font from a public server."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=COLUMNS, record=True, file=nowhere, force_terminal=True, color_system="256")
        for command, output in runs:
            console.print(Text.assemble(("$ ", "green"), (shortened(command), "bold")))
            console.print(Text.from_ansi(output.rstrip("\n")))
            console.print()
    svg = re.sub(
        r"@font-face \{.*?\}\s*", "", console.export_svg(title="booking", unique_id="booking"), flags=re.DOTALL
    )
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def shortened(command: str) -> str:
    """Return a command as a person would write it: ids are long."""
    return re.sub(r"\b([0-9a-f]{8})-[0-9a-f-]{27}\b", r"\1…", command)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
