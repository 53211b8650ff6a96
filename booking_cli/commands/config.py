"""`booking config`: the logins of this machine, and which settings are in force."""

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, profiles
from booking_cli.client.profiles import Choice, Profile
from booking_cli.framework import context
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, group
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.files import is_there
from booking_cli.framework.output import text_of

app = group("The logins of this machine, and which settings are in force.")

SETTINGS = ("profile", "base_url", "api_key", "organization", "config_file")
PROFILE_COLUMNS = ("profile", "is_current", "base_url", "organization", "key", "kept_in")
Name = Annotated[str, typer.Argument(metavar="PROFILE", help="Its name; `booking config list` shows it.")]


@command(app, "show", "booking config show", "booking config show --origin --profile staging")
def show(
    ctx: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Also where each one comes from.")] = False,
) -> None:
    """Shows the settings that client commands would use now. Of the key only the first characters are shown.

    A flag wins over the environment, and that over the profile.
    """
    cli = context.of(ctx)
    columns = ("setting", "value", "origin") if origin else ("setting", "value")
    cli.render.many(list(_in_force(cli)), columns, prose=("value", "origin"))


@command(app, "list", "booking config list", shape="profile")
def list_(ctx: typer.Context) -> None:
    """Lists the profiles."""
    cli, known = context.of(ctx), profiles.load()
    current = profiles.profile_name(cli)
    found = [_shown(name, profile, current) for name, profile in sorted(known.by_name.items())]
    cli.render.many(found, PROFILE_COLUMNS, prose=("base_url",), empty="There is no profile yet: booking login")


@command(app, "use", "booking config use staging", shape="profile", changes=True)
def use(ctx: typer.Context, name: Name) -> None:
    """Chooses the profile for the commands that follow; --profile and BOOKING_PROFILE still win."""
    cli, known = context.of(ctx), profiles.load()
    profile = known.named(name)
    profiles.save(profiles.Profiles(name, known.by_name))
    cli.render.one(_shown(name, profile, name))


@command(
    app,
    "set",
    "booking config set base_url=https://booking.example.com --profile staging",
    shape="profile",
    changes=True,
)
def set_(
    ctx: typer.Context,
    change: Annotated[str, typer.Argument(metavar="base_url=URL", help="What to change.")],
) -> None:
    """Changes the address of a profile, when the service has moved."""
    cli, known, name = context.of(ctx), profiles.load(), profiles.profile_name(context.of(ctx))
    profile = known.named(name)
    key, _, value = change.partition("=")
    if key != "base_url" or not value.startswith(("https://", "http://")):
        raise CliError(f"{change!r} is not base_url=URL.", hint="booking config set --help")
    changed = Profile(value.rstrip("/"), profile.organization, profile.key_prefix, profile.secret_file)
    profiles.save(known.having(name, changed))
    cli.render.one(_shown(name, changed, name))


@command(app, "get", "booking config get base_url")
def get(
    ctx: typer.Context,
    setting: Annotated[
        str,
        typer.Argument(metavar="SETTING", parser=one_of(*SETTINGS), help=f"One of {', '.join(SETTINGS)}."),
    ],
) -> None:
    """Show the value of one setting, as `config show` does; exit code 1 when it is not set."""
    cli = context.of(ctx)
    (found,) = (row for row in _in_force(cli) if row["setting"] == setting)
    if found["value"] is None:
        raise CliError(f"{setting} is not set.", ExitCode.FAILED, code="not_set", hint="booking config show --origin")
    if cli.render.is_json or cli.render.fields:
        cli.render.one(found)
    else:
        cli.render.text(text_of(found["value"]))


@command(app, "path", "booking config path")
def path(ctx: typer.Context) -> None:
    """Show where the profiles are kept; the file need not exist yet."""
    cli = context.of(ctx)
    file = profiles.path()
    if cli.render.is_json or cli.render.fields:
        cli.render.one({"path": str(file), "exists": is_there(file)})
    else:
        cli.render.text(text_of(str(file)))


def _shown(name: str, profile: Profile, current: str) -> dict[str, Any]:
    return {
        "profile": name,
        "is_current": name == current,
        "base_url": profile.base_url,
        "organization": profile.organization,
        "key": _masked(profile.key_prefix),
        "kept_in": profile.secret_file or "keyring",
    }


def _masked(key: str | None) -> str | None:
    return f"{key[:12]}…" if key else None


def _in_force(cli: Cli) -> Iterator[dict[str, Any]]:
    """Each setting with its value and where that comes from. The keyring is left alone: its windows are in the way."""
    choice, known = profiles.chosen(cli), profiles.load()
    profile = known.named(choice.name) if choice.origin != "default" else known.by_name.get(choice.name, Profile())
    yield _row("profile", choice.name, choice.origin)
    address = api_client.address(cli, choice, known)
    yield _row("base_url", address.value, address.origin)
    yield _row("api_key", *_key(cli, choice, known))
    yield _row("organization", profile.organization, f"profile {choice.name}" if profile.organization else "not set")
    yield _row("config_file", str(profiles.path()), _folder_origin())


def _key(cli: Cli, choice: Choice, known: profiles.Profiles) -> tuple[str | None, str]:
    if told := api_client.key_of_environment(cli, choice, known):
        return _masked(told), api_client.KEY_VARIABLE
    stored = known.by_name.get(choice.name, Profile())
    if stored.key_prefix is None:
        return None, "not set"
    return _masked(stored.key_prefix), f"profile {choice.name}, in {stored.secret_file or 'the keyring'}"


def _folder_origin() -> str:
    return profiles.FOLDER_VARIABLE if os.environ.get(profiles.FOLDER_VARIABLE) else "default"


def _row(setting: str, value: str | None, origin: str) -> dict[str, Any]:
    return {"setting": setting, "value": value, "origin": origin}
