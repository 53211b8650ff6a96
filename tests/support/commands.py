"""Every command of `booking`, without running any of them."""

from collections.abc import Iterator

from typer import Context

from booking_cli.commands.registry import MODULES, SECTIONS
from booking_cli.framework import command


def leaves() -> Iterator[command.Leaf]:
    """Yield every command, in the order of the help."""
    root = command.RootGroup(MODULES, SECTIONS)
    return command.leaves(root, Context(root, info_name="booking"))
