"""`booking commands`: everything that can be run, as a list."""

from typing import Any

import typer

from booking_cli.framework import command_tree, context
from booking_cli.framework.command import command, single

app = single()


@command(app, "commands", "booking commands", "booking commands -o json --fields command")
def commands(ctx: typer.Context) -> None:
    """Lists every command with its summary."""
    root = ctx.find_root()
    found: list[dict[str, Any]] = [
        {
            "command": " ".join(("booking", *leaf.words)),
            "summary": leaf.summary,
            "examples": list(leaf.command.examples),
        }
        for leaf in command_tree.leaves(root.command, root)
    ]
    context.of(ctx).render.many(found, ("command", "summary"), prose=("summary",))
