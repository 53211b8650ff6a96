"""`booking logout`: remove a profile and its key from this machine."""

import typer

from booking_cli.client import key_storage, profiles
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli

app = command_app()


@command(app, "logout", "booking logout", "booking logout --profile staging")
def logout(ctx: typer.Context) -> None:
    """Remove the profile and its API key from this machine.

    The key itself stays valid; revoke it with `booking keys revoke`.
    """
    cli: Cli = ctx.obj
    choice, stored = profiles.chosen(cli), profiles.load()
    if choice.origin == "default" and choice.name not in stored.by_name:
        cli.render.one({"profile": None, "key_prefix": None})
        cli.render.note("You are not logged in.")
        return
    profile = stored.named(choice.name)
    key_storage.delete(choice.name, profile)
    profiles.save(stored.without(choice.name))
    cli.render.one({"profile": choice.name, "key_prefix": profile.key_prefix})
    cli.render.note("The key is still valid; revoke it with booking keys revoke ID.")
