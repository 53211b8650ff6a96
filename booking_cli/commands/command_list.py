"""`booking commands`: list every command."""

from typing import Any

import typer

from booking_cli.framework import command_tree
from booking_cli.framework.command import command, command_app

app = command_app()


@command(app, "commands", "booking commands", "booking commands -o json --fields command")
def commands(ctx: typer.Context) -> None:
    """List every command with its summary."""
    root = ctx.find_root()
    rows: list[dict[str, Any]] = [
        {
            "command": " ".join(("booking", *leaf.words)),
            "summary": leaf.summary,
            "examples": list(leaf.command.examples),
        }
        for leaf in command_tree.leaves(root.command, root)
    ]
    ctx.obj.render.many(rows, ("command", "summary"), wrapped=("summary",))
