"""`booking login`, `logout` and `whoami`: store an API key for later commands, remove it, and show whose it is."""

import os
from pathlib import Path
from typing import Annotated, Any

from booking_cli.client import api_client, connection, profiles
from booking_cli.client.profiles import Profile
from booking_cli.framework.arguments import is_there
from booking_cli.framework.command import command, command_app
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import bad_file
from booking_cli.framework.options import option

app = command_app()

_LOCAL = "http://127.0.0.1:8000"


@command(app, "login", shape="login", changes=True)
def login(
    cli: Cli,
    secret_file: Annotated[
        Path | None, option("--secret-file FILE", "Store the key in this file (mode 0600) instead of the keyring.")
    ] = None,
) -> None:
    """Ask for an API key, check it with the service, and store it in a profile.

    The key is stored in the system's keyring. With --secret-file, or on a machine without a keyring, it is stored in a
    file that only you can read. It is typed, or read from stdin with --api-key-stdin; it is never an argument, which
    other users of the machine could see.

    Examples:
        booking login --base-url https://booking.example.com
        booking login --profile staging --base-url https://staging.example.com --api-key-stdin < staging.key
        booking login --base-url http://127.0.0.1:8000 --secret-file ~/.config/booking/key
    """
    choice, stored = profiles.chosen(cli), profiles.load()
    before = stored.by_name.get(choice.name, Profile())
    file = _file(secret_file, before) or _file_without_keyring(cli, choice.name)
    base_url = _base_url(cli, before)
    key = _key(cli)
    with api_client.open_client(cli, base_url, key) as client:
        # Parsed before anything is stored, since another service may answer at this address.
        me = client.me().to_json()
    if file is None:
        profiles.store_key(choice.name, key)
    else:
        profiles.write_private(file, key + "\n")
    profile = Profile(
        base_url, me["organization"]["slug"], key[: profiles.KEY_PREFIX_LENGTH], str(file) if file else None
    )
    if not stored.by_name:
        stored = profiles.Profiles(choice.name, {})
    profiles.save(stored.having(choice.name, profile))
    _write(cli, choice.name, profile, me)


def _file(option: Path | None, before: Profile) -> Path | None:
    """Return the file for the key, new or already used by the profile; None for the keyring.

    Raises:
        CliError: the file exists and does not belong to the profile.
    """
    if option is None:
        return Path(before.secret_file) if before.secret_file else None
    path = option.expanduser().absolute()
    if is_there(path) and str(path) != before.secret_file:
        raise bad_file(path, "exists; a key is only written to a new file", code="file_exists")
    return path


def _file_without_keyring(cli: Cli, name: str) -> Path | None:
    """Return the file for the key on a machine without a keyring, and write why; None with a keyring.

    Raises:
        CliError: the keyring is locked, or it fails.
    """
    try:
        profiles.require_keyring()
    except profiles.NoKeyring as missing:
        file = profiles.key_file(name)
        cli.render.warn(f"{missing} It will be stored in {file}, which only you can read (mode 0600).")
        return file
    return None


def _base_url(cli: Cli, before: Profile) -> str:
    """Return the base URL, without a slash at the end."""
    url = cli.options.base_url or os.environ.get(connection.BASE_URL_VARIABLE) or before.base_url
    if not url:
        url = cli.ask(f"Base URL of the service [{_LOCAL}]: ", option="--base-url URL") or _LOCAL
    return url.rstrip("/")


def _key(cli: Cli) -> str:
    """Return the key, from stdin or typed without an echo."""
    if cli.options.api_key_stdin:
        return connection.key_from_stdin(cli)
    return cli.ask("API key (not shown): ", option="--api-key-stdin", hidden=True)


def _write(cli: Cli, name: str, profile: Profile, me: Any) -> None:
    cli.render.one(profile.present(name) | {"scopes": me["key"]["scopes"]})
    if str(profile.base_url).startswith("http://") and not _is_local(str(profile.base_url)):
        cli.render.warn("warning: without https, the key can be read on its way to the service")
    if os.environ.get(connection.API_KEY_VARIABLE):
        cli.render.warn(f"warning: {connection.API_KEY_VARIABLE} is set, and overrides this login")
    cli.render.note("next: booking experiences list, booking availability")


def _is_local(base_url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")


@command(app, "logout")
def logout(cli: Cli) -> None:
    """Remove the profile and its API key from this machine.

    The key itself stays valid; revoke it with `booking keys revoke`.

    Examples:
        booking logout
        booking logout --profile staging
    """
    choice, stored = profiles.chosen(cli), profiles.load()
    if choice.origin == "default" and choice.name not in stored.by_name:
        cli.render.one({"profile": None, "key_prefix": None})
        cli.render.note("You are not logged in.")
        return
    profile = stored.named(choice.name)
    profiles.delete_key(choice.name, profile)
    profiles.save(stored.without(choice.name))
    cli.render.one({"profile": choice.name, "key_prefix": profile.key_prefix})
    cli.render.note("The key is still valid; revoke it with booking keys revoke ID.")


@command(app, "whoami")
def whoami(cli: Cli) -> None:
    """Show the organization and the scopes of the API key in use.

    Examples:
        booking whoami
        booking whoami --fields organization.slug
    """
    api_client.write_resource(cli, "me")
