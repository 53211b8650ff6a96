"""`booking login`: keeps a key for the commands that follow."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from booking_cli.client import api_client, key_storage, profiles
from booking_cli.client.profiles import Profile
from booking_cli.framework import context
from booking_cli.framework.command import command, single
from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.files import is_there

app = single()

_LOCAL = "http://127.0.0.1:8000"
_PREFIX_LENGTH = 12


@command(
    app,
    "login",
    "booking login --base-url https://booking.example.com",
    "booking login --profile staging --base-url https://staging.example.com --api-key-stdin < staging.key",
    "booking login --base-url http://127.0.0.1:8000 --secret-file ~/.config/booking/key",
    shape="login",
    changes=True,
)
def login(
    ctx: typer.Context,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Keep the key in this file (0600), not in the keyring."),
    ] = None,
) -> None:
    """Asks for an API key, tries it, and keeps it under a profile.

    The key goes into the keyring; where there is none, --secret-file names a file that only you can read. It is never
    an argument, where others could see it: it is typed, or read from stdin with --api-key-stdin.
    """
    cli = context.of(ctx)
    choice, known = profiles.chosen(cli), profiles.load()
    before = known.by_name.get(choice.name, Profile())
    file = _file(secret_file, before)
    if file is None:
        key_storage.require_keyring()
    base_url = _address(cli, before)
    key = _key(cli)
    with api_client.opened(cli, base_url, key) as client:
        # Read as what it should be, before anything is kept: what answers there may be another service.
        told = client.me().to_json()
    if file is None:
        key_storage.keep(choice.name, key)
    else:
        profiles.write_private(file, key + "\n")
    profile = Profile(base_url, told["organization"]["slug"], key[:_PREFIX_LENGTH], str(file) if file else None)
    if not known.by_name:
        known = profiles.Profiles(choice.name, {})
    profiles.save(known.having(choice.name, profile))
    _tell(cli, choice.name, profile, told)


def _file(wanted: Path | None, before: Profile) -> Path | None:
    """Where the key goes, if not into the keyring: a new file, or the one that the profile has already.

    Raises:
        CliError: the file is there and is not the profile's.
    """
    if wanted is None:
        return Path(before.secret_file) if before.secret_file else None
    path = wanted.expanduser().absolute()
    if is_there(path) and str(path) != before.secret_file:
        raise CliError(f"{path} exists; a key is only written to a new file.", code="file_exists")
    return path


def _address(cli: Cli, before: Profile) -> str:
    """The service's root, without a slash at the end."""
    told = cli.options.base_url or os.environ.get(api_client.ADDRESS_VARIABLE) or before.base_url
    if not told:
        told = cli.ask(f"The service's address [{_LOCAL}]: ", instead="--base-url URL") or _LOCAL
    return told.rstrip("/")


def _key(cli: Cli) -> str:
    """The key, from stdin or from who sits there; nobody sees it."""
    if cli.options.api_key_stdin:
        return api_client.key_from_stdin(cli)
    return cli.ask("API key (not shown): ", instead="--api-key-stdin", hidden=True)


def _tell(cli: Cli, name: str, profile: Profile, told: Any) -> None:
    kept = profile.secret_file or "keyring"
    cli.render.one(
        {
            "profile": name,
            "base_url": profile.base_url,
            "organization": profile.organization,
            "key": f"{profile.key_prefix}…",
            "scopes": told["key"]["scopes"],
            "kept_in": kept,
        }
    )
    if str(profile.base_url).startswith("http://") and not _is_local(str(profile.base_url)):
        cli.render.warn("warning: without https, everybody on the way can read the key")
    if os.environ.get(api_client.KEY_VARIABLE):
        cli.render.warn(f"warning: {api_client.KEY_VARIABLE} is set, and wins over this login")
    cli.render.note("next: booking experiences list, booking availability")


def _is_local(base_url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(base_url).hostname in ("localhost", "127.0.0.1", "::1")
