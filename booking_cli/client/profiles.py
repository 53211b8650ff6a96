"""Profiles: which service and which organization a client command talks to, remembered by name.

One small file, without secrets: where a profile's key is kept stands there, the key is in the keyring or in a file of
its own (`key_storage`).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from booking_cli.framework.context import Cli, CliError
from booking_core import private_files

VARIABLE = "BOOKING_PROFILE"
FOLDER_VARIABLE = "BOOKING_CONFIG_DIR"
DEFAULT = "default"
"""The profile of whoever never names one."""

_FILE = "config.toml"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Profile:
    """A service, an organization there, and where the key to it is."""

    base_url: str | None = None
    organization: str | None = None
    """The slug, as the service told it when the key was stored."""
    key_prefix: str | None = None
    """The first characters of the key, to tell keys apart."""
    secret_file: str | None = None
    """The file that holds the key; none when the keyring does."""


@dataclass(frozen=True, slots=True)
class Profiles:
    """Everything in the file."""

    current: str | None = None
    """The profile of `config use`."""
    by_name: Mapping[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """The profile of that name.

        Raises:
            CliError: there is none.
        """
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            raise CliError(
                f"There is no profile {name}; there are: {known}.",
                code="no_profile",
                hint=f"booking login --profile {name}",
            )
        return self.by_name[name]

    def having(self, name: str, profile: Profile) -> "Profiles":
        """These and that one."""
        return replace(self, by_name={**self.by_name, name: profile})

    def without(self, name: str) -> "Profiles":
        """These but that one."""
        kept = {each: profile for each, profile in self.by_name.items() if each != name}
        return Profiles(None if self.current == name else self.current, kept)


@dataclass(frozen=True, slots=True)
class Choice:
    """The profile of this run, and where that was said."""

    name: str
    origin: str
    """`default` when nobody said anything."""


def chosen(cli: Cli) -> Choice:
    """The profile of this run: --profile, then BOOKING_PROFILE, then `config use`, then the default one."""
    if cli.options.profile:
        return Choice(checked_name(cli.options.profile), "--profile")
    if named := os.environ.get(VARIABLE):
        return Choice(checked_name(named), VARIABLE)
    if current := load().current:
        return Choice(current, "config use")
    return Choice(DEFAULT, "default")


def profile_name(cli: Cli) -> str:
    """The name of the profile of this run, whether it exists or not."""
    return chosen(cli).name


def checked_name(name: str) -> str:
    """A name that can stand in a file, in a keyring and on a command line.

    Raises:
        CliError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise CliError(f"{name!r} is no name for a profile: use letters, digits, - and _.", code="bad_profile")
    return name


def folder() -> Path:
    """Where the profiles are; it need not exist."""
    if told := os.environ.get(FOLDER_VARIABLE):
        return Path(told)
    from platformdirs import user_config_path

    return user_config_path("booking", appauthor=False)


def path() -> Path:
    """The file of the profiles."""
    return folder() / _FILE


def load() -> Profiles:
    """What is in the file; nothing when there is none.

    Raises:
        CliError: it cannot be read, or is not what this command writes.
    """
    import tomllib

    try:
        document = tomllib.loads(path().read_text())
        return _read(document)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise CliError(f"{path()} cannot be read: {error.strerror}.", code="bad_config") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CliError(f"{path()} is damaged: {error}.", code="bad_config", hint="mend it, or remove it") from None


def save(profiles: Profiles) -> None:
    """Writes the file as a whole, so that nobody ever reads half of it.

    Raises:
        CliError: it cannot be written.
    """
    import tomli_w

    document: dict[str, Any] = {"current": profiles.current} if profiles.current else {}
    document["profiles"] = {
        name: {key: value for key, value in asdict(profile).items() if value is not None}
        for name, profile in sorted(profiles.by_name.items())
    }
    write_private(path(), tomli_w.dumps(document))


def write_private(target: Path, text: str) -> None:
    """Writes a file that nobody else can read, in one step.

    Raises:
        CliError: it cannot be written.
    """
    try:
        private_files.make_folder(target.parent)
        private_files.replace(target, text.encode())
    except OSError as error:
        raise CliError(f"{target} cannot be written: {error.strerror}.", code="bad_file") from None


def _read(document: Mapping[str, Any]) -> Profiles:
    known = Profile.__slots__
    found = {
        checked_name(name): Profile(**{key: _text(key, fields[key]) for key in known if key in fields})
        for name, fields in document.get("profiles", {}).items()
    }
    current = document.get("current")
    return Profiles(None if current is None else _text("current", current), found)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value
