"""Iterate over all commands without running any of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Leaf(NamedTuple):
    """A command that can be run."""

    words: tuple[str, ...]
    command: Any

    @property
    def summary(self) -> str:
        return (self.command.help or "").partition("\n")[0]


def leaves(group: Any, ctx: Any, words: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every command below a group, in the order of the help."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if hasattr(command, "list_commands"):
            yield from leaves(command, ctx, (*words, name))
        else:
            yield Leaf((*words, name), command)
