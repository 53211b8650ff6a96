"""`booking config`: show and change profiles and client settings."""

import os
from collections.abc import Iterator
from typing import Annotated, Any

from booking_cli.client import connection, profiles
from booking_cli.client.profiles import Choice, Profile
from booking_cli.framework.arguments import is_there, one_of
from booking_cli.framework.command import command, command_group
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import text_of
from booking_cli.framework.options import argument, option

app = command_group("Show and change profiles and client settings.")

SETTINGS = ("profile", "base_url", "api_key", "organization", "config_file")
PROFILE_COLUMNS = ("profile", "is_current", "base_url", "organization", "key", "kept_in")
Name = Annotated[str, argument("PROFILE", "The profile's name; see `booking config list`.")]


@command(app, "show")
def show(
    cli: Cli,
    origin: Annotated[bool, option("--origin", "Also show the origin of each setting.")] = False,
) -> None:
    """Show the current client settings, with only the first characters of the API key.

    A flag overrides the environment, and the environment overrides the profile.

    Examples:
        booking config show
        booking config show --origin --profile staging
    """
    columns = ("setting", "value", "origin") if origin else ("setting", "value")
    cli.render.many(list(_current_settings(cli)), columns, wrapped=("value", "origin"))


@command(app, "list", shape="profile")
def list_(cli: Cli) -> None:
    """List profiles.

    Examples:
        booking config list
    """
    stored = profiles.load()
    current = profiles.profile_name(cli)
    rows = [_profile_row(name, profile, current) for name, profile in sorted(stored.by_name.items())]
    cli.render.many(rows, PROFILE_COLUMNS, wrapped=("base_url",), empty="There is no profile yet: booking login")


@command(app, "use", shape="profile", changes=True)
def use(cli: Cli, name: Name) -> None:
    """Set the default profile. --profile and BOOKING_PROFILE override it.

    Examples:
        booking config use staging
    """
    stored = profiles.load()
    profile = stored.named(name)
    profiles.save(profiles.Profiles(name, stored.by_name))
    cli.render.one(_profile_row(name, profile, name))


@command(app, "set", shape="profile", changes=True)
def set_(cli: Cli, change: Annotated[str, argument("base_url=URL", "The setting to change.")]) -> None:
    """Change the base URL of a profile.

    Examples:
        booking config set base_url=https://booking.example.com --profile staging
    """
    stored, name = profiles.load(), profiles.profile_name(cli)
    profile = stored.named(name)
    key, _, value = change.partition("=")
    if key != "base_url" or not value.startswith(("https://", "http://")):
        raise CliError(f"{change!r} is not base_url=URL.", hint="booking config set --help")
    changed = Profile(value.rstrip("/"), profile.organization, profile.key_prefix, profile.secret_file)
    profiles.save(stored.having(name, changed))
    cli.render.one(_profile_row(name, changed, name))


@command(app, "get")
def get(
    cli: Cli,
    setting: Annotated[str, argument("SETTING", f"One of {', '.join(SETTINGS)}.", parser=one_of(*SETTINGS))],
) -> None:
    """Show the value of one setting. Exit code 1 if it is not set.

    Examples:
        booking config get base_url
    """
    (setting_row,) = (row for row in _current_settings(cli) if row["setting"] == setting)
    if setting_row["value"] is None:
        raise CliError(f"{setting} is not set.", ExitCode.FAILED, code="not_set", hint="booking config show --origin")
    if cli.render.is_json_or_fields:
        cli.render.one(setting_row)
    else:
        cli.render.text(text_of(setting_row["value"]))


@command(app, "path")
def path(cli: Cli) -> None:
    """Show the path of the configuration file.

    Examples:
        booking config path
    """
    file = profiles.path()
    if cli.render.is_json_or_fields:
        cli.render.one({"path": str(file), "exists": is_there(file)})
    else:
        cli.render.text(text_of(str(file)))


def _profile_row(name: str, profile: Profile, current: str) -> dict[str, Any]:
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
        return _masked(key), connection.API_KEY_VARIABLE
    profile = stored.by_name.get(choice.name, Profile())
    if profile.key_prefix is None:
        return None, "not set"
    return _masked(profile.key_prefix), f"profile {choice.name}, in {profile.secret_file or 'the keyring'}"


def _folder_origin() -> str:
    return profiles.FOLDER_VARIABLE if os.environ.get(profiles.FOLDER_VARIABLE) else "default"


def _row(setting: str, value: str | None, origin: str) -> dict[str, Any]:
    return {"setting": setting, "value": value, "origin": origin}
