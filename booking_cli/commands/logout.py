"""`booking logout`: forgets a profile and its key."""

import typer

from booking_cli.client import key_storage, profiles
from booking_cli.framework import context
from booking_cli.framework.command import command, single

app = single()


@command(app, "logout", "booking logout", "booking logout --profile staging")
def logout(ctx: typer.Context) -> None:
    """Forgets the profile and removes its key from this machine.

    The key itself goes on working: `booking keys revoke` ends it.
    """
    cli = context.of(ctx)
    choice, known = profiles.chosen(cli), profiles.load()
    if choice.origin == "default" and choice.name not in known.by_name:
        cli.render.one({"profile": None, "key_prefix": None})
        cli.render.note("Nobody is logged in.")
        return
    profile = known.named(choice.name)
    key_storage.forget(choice.name, profile)
    profiles.save(known.without(choice.name))
    cli.render.one({"profile": choice.name, "key_prefix": profile.key_prefix})
    cli.render.note("The key still works for whoever has it: booking keys revoke ID ends it.")
