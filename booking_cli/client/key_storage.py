"""Where an API key is kept between two commands: in the keyring, or in a file that its owner alone can read.

Never anywhere else, and never silently: without a keyring a file must be asked for by name.
"""

from pathlib import Path
from typing import Any

from booking_cli.client.profiles import Profile
from booking_cli.framework.context import CliError

SERVICE = "booking-cli"
"""The keyring's name for what belongs to this command; without spaces, which some keyrings lose."""

_PROBE = "probe"
_OTHERS = 0o077
_ADVICE = "booking login --secret-file FILE keeps the key in a file; BOOKING_API_KEY keeps it nowhere"


def require_keyring() -> None:
    """Returns when a keyring takes, gives back and forgets a text: found out before there is a key to lose.

    Raises:
        CliError: there is none, or it is locked.
    """
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, _PROBE, _PROBE)
        is_kept = keyring.get_password(SERVICE, _PROBE) == _PROBE
        keyring.delete_password(SERVICE, _PROBE)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None
    if not is_kept:
        raise _unusable("it forgets what it was told")


def keep(name: str, key: str) -> None:
    """Puts the key of a profile into the keyring.

    Raises:
        CliError: the keyring refuses.
    """
    keyring = _keyring()
    try:
        keyring.set_password(SERVICE, name, key)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None


def find(name: str, profile: Profile) -> str | None:
    """The key of a profile; none when it is gone.

    Raises:
        CliError: it cannot be read, or others can read it.
    """
    if profile.secret_file is not None:
        return read_file(Path(profile.secret_file))
    keyring = _keyring()
    try:
        found: str | None = keyring.get_password(SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None
    return found


def forget(name: str, profile: Profile) -> None:
    """Removes the key of a profile from where it is kept; nothing happens when it is gone.

    Raises:
        CliError: it cannot be removed.
    """
    if profile.secret_file is not None:
        try:
            Path(profile.secret_file).unlink(missing_ok=True)
        except OSError as error:
            raise CliError(f"{profile.secret_file} cannot be removed: {error.strerror}.", code="bad_file") from None
        return
    keyring = _keyring()
    try:
        if keyring.get_password(SERVICE, name) is not None:
            keyring.delete_password(SERVICE, name)
    except keyring.errors.KeyringError as error:
        raise _unusable(error) from None


def read_file(path: Path) -> str | None:
    """The secret in a file; none when there is no file.

    Raises:
        CliError: it cannot be read, or others than its owner can.
    """
    try:
        if path.stat().st_mode & _OTHERS:
            raise CliError(f"Others can read {path}, which holds a key.", code="bad_file", hint=f"chmod 600 {path}")
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.", code="bad_file") from None


def _keyring() -> Any:
    """The module, when there is a keyring behind it."""
    try:
        import keyring
        import keyring.errors
        from keyring.backends import fail, null
    except ModuleNotFoundError:
        raise _unusable("the package keyring is not installed: pip install 'booking-cli[keyring]'") from None
    if isinstance(keyring.get_keyring(), fail.Keyring | null.Keyring):
        raise _unusable("this machine has none")
    return keyring


def _unusable(why: object) -> CliError:
    return CliError(f"The key cannot be kept in a keyring: {why}.", code="no_keyring", hint=_ADVICE)
