"""Every command of `booking`, a terminal that records the output, and the types of the fixtures that run a command."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from typer import Context

from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework import command


def leaves() -> Iterator[command.Leaf]:
    """Yield every command, in the order of the help."""
    root = command.RootGroup(MODULES, SECTIONS)
    return command.leaves(root, Context(root, info_name="booking"))


class Terminal(io.StringIO):
    """A terminal that records its output."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout, which must be a single JSON value."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Return stderr, which must be a single JSON object."""
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]

    @property
    def refusal(self) -> tuple[int, str]:
        """Return the exit code and the code of the error, which is JSON."""
        return self.code, self.error["code"]


Booking = Callable[..., Result]
"""Runs a command in this process."""
Environment = Callable[[str, str], None]
"""Sets a variable of the environment."""
OnTerminal = Callable[..., tuple[int, str]]
"""Runs a command on a terminal, and returns its exit code and the screen."""
RecordedTerminal = Callable[[int], Terminal]
"""Makes stdout a terminal of that width, which records the output."""
Process = Callable[..., subprocess.Popen[str]]
"""Starts a command in a separate process."""

_LOADED = """
import json, sys
from booking_cli.main import main
loaded = {}
for line in sys.argv[2].split(";"):
    main(line.split())
    loaded |= {name: line for name in sys.argv[1].split() if name in sys.modules and name not in loaded}
print(json.dumps(loaded))
"""


def loaded_modules(names: Iterable[str], lines: Sequence[str]) -> dict[str, str]:
    """Run command lines one after the other in a new interpreter, and return the line that loaded each module."""
    program = [sys.executable, "-c", _LOADED, " ".join(names), ";".join(lines)]
    result = subprocess.run(program, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])
