"""`booking config`: show and change profiles and client settings."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from booking_cli.client import connection, profiles
from booking_cli.client.profiles import Choice, Profile
from booking_cli.framework.arguments import one_of
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import text_of
from booking_cli.framework.options import argument
from booking_cli.framework.tables import Columns

app = command_group("Show and change profiles and client settings.")

SETTINGS = ("profile", "base_url", "api_key", "organization", "config_file")
SETTING_COLUMNS = Columns(("setting", "value", "origin"), wrapped=("value", "origin"))
PROFILE_COLUMNS = Columns(
    ("profile", "is_current", "base_url", "organization", "key", "kept_in"),
    empty="There is no profile yet: booking login",
    wrapped=("base_url",),
)


@command(app, "get")
def get(
    cli: Cli,
    setting: Annotated[
        str | None, argument("[SETTING]", f"One of {', '.join(SETTINGS)}; default: all.", parser=one_of(*SETTINGS))
    ] = None,
) -> None:
    """Show the current client settings with their origins, or the value of one.

    A flag overrides the environment, and the environment overrides the profile. Of the API key only the first
    characters are shown. The exit code is 1 if the one setting is not set.

    Examples:
        booking config get
        booking config get --profile staging
        booking config get base_url
    """
    rows = {row["setting"]: row for row in _current_settings(cli)}
    if setting is None:
        cli.render.many(list(rows.values()), SETTING_COLUMNS)
    elif rows[setting]["value"] is None:
        raise CliError(f"{setting} is not set.", ExitCode.FAILED, code="not_set", hint="booking config get")
    elif cli.render.is_json_or_fields:
        cli.render.one(rows[setting])
    else:
        cli.render.text(text_of(rows[setting]["value"]))


@command(app, "list", shape="profile")
def list_(cli: Cli) -> None:
    """List profiles.

    Examples:
        booking config list
    """
    stored = profiles.load()
    current = profiles.profile_name(cli)
    rows = [_profile_row(name, profile, current) for name, profile in sorted(stored.by_name.items())]
    cli.render.many(rows, PROFILE_COLUMNS)


@command(app, "set", shape="profile", changes=True)
def set_(
    cli: Cli, change: Annotated[str, argument("SETTING=VALUE", "profile=NAME, or base_url=URL of the profile.")]
) -> None:
    """Set the default profile, or the base URL of a profile. --profile and BOOKING_PROFILE override the default.

    Examples:
        booking config set profile=staging
        booking config set base_url=https://booking.example.com --profile staging
    """
    stored = profiles.load()
    key, _, value = change.partition("=")
    if key == "profile":
        name, profile = value, stored.named(value)
        profiles.save(profiles.Profiles(name, stored.by_name))
    elif key == "base_url" and value.startswith(("https://", "http://")):
        name = profiles.profile_name(cli)
        profile = replace(stored.named(name), base_url=value.rstrip("/"))
        profiles.save(stored.having(name, profile))
    else:
        raise CliError(f"{change!r} is neither profile=NAME nor base_url=URL.", hint="booking config set --help")
    cli.render.one(_profile_row(name, profile, profiles.profile_name(cli) if key == "base_url" else name))


def _profile_row(name: str, profile: Profile, current: str) -> dict[str, Any]:
    return {"profile": name, "is_current": name == current} | profile.present(name)


def _current_settings(cli: Cli) -> Iterator[dict[str, Any]]:
    """Yield each setting with its value and origin. The keyring is not read, since it may open a window."""
    choice, stored = profiles.chosen(cli), profiles.load()
    profile = stored.named(choice.name) if choice.origin != "default" else stored.by_name.get(choice.name, Profile())
    yield _row("profile", choice.name, choice.origin)
    url = connection.base_url(cli, choice, stored)
    yield _row("base_url", url.value, url.origin)
    yield _row("api_key", *_key(cli, choice, stored))
    yield _row("organization", profile.organization, f"profile {choice.name}" if profile.organization else "not set")
    yield _row("config_file", str(profiles.path()), _folder_origin())


def _key(cli: Cli, choice: Choice, stored: profiles.Profiles) -> tuple[str | None, str]:
    if key := connection.environment_key(cli, choice, stored):
        return profiles.masked(key), connection.API_KEY_VARIABLE
    profile = stored.by_name.get(choice.name, Profile())
    if profile.key_prefix is None:
        return None, "not set"
    return profiles.masked(profile.key_prefix), f"profile {choice.name}, in {profile.secret_file or 'the keyring'}"


def _folder_origin() -> str:
    return profiles.FOLDER_VARIABLE if os.environ.get(profiles.FOLDER_VARIABLE) else "default"


def _row(setting: str, value: str | None, origin: str) -> dict[str, Any]:
    return {"setting": setting, "value": value, "origin": origin}
