"""How an operator's command comes to the database: settings, connection, and errors that say what to do."""

import contextlib
import logging
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from booking_cli.framework.context import Cli, CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.files import is_there
from booking_cli.framework.output import one_line

if TYPE_CHECKING:
    from booking_core.context import Installation, Organization
    from booking_core.db.engine import Database
    from booking_core.secret_keys import Unopened
    from booking_core.settings import Settings

log = logging.getLogger("booking.secrets")

_UPGRADE = "booking db upgrade"
_AWAY = "OperationalError"
"""psycopg's error for a server that cannot be reached; what a server answers has a class of its own."""
_MISSING_SQLSTATES = ("42P01", "42703")
"""PostgreSQL: no such table, no such column."""


def settings() -> "Settings":
    """The settings of the environment.

    Raises:
        CliError: one cannot be understood, or the library behind the operator's commands is not installed.
    """
    with installed():
        from booking_core.settings import SettingError, Settings
    try:
        return Settings.from_environment()
    except SettingError as error:
        raise CliError(str(error), code="bad_setting") from None


def sealing_settings() -> "Settings":
    """Return the settings for a command that signs or seals.

    Raises:
        CliError: one cannot be understood, or no secret key is set where none can be made: said before the database
            is opened.
    """
    wanted = settings()
    if not wanted.is_sqlite:
        installation(wanted)
    return wanted


def installation(wanted: "Settings") -> "Installation":
    """What every request of this installation shares, its secret keys above all.

    Raises:
        CliError: there is no secret key, and none can be made.
    """
    from booking_core.settings import SettingError

    try:
        return wanted.installation()
    except SettingError as error:
        raise CliError(str(error), code="bad_setting") from None


def unlocked(wanted: "Settings", database: "Database", warn: Callable[[str], None]) -> "Installation":
    """Return what every request of this installation shares, once its secret keys are known to open the database.

    A service with another key would sell on while no webhook is signed, no gift card is found and no guest's link
    opens, and seal more with the wrong key. The first and the last value of each kind are opened, so that it costs next
    to nothing.

    Args:
        warn: told instead of an error where BOOKING_SECRET_KEY_CHECK says so.

    Raises:
        CliError: `wrong_secret_key`, a value does not open; or there is no secret key where there must have been one.
    """
    from booking_core import secret_keys

    check_secret_keys(wanted, database, warn)
    return secret_keys.with_link_keys(database, installation(wanted))


def check_secret_keys(wanted: "Settings", database: "Database", warn: Callable[[str], None]) -> None:
    """The same check, for who makes no secret key where there is none.

    Raises:
        CliError: as above.
    """
    from booking_core import secret_keys

    with database.reading() as tx:
        at = tx.now()
        if wanted.is_sqlite and not wanted.has_secret_key:
            if secret_keys.holds_anything(tx, at):
                raise _without_key(wanted)
            return
        known = secret_keys.with_link_keys(database, installation(wanted))
        found = secret_keys.unopened(tx, known.secret_keys, at)
    if found and wanted.refuses_wrong_key:
        raise CliError(_wrong_key(found), code="wrong_secret_key", hint=_WRONG_KEY_HINT)
    if found:
        warn(_wrong_key(found))


_WRONG_KEY_HINT = (
    "put the key that sealed it behind the one in use: BOOKING_SECRET_KEY=NEW,OLD; `booking secrets status` counts what"
    " is sealed with which. Where that key is lost, BOOKING_SECRET_KEY_CHECK=warn goes on without"
)


def _without_key(wanted: "Settings") -> CliError:
    return CliError(
        f"BOOKING_SECRET_KEY is not set, {wanted.secret_file} is missing, and the database holds what its key sealed.",
        code="wrong_secret_key",
        hint=f"restore {wanted.secret_file} from a backup, or set BOOKING_SECRET_KEY",
    )


def _wrong_key(found: "list[Unopened]") -> str:
    by_key: dict[str, list[str]] = {}
    for each in found:
        by_key.setdefault(f"sealed with key {each.key_id}" if each.key_id else "sealed with an unknown key", []).append(
            each.plural
        )
    named = "; ".join(f"{', '.join(kinds)} ({key})" for key, kinds in by_key.items())
    return f"BOOKING_SECRET_KEY does not open what this database holds: {named}."


