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
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from docsite.build import ROOT

COLUMNS = 92
PICTURE = ROOT / "docs/images/terminal.svg"
COMMANDS = (
    "booking experiences list --limit 4",
    "booking bookings create --departure DEPARTURE --guest adult=2 --name 'Ada Lovelace' --email ada@example.com"
    " --payment pay_on_site --fields booking_number,status,departure.starts_at,totals.total",
    "booking bookings create --departure DEPARTURE --guest adult=400 --name Grace --email grace@example.com"
    " --payment invoice",
    "booking events list --limit 3",
)
"""DEPARTURE has free seats."""


def main() -> int:
    """Serve the demo, run the commands on a terminal, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("booking")), "demo", "--port", str(free_port())]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, cwd=folder, text=True, **pipes) as demo:  # type: ignore[call-overload]  # noqa: S603
            try:
                exports: dict[str, str] = {}
                is_serving = False
                for line in demo.stdout:
                    if line.startswith("export "):
                        name, _, value = shlex.split(line)[1].partition("=")
                        exports[name] = value
                    is_serving = is_serving or "Uvicorn running" in line
                    if is_serving and "BOOKING_API_KEY" in exports:
                        break
                draw([(each, printed(each, exports, folder)) for each in with_departure(exports, folder)])
            finally:
                demo.terminate()
    return 0


def free_port() -> int:
    """Return a port that no program listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def with_departure(exports: dict[str, str], folder: str) -> list[str]:
    """Return the commands with the id of a departure that has an adult tier and free seats."""
    words = "booking availability --from tomorrow --experience EXPERIENCE --fields id,seats_available -o tsv"
    found = printed("booking experiences list -o jsonl --all", exports, folder)
    experience = next(
        each["id"]
        for each in map(json.loads, found.splitlines())
        if any(tier["id"] == "adult" for tier in each["price_tiers"])
    )
    rows = printed(words.replace("EXPERIENCE", experience), exports, folder).splitlines()
    departure = next(row.split("\t")[0] for row in rows if int(row.split("\t")[1]) >= 6)
    return [command.replace("DEPARTURE", departure) for command in COMMANDS]


def printed(command: str, exports: dict[str, str], folder: str) -> str:
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, **exports, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    program = str(Path(sys.executable).with_name("booking"))
    with subprocess.Popen(  # noqa: S603
        [program, *shlex.split(command)[1:]], stdout=theirs, stderr=theirs, cwd=folder, env=environment
    ):
        os.close(theirs)
        output = b""
        while chunk := _read(ours):
            output += chunk
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the terminal was closed on the other side
        return b""


def draw(runs: list[tuple[str, str]]) -> None:
    """Write the picture, without the part of Rich's frame that loads a font from a public server."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=COLUMNS, record=True, file=nowhere, force_terminal=True)
        for command, output in runs:
            console.print(Text.assemble(("$ ", "green"), (shortened(command), "bold")))
            console.print(Text.from_ansi(output.rstrip("\n")))
            console.print()
    frame = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    frame = frame.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    PICTURE.write_text(console.export_svg(title="booking", code_format=frame), encoding="utf-8")


def shortened(command: str) -> str:
    """Return a command as a person would write it: ids are long."""
    return re.sub(r"\b([0-9a-f]{8})-[0-9a-f-]{27}\b", r"\1…", command)


if __name__ == "__main__":
    sys.exit(main())
