"""Every command of `booking`, a terminal that records the output, and the types of the fixtures that run a command."""

import io
import json
import subprocess
from collections.abc import Callable, Iterator
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
Process = Callable[..., subprocess.Popen[str]]
"""Starts a command in a separate process."""
