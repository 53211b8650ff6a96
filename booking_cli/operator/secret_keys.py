"""Check the secret keys of BOOKING_SECRET_KEY against the database before a command signs or seals with them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from booking_cli.framework.errors import CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.context import Installation
    from booking_core.db.engine import Database
    from booking_core.secret_keys import Unopened
    from booking_core.settings import Settings

_HINT = (
    "put the key that sealed it after the one in use: BOOKING_SECRET_KEY=NEW,OLD; booking secrets status counts the"
    " values of each key. If that key is lost, set BOOKING_SECRET_KEY_CHECK=warn"
)


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
    from booking_core.settings import SettingError

    try:
        return settings.installation()
    except SettingError as error:
        raise CliError(str(error), code="bad_setting") from None


def verified_installation(settings: "Settings", database: "Database", warn: Callable[[str], None]) -> "Installation":
    """Return the installation after its secret keys were checked against the database.

    With a wrong key the service would go on selling while it signs no webhook, finds no gift card and opens no guest
    link, and it would seal more values with that key. The first and the last value of each kind are opened, which
    costs little.

    Args:
        warn: called instead of raising an error, if BOOKING_SECRET_KEY_CHECK is `warn`.

    Raises:
        CliError: `wrong_secret_key`, a value does not open, or the key of an SQLite database is missing.
    """
    from booking_core import secret_keys

    verify(settings, database, warn)
    return secret_keys.with_link_keys(database, load_installation(settings))


def verify(settings: "Settings", database: "Database", warn: Callable[[str], None]) -> None:
    """Check the secret keys as `verified_installation` does, without making a key.

    Raises:
        CliError: `wrong_secret_key`.
    """
    from booking_core import secret_keys

    with database.reading() as tx:
        at = tx.now()
        if settings.is_sqlite and not settings.has_secret_key:
            if secret_keys.holds_anything(tx, at):
                raise _missing_key(settings)
            return
        installation = secret_keys.with_link_keys(database, load_installation(settings))
        unopened = secret_keys.unopened(tx, installation.secret_keys, at)
    if unopened and settings.refuses_wrong_key:
        raise CliError(_message(unopened), code="wrong_secret_key", hint=_HINT)
    if unopened:
        warn(_message(unopened))


def _missing_key(settings: "Settings") -> CliError:
    return CliError(
        f"BOOKING_SECRET_KEY is not set, {settings.secret_file} is missing, and the database has sealed values.",
        code="wrong_secret_key",
        hint=f"restore {settings.secret_file} from a backup, or set BOOKING_SECRET_KEY",
    )


def _message(unopened: "list[Unopened]") -> str:
    by_key: dict[str, list[str]] = {}
    for each in unopened:
        by_key.setdefault(f"sealed with key {each.key_id}" if each.key_id else "sealed with an unknown key", []).append(
            each.plural
        )
    named = "; ".join(f"{', '.join(kinds)} ({key})" for key, kinds in by_key.items())
    return f"BOOKING_SECRET_KEY does not open what this database holds: {named}."