def tightened(wanted: "Settings") -> list[str]:
    """Close the files of an SQLite database to everybody but their owner, and say which ones were open.

    Earlier releases left the mode to the umask. What is in a file that others could read may have been read: the line
    says so, once, since the file is closed then.
    """
    from booking_core import private_files

    if wanted.sqlite_path is None or sys.platform == "win32":
        return []
    return [
        f"{path} could be read by others (mode {mode:04o}); it is 0600 now"
        if is_closed
        else f"{path} can be read by others (mode {mode:04o}), and is not ours to change: chmod 600 {path}"
        for path, mode, is_closed in private_files.tighten(private_files.of_database(wanted.sqlite_path))
    ]


@contextmanager
def installed() -> Iterator[None]:
    """Tells which part is not installed, instead of an ImportError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CliError(
            f"This command needs {error.name}, which is not installed.", hint="pip install 'booking-cli[operator]'"
        ) from error


@contextmanager
def database(cli: Cli) -> Iterator["Database"]:
    """The database of the settings, for one command. It must exist: only `db upgrade`, `serve` and `demo` make one."""
    wanted = settings()
    path = wanted.sqlite_path
    if path is not None and not is_there(path):
        raise CliError(f"There is no database at {path}.", code="no_database", hint=_UPGRADE)
    with installed(), explained():
        from booking_core.db.engine import Database
        from booking_core.settings import masked

        opened = Database(wanted.database_url)
        tell_database(cli, wanted)
        cli.render.detail(f"url: {masked(wanted.database_url)}")
        with contextlib.closing(opened):
            yield opened


def tell_database(cli: Cli, wanted: "Settings") -> None:
    """Tell on stderr which database is opened: its file, or its server and name, never a user or a password."""
    cli.render.note(f"database: {location(wanted)}")


def tell_organization(cli: Cli, organization: "Organization") -> None:
    """Tell on stderr whose data a command works on, once."""
    if cli.organization != organization.slug:
        cli.organization = organization.slug
        cli.render.note(f"organization: {one_line(organization.slug)} ({one_line(organization.name)})")


def location(wanted: "Settings") -> str:
    """Return where the database is, for people."""
    path = wanted.sqlite_path
    if path is not None:
        return f"{one_line(str(path.absolute()))} (SQLite)"
    from sqlalchemy.engine import make_url

    url = make_url(wanted.database_url)
    host = url.host or url.query.get("host") or "local socket"
    port = f":{url.port}" if url.port else ""
    return one_line(f"{url.database or 'default'} on {host}{port} (PostgreSQL)")


@contextmanager
def explained() -> Iterator[None]:
    """Turns a driver's error into a line that says what to do."""
    try:
        yield
    except CliError:
        raise
    except Exception as error:
        explanation = _explanation(_driver_error(error))
        if explanation is None:
            raise
        raise explanation from error


def _driver_error(error: Exception) -> BaseException:
    """What the driver raised, out of what was made of it on the way here."""
    from booking_core.errors import Unavailable

    wrapped = error.__cause__ if isinstance(error, Unavailable) else getattr(error, "orig", None)
    return wrapped or error


def _explanation(error: BaseException) -> CliError | None:
    text = str(error).partition("\n")[0]
    if "no such table" in text or "no such column" in text or getattr(error, "sqlstate", "") in _MISSING_SQLSTATES:
        return CliError("The database is not at this release's schema.", code="not_upgraded", hint=_UPGRADE)
    from booking_core.db.faults import Fault, fault_of

    fault = fault_of(error)
    if fault and fault is not Fault.NOT_OPENED and "not a database" not in text:
        return CliError(f"The database cannot be used, {fault}: {text}", ExitCode.SERVER, code="service_unavailable")
    if type(error).__module__.startswith("psycopg") and type(error).__name__ == _AWAY:
        return CliError(f"The database cannot be reached: {text}", ExitCode.SERVER, code="service_unavailable")
    if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
        return None
    if "locked" in text:
        return CliError("The database is busy; try again.", ExitCode.SERVER, code="service_unavailable")
    return CliError(f"The database cannot be used: {text}.", code="no_database", hint="see BOOKING_DATABASE_URL")
