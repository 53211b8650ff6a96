"""`booking whoami`: whose key is in use, and what it may do."""

import typer

from booking_cli.client import api_client
from booking_cli.framework import context
from booking_cli.framework.command import command, single

app = single()


@command(app, "whoami", "booking whoami", "booking whoami --fields organization.slug")
def whoami(ctx: typer.Context) -> None:
    """Shows the organization and the key that commands use: the test of a login."""
    cli = context.of(ctx)
    with api_client.client(cli) as client:
        told = api_client.ask(client, "GET", api_client.path("me"))
    cli.render.one(told.body)
