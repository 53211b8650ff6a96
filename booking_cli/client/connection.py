"""Resolve the API key and the base URL of a client command.

A flag wins over the environment, and the environment over the profile. A profile that is chosen with --profile and an
environment variable that contradicts it are an error.
"""

import os
import sys
from dataclasses import dataclass

from booking_cli.client import profiles
from booking_cli.framework.context import Cli, hidden_answer
from booking_cli.framework.errors import CliError

API_KEY_VARIABLE = "BOOKING_API_KEY"
BASE_URL_VARIABLE = "BOOKING_BASE_URL"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and its origin."""

    value: str | None = None
    origin: str = "not set"


@dataclass(frozen=True, slots=True)
class Login:
    """The settings of an API client."""

    profile: profiles.Choice
    base_url: Setting
    api_key: Setting


def resolve(cli: Cli) -> Login:
    """Return the key and the base URL of this run; either may be missing. They are resolved once, since reading a
    keyring may open a window, and notes on overridden settings are printed.

    Raises:
        CliError: the chosen profile does not exist, or the environment contradicts it.
    """
    if cli.connection is None:
        cli.connection = _resolve(cli)
    resolved: Login = cli.connection
    return resolved


def _resolve(cli: Cli) -> Login:
    choice, stored = profiles.chosen(cli), profiles.load()
    needs_profile = not (cli.options.base_url and cli.options.api_key_stdin)
    if choice.origin != "default" and needs_profile:
        stored.named(choice.name)
    return Login(choice, base_url(cli, choice, stored), _api_key(cli, choice, stored))


def base_url(cli: Cli, choice: profiles.Choice, stored: profiles.Profiles) -> Setting:
    """Return the base URL of the service.

    Raises:
        CliError: the environment contradicts the profile.
    """
    if cli.options.base_url:
        return Setting(cli.options.base_url, "--base-url")
    of_profile = stored.by_name.get(choice.name, profiles.Profile()).base_url
    if url := os.environ.get(BASE_URL_VARIABLE):
        differs = of_profile is not None and of_profile != url.rstrip("/")
        _report_override(cli, choice, BASE_URL_VARIABLE, "base URL", differs)
        return Setting(url, BASE_URL_VARIABLE)
    return Setting(of_profile, f"profile {choice.name}") if of_profile else Setting()


def _api_key(cli: Cli, choice: profiles.Choice, stored: profiles.Profiles) -> Setting:
    if cli.options.api_key_stdin:
        return Setting(key_from_stdin(cli), "--api-key-stdin")
    if key := environment_key(cli, choice, stored):
        return Setting(key, API_KEY_VARIABLE)
    profile = stored.by_name.get(choice.name)
    key = profiles.find_key(choice.name, profile) if profile else None
    return Setting(key, f"profile {choice.name}") if key else Setting()


def environment_key(cli: Cli, choice: profiles.Choice, stored: profiles.Profiles) -> str | None:
    """Return the API key in the environment, which wins over the profile's.

    Raises:
        CliError: it contradicts the profile.
    """
    profile, key = stored.by_name.get(choice.name), os.environ.get(API_KEY_VARIABLE)
    if not key:
        return None
    # Only the prefixes are compared: reading the keyring may open a window.
    differs = profile is not None and not key.startswith(profile.key_prefix or "\n")
    _report_override(cli, choice, API_KEY_VARIABLE, "key", differs)
    return key


def _report_override(cli: Cli, choice: profiles.Choice, variable: str, noun: str, differs: bool) -> None:
    """Note that the environment overrides the profile. If the profile was chosen with --profile, raise an error."""
    if not differs:
        return
    if choice.origin == "--profile":
        raise CliError(
            f"--profile {choice.name} and {variable} contradict each other: each names another {noun}.",
            code="ambiguous_credentials",
            hint=f"unset {variable}, or leave out --profile",
        )
    cli.render.note(f"note: {variable} overrides the {noun} of the profile {choice.name}")


def key_from_stdin(cli: Cli) -> str:
    """Return the key of --api-key-stdin: the first line of stdin, which is read once.

    Raises:
        CliError: the line is empty.
    """
    if cli.key_from_stdin is None:
        if sys.stdin.isatty():
            cli.key_from_stdin = hidden_answer("API key: ")
        else:
            cli.key_from_stdin = sys.stdin.readline().strip()
    if not cli.key_from_stdin:
        raise CliError("--api-key-stdin found no key on stdin.", code="no_key")
    return cli.key_from_stdin
