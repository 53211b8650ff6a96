"""Read and write profiles: named pairs of a service and an organization for client commands.

The profiles are in one TOML file without secrets. The API key of a profile is in the keyring, or in a file that only
its owner can read: a file that the user names or, on a machine without a keyring, a file beside the profiles.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError, bad_file
from booking_core.base import private_files

VARIABLE = "BOOKING_PROFILE"
FOLDER_VARIABLE = "BOOKING_CONFIG_DIR"
DEFAULT = "default"
"""The profile that is used if none is chosen."""

KEY_PREFIX_LENGTH = 12
_FILE = "config.toml"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Profile:
    """A service, an organization, and the place of its API key."""

    base_url: str | None = None
    organization: str | None = None
    """The slug in the service's response when the key was stored."""
    key_prefix: str | None = None
    """The first characters of the key, to tell keys apart."""
    secret_file: str | None = None
    """The file that holds the key; None for the keyring."""

    def present(self, name: str) -> dict[str, Any]:
        """Return the profile of that name for the output."""
        return {
            "profile": name,
            "base_url": self.base_url,
            "organization": self.organization,
            "key": masked(self.key_prefix),
            "kept_in": self.secret_file or "keyring",
        }


def masked(key: str | None) -> str | None:
    """Return the first characters of a key, which tell keys apart."""
    return f"{key[:KEY_PREFIX_LENGTH]}…" if key else None


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    current: str | None = None
    """The profile of `config set`."""
    by_name: Mapping[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        """Return the profile of that name.

        Raises:
            CliError: there is no such profile.
        """
        if name not in self.by_name:
            names = ", ".join(sorted(self.by_name)) or "none yet"
            raise CliError(
                f"There is no profile {name}; there are: {names}.",
                code="no_profile",
                hint=f"booking login --profile {name}",
            )
        return self.by_name[name]

    def having(self, name: str, profile: Profile) -> "Profiles":
        """Return the profiles with one added or replaced."""
        return replace(self, by_name={**self.by_name, name: profile})

    def without(self, name: str) -> "Profiles":
        """Return the profiles without one."""
        profiles = {key: profile for key, profile in self.by_name.items() if key != name}
        return Profiles(None if self.current == name else self.current, profiles)


@dataclass(frozen=True, slots=True)
class Choice:
    """The profile of this run, and the origin of the choice."""

    name: str
    origin: str
    """`--profile`, the variable, `config set` or `default`."""


def chosen(cli: Cli) -> Choice:
    """Return the profile of this run: from --profile, BOOKING_PROFILE or `config set`, or the default."""
    if cli.options.profile:
        return Choice(checked_name(cli.options.profile), "--profile")
    if name := os.environ.get(VARIABLE):
        return Choice(checked_name(name), VARIABLE)
    if current := load().current:
        return Choice(current, "config set")
    return Choice(DEFAULT, "default")


def profile_name(cli: Cli) -> str:
    """Return the name of the profile of this run, which need not exist."""
    return chosen(cli).name


def checked_name(name: str) -> str:
    """Return the name if it is valid in the file, in a keyring and on the command line.

    Raises:
        CliError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise CliError(f"{name!r} is not a valid profile name: use letters, digits, - and _.", code="bad_profile")
    return name


def folder() -> Path:
    """Return the folder of the configuration, which need not exist."""
    if name := os.environ.get(FOLDER_VARIABLE):
        return Path(name)
    from platformdirs import user_config_path

    return user_config_path("booking", appauthor=False)


def path() -> Path:
    """Return the path of the profiles' file."""
    return folder() / _FILE


def load() -> Profiles:
    """Return the profiles of the file; none without a file.

    Raises:
        CliError: it cannot be read, or is invalid.
    """
    import tomllib

    try:
        document = tomllib.loads(path().read_text())
        return _read(document)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise bad_file(path(), f"cannot be read: {error.strerror}", code="bad_config") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise bad_file(path(), f"is invalid: {error}", code="bad_config", hint="repair it, or remove it") from None


def save(profiles: Profiles) -> None:
    """Replace the file atomically.

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
    """Replace a file atomically; only its owner can read it.

    Raises:
        CliError: it cannot be written.
    """
    try:
        private_files.make_folder(target.parent)
        private_files.replace(target, text.encode())
    except OSError as error:
        raise bad_file(target, f"cannot be written: {error.strerror}") from None


def _read(document: Mapping[str, Any]) -> Profiles:
    keys = Profile.__slots__
    profiles = {
        checked_name(name): Profile(**{key: _text(key, fields[key]) for key in keys if key in fields})
        for name, fields in document.get("profiles", {}).items()
    }
    current = document.get("current")
    return Profiles(None if current is None else _text("current", current), profiles)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    return value


# Keys -----------------------------------------------------------------------------------------------------------------

KEYRING_SERVICE = "booking-cli"
"""The service name in the keyring. It has no spaces, which some keyrings lose."""

_PROBE = "probe"
_GROUP_AND_OTHERS = 0o077
_HINT = "store the key in a file with booking login --secret-file FILE, or set BOOKING_API_KEY"


class NoKeyring(CliError):
    """An error for a machine without a keyring, as opposed to one whose keyring is locked or fails."""


def key_file(name: str) -> Path:
    """Return the path of a profile's key on a machine without a keyring."""
    return (folder() / "keys" / f"{name}.key").absolute()


def require_keyring() -> None:
    """Check that the keyring can store, return and delete a text, before the key is entered.

    Raises:
        NoKeyring: there is no keyring.
        CliError: it is locked, or it fails.
    """
    with _opened_keyring() as keyring:
        keyring.set_password(KEYRING_SERVICE, _PROBE, _PROBE)
        is_stored = keyring.get_password(KEYRING_SERVICE, _PROBE) == _PROBE
        keyring.delete_password(KEYRING_SERVICE, _PROBE)
    if not is_stored:
        raise _unusable("it does not return a stored text")


def store_key(name: str, key: str) -> None:
    """Store the key of a profile in the keyring.

    Raises:
        CliError: the keyring failed.
    """
    with _opened_keyring() as keyring:
        keyring.set_password(KEYRING_SERVICE, name, key)


def find_key(name: str, profile: Profile) -> str | None:
    """Return the key of a profile, or None if it is missing.

    Raises:
        CliError: it cannot be read, or other users can read it.
    """
    if profile.secret_file is not None:
        return _read_key_file(Path(profile.secret_file))
    with _opened_keyring() as keyring:
        key: str | None = keyring.get_password(KEYRING_SERVICE, name)
        return key


def delete_key(name: str, profile: Profile) -> None:
    """Remove the key of a profile; a missing key is ignored.

    Raises:
        CliError: it cannot be removed.
    """
    if profile.secret_file is not None:
        try:
            Path(profile.secret_file).unlink(missing_ok=True)
        except OSError as error:
            raise bad_file(profile.secret_file, f"cannot be removed: {error.strerror}") from None
        return
    with _opened_keyring() as keyring:
        if keyring.get_password(KEYRING_SERVICE, name) is not None:
            keyring.delete_password(KEYRING_SERVICE, name)


def _read_key_file(path: Path) -> str | None:
    """Return the secret in a file, or None without a file.

    Raises:
        CliError: it cannot be read, or other users can read it.
    """
    try:
        if sys.platform != "win32" and path.stat().st_mode & _GROUP_AND_OTHERS:
            raise bad_file(path, "holds a key, and other users can read it", hint=f"chmod 600 {path}")
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from None


@contextmanager
def _opened_keyring() -> Iterator[Any]:
    """Yield the keyring module.

    Raises:
        NoKeyring: it is not installed, or has no backend.
        CliError: the keyring is locked, or it fails.
    """
    try:
        import keyring
        import keyring.errors
        from keyring.backends import fail, null
    except ModuleNotFoundError:
        reason = "the package keyring is not installed (pip install 'booking-cli[keyring]')"
        raise _unusable(reason, NoKeyring) from None
    if isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring):
        raise _unusable("this machine has none", NoKeyring)
    try:
        yield keyring
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None


def _unusable(reason: object, kind: type[CliError] = CliError) -> CliError:
    return kind(f"The key cannot be stored in a keyring: {reason}.", code="no_keyring", hint=_HINT)
