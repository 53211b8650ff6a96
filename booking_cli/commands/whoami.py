"""`booking whoami`: show the organization and the scopes of the API key in use."""

import typer

from booking_cli.client import api_client
from booking_cli.framework.command import command, command_app

app = command_app()


@command(app, "whoami", "booking whoami", "booking whoami --fields organization.slug")
def whoami(ctx: typer.Context) -> None:
    """Show the organization and the scopes of the API key in use."""
    api_client.write_resource(ctx.obj, "me")
