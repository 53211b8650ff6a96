"""How an operator's command comes to the database: settings, connection, and errors that say what to do."""

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from booking_cli.context import Cli, CliError
from booking_cli.exit_codes import ExitCode
from booking_cli.files import is_there
from booking_cli.render import one_line

if TYPE_CHECKING:
    from booking_core.caller import Installation, Organization
    from booking_core.db.engine import Database
    from booking_core.settings import Settings

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
    if type(error).__module__.startswith("psycopg") and type(error).__name__ == _AWAY:
        return CliError(f"The database cannot be reached: {text}", ExitCode.SERVER, code="service_unavailable")
    if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
        return None
    if "locked" in text:
        return CliError("The database is busy; try again.", ExitCode.SERVER, code="service_unavailable")
    return CliError(f"The database cannot be used: {text}.", code="no_database", hint="see BOOKING_DATABASE_URL")
