"""Store the API key of a profile in the keyring, or in a file that only its owner can read.

A file is used only if the user names one.
"""

from pathlib import Path
from typing import Any

from booking_cli.client.profiles import Profile
from booking_cli.framework.errors import CliError, bad_file

SERVICE = "booking-cli"
"""The service name in the keyring. It has no spaces, which some keyrings lose."""

_PROBE = "probe"
_GROUP_AND_OTHERS = 0o077
_HINT = "store the key in a file with booking login --secret-file FILE, or set BOOKING_API_KEY"


def require_keyring() -> None:
    """Check that the keyring can store, return and delete a text, before a key is asked for.

    Raises:
        CliError: there is no keyring, or it is locked.
    """
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, _PROBE, _PROBE)
        is_stored = keyring.get_password(SERVICE, _PROBE) == _PROBE
        keyring.delete_password(SERVICE, _PROBE)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None
    if not is_stored:
        raise _unusable("it does not return a stored text")


def store(name: str, key: str) -> None:
    """Store the key of a profile in the keyring.

    Raises:
        CliError: the keyring failed.
    """
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, name, key)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None


def find(name: str, profile: Profile) -> str | None:
    """Return the key of a profile, or None if it is missing.

    Raises:
        CliError: it cannot be read, or other users can read it.
    """
    if profile.secret_file is not None:
        return read_file(Path(profile.secret_file))
    keyring = _keyring()
    try:
        key: str | None = keyring.get_password(SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None
    return key


def delete(name: str, profile: Profile) -> None:
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
    keyring = _keyring()
    try:
        if keyring.get_password(SERVICE, name) is not None:
            keyring.delete_password(SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None


def read_file(path: Path) -> str | None:
    """Return the secret in a file, or None without a file.

    Raises:
        CliError: it cannot be read, or other users can read it.
    """
    try:
        if path.stat().st_mode & _GROUP_AND_OTHERS:
            raise bad_file(path, "holds a key, and other users can read it", hint=f"chmod 600 {path}")
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise bad_file(path, f"cannot be read: {error.strerror}") from None


def _keyring() -> Any:
    """Return the keyring module.

    Raises:
        CliError: it is not installed, or has no backend.
    """
    try:
        import keyring
        import keyring.errors
        from keyring.backends import fail, null
    except ModuleNotFoundError:
        raise _unusable("the package keyring is not installed: pip install 'booking-cli[keyring]'") from None
    if isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring):
        raise _unusable("this machine has none")
    return keyring


def _unusable(reason: object) -> CliError:
    return CliError(f"The key cannot be stored in a keyring: {reason}.", code="no_keyring", hint=_HINT)
