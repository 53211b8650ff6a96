"""Every command of `booking`, without running any of them; and a terminal that records the output."""

import io
from collections.abc import Iterator

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
