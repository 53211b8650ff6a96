"""`booking whoami`: whose key is in use, and what it may do."""

import typer

from booking_cli import context, remote
from booking_cli.command import command, single

app = single()


@command(app, "whoami", "booking whoami", "booking whoami --fields organization.slug")
def whoami(ctx: typer.Context) -> None:
    """Shows the organization and the key that commands use: the test of a login."""
    cli = context.of(ctx)
    with remote.client(cli) as client:
        told = remote.ask(client, "GET", remote.path("me"))
    cli.render.one(told.body)
