"""Check the secret keys of BOOKING_SECRET_KEY against the database before a command signs or seals with them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from booking_cli.framework.errors import CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.base.context import Installation
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database


def settings_with_secret_key() -> "Settings":
    """Return the settings for a command that signs or seals.

    Raises:
        CliError: a setting is invalid, or PostgreSQL is used without a secret key. Raised before the database is
            opened.
    """
    settings = storage.load_settings()
    if not settings.is_sqlite:
        load_installation(settings)
    return settings


def load_installation(settings: "Settings") -> "Installation":
    """Return the installation with its secret keys.

    Raises:
        CliError: there is no secret key, and none can be made.
    """
    with storage.translate_setting_errors():
        return settings.installation()


def verified_installation(settings: "Settings", database: "Database", warn: Callable[[str], None]) -> "Installation":
    """Return the installation after its secret keys were checked against the database.

    Args:
        warn: called instead of raising an error, if BOOKING_SECRET_KEY_CHECK is `warn`.

    Raises:
        CliError: `wrong_secret_key`, a value does not open, or the key of an SQLite database is missing.
    """
    from booking_core.upkeep import secret_keys

    verify(settings, database, warn)
    return secret_keys.with_link_keys(database, load_installation(settings))


def verify(settings: "Settings", database: "Database", warn: Callable[[str], None]) -> None:
    """Check the secret keys as `verified_installation` does, without making a key.

    Raises:
        CliError: `wrong_secret_key`, or `bad_setting`.
    """
    from booking_core.upkeep import secret_keys

    with storage.translate_setting_errors():
        problem = secret_keys.find_problem(settings, database)
    if problem is None:
        return
    if problem.is_refused:
        raise CliError(problem.message, code="wrong_secret_key", hint=problem.hint)
    warn(f"{problem.message} Hint: {problem.hint}." if problem.is_damage else problem.message)
