"""Open the database of an operator command, upgrade it, and translate its errors into messages that say what to do."""

import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from booking_cli.framework.arguments import is_there
from booking_cli.framework.context import Cli
from booking_cli.framework.errors import CliError
from booking_cli.framework.exit_codes import ExitCode
from booking_cli.framework.formatting import one_line
from booking_cli.framework.tables import Columns

if TYPE_CHECKING:
    from booking_core.base.context import Organization
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database, Tx


UPGRADE_HINT = "booking db upgrade"
_RUN_THERE = "live where the service runs: run this there, with its BOOKING_DATABASE_URL"
_CONNECTION_ERROR = "OperationalError"
"""psycopg's error for a server that cannot be reached. Errors of the server have other classes."""
_MISSING_SQLSTATES = ("42P01", "42703")
"""PostgreSQL: undefined table, undefined column."""


def load_settings() -> "Settings":
    """Return the settings of the environment.

    Raises:
        CliError: a setting is invalid.
    """
    from booking_core.base.settings import Settings

    with translate_setting_errors():
        return Settings.from_environment()


@contextmanager
def translate_setting_errors() -> Iterator[None]:
    """Turn the error for an invalid setting into the error of a command.

    Raises:
        CliError: `bad_setting`.
    """
    from booking_core.base.settings import SettingError

    try:
        yield
    except SettingError as error:
        raise CliError(str(error), code="bad_setting") from None


def is_configured() -> bool:
    """Return whether BOOKING_DATABASE_URL is set, or there is a file where a command without it looks for one."""
    path = load_settings().sqlite_path
    return bool(os.environ.get("BOOKING_DATABASE_URL")) or (path is not None and is_there(path))


@contextmanager
def open_database(cli: Cli, *, needs: str | None = None) -> Iterator["Database"]:
    """Yield the database of the settings. It must exist: only `db upgrade`, `serve` and `demo` create one.

    Args:
        needs: the noun of the objects that the command works on, if a new database has none of them.

    Raises:
        CliError: the database does not exist, or a statement failed.
    """
    settings = load_settings()
    path = settings.sqlite_path
    if path is not None and not is_there(path):
        hint = f"{needs} {_RUN_THERE}" if needs else UPGRADE_HINT
        raise CliError(f"There is no database at {path}.", code="no_database", hint=hint)
    with open_audited(cli, settings) as database:
        from booking_cli.operator import audited
        from booking_core.base.database_urls import masked

        audited.log_to_stderr(settings.log_format)
        note_database(cli, settings)
        cli.render.detail(f"url: {masked(settings.database_url)}")
        yield database


@contextmanager
def open_audited(cli: Cli, settings: "Settings") -> Iterator["Database"]:
    """Yield the database of these settings. The change of the command is audited there.

    Raises:
        CliError: a statement failed.
    """
    with translate_errors():
        from booking_cli.operator.audited import AuditedDatabase

        with contextlib.closing(AuditedDatabase(settings.database_url, cli)) as database:
            yield database


def record_change(database: "Database") -> None:
    """Write the entry of the audit trail of a change that another program's transactions have made."""
    database.write(lambda tx: None)


def note_database(cli: Cli, settings: "Settings") -> None:
    """Note on stderr which database is opened: its file, or its server and name, but no user and no password."""
    cli.render.note(f"database: {location(settings)}")


def note_organization(cli: Cli, organization: "Organization") -> None:
    """Note on stderr once which organization a command works on."""
    cli.organization_id = organization.id
    if cli.organization != organization.slug:
        cli.organization = organization.slug
        cli.render.note(f"organization: {one_line(organization.slug)} ({one_line(organization.name)})")


def find_organization(cli: Cli, database: "Database", slug: str) -> "Organization":
    """Return the organization that a command works on, and note it.

    Raises:
        NotFound: there is none.
    """
    from booking_core import organizations

    organization = database.read(lambda tx: organizations.get(tx, slug=slug))
    note_organization(cli, organization)
    return organization


def location(settings: "Settings") -> str:
    """Return the path of an SQLite database, or the name and the server of a PostgreSQL one."""
    path = settings.sqlite_path
    if path is not None:
        return f"{one_line(str(path.absolute()))} (SQLite)"
    from booking_core.base import database_urls

    url = database_urls.parse(settings.database_url)
    servers = database_urls.servers(database_urls.parameters(url))
    schema = database_urls.schema_of(url)
    name = f"{url.database or 'default'}, schema {schema}," if schema else url.database or "default"
    return one_line(f"{name} on {', '.join(servers)} (PostgreSQL)")


def restrict_file_modes(settings: "Settings") -> list[str]:
    """Make the files of an SQLite database readable by their owner only, and return a warning for each that was not.

    Earlier releases left the mode to the umask. Other users may have read such a file.
    """
    from booking_core.base import private_files

    if settings.sqlite_path is None or sys.platform == "win32":
        return []
    return [
        f"{path} could be read by others (mode {mode:04o}); it is 0600 now"
        if is_restricted
        else f"{path} can be read by others (mode {mode:04o}), and its mode cannot be changed: chmod 600 {path}"
        for path, mode, is_restricted in private_files.tighten(private_files.of_database(settings.sqlite_path))
    ]


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the database driver into errors that say what to do.

    Raises:
        CliError: a statement or the connection failed.
    """
    try:
        yield
    except CliError:
        raise
    except Exception as error:
        translated = _translated(_driver_error(error))
        if translated is None:
            raise
        raise translated from error


def _driver_error(error: Exception) -> BaseException:
    """Return the driver's error inside an error of SQLAlchemy or of the core."""
    from booking_core.base.errors import Unavailable

    wrapped = error.__cause__ if isinstance(error, Unavailable) else getattr(error, "orig", None)
    return wrapped or error


def _translated(error: BaseException) -> CliError | None:
    from booking_core.db.driver import DriverFault, EncodingRequired, SessionRequired, fault_of

    if isinstance(error, (EncodingRequired, SessionRequired)):
        return CliError(str(error), code=error.code, hint=error.hint)
    text = str(error).partition("\n")[0]
    if "no such table" in text or "no such column" in text or getattr(error, "sqlstate", "") in _MISSING_SQLSTATES:
        return CliError("The database schema is out of date.", code="not_upgraded", hint=UPGRADE_HINT)
    fault = fault_of(error)
    if fault and fault is not DriverFault.NOT_OPENED and "not a database" not in text:
        return _unavailable(f"The database cannot be used, {fault}: {text}")
    if type(error).__module__.startswith("psycopg") and type(error).__name__ == _CONNECTION_ERROR:
        return _unavailable(f"The database cannot be reached: {text}")
    if type(error) not in (sqlite3.OperationalError, sqlite3.DatabaseError):
        return None
    if "locked" in text:
        return _unavailable("The database is busy; try again.")
    return CliError(f"The database cannot be used: {text}.", code="no_database", hint="check BOOKING_DATABASE_URL")


def _unavailable(message: str) -> CliError:
    return CliError(message, ExitCode.SERVER, code="service_unavailable")


def write_list(
    cli: Cli,
    find: Callable[..., Sequence[Any]],
    present: Callable[..., Any],
    org: str | None,
    limit: int,
    columns: Columns,
) -> None:
    """Write a list of one organization, or of all.

    Args:
        find: takes the transaction, the organization or None for all, and the `limit`; returns the arguments of
            `present` for each item.
        present: returns an item as JSON.
        org: the slug of the organization; None: all.
    """
    with open_database(cli) as database:
        items = database.read(lambda tx: find(tx, organization_filter(tx, org), limit=limit + 1))
    cli.render.limited([present(*item) for item in items], limit, columns)


def organization_filter(tx: "Tx", slug: str | None) -> "Organization | None":
    """Return the organization of an optional --org."""
    from booking_core import organizations

    return organizations.get(tx, slug=slug) if slug else None


def upgrade(settings: "Settings") -> None:
    """Upgrade the database to this release's schema. An SQLite file that does not exist is created.

    Raises:
        CliError: the database cannot be reached or written, or it belongs to a newer release.
    """
    with translate_errors():
        from alembic.util import CommandError

        from booking_core.db import migrate

        try:
            migrate.upgrade(settings.session_url)
        except CommandError as error:
            raise CliError(f"The database cannot be upgraded: {error}", code="not_upgraded") from error


def require_usable(database: "Database") -> None:
    """Check that this release can use the schema of the database: its own, or a newer one with additions only.

    Raises:
        CliError: it cannot.
    """
    from booking_core.db import revisions

    state_of = database.read(revisions.state)
    if state_of in (revisions.SchemaState.CURRENT, revisions.SchemaState.NEWER):
        return
    current = database.read(revisions.current_of)
    if state_of is revisions.SchemaState.TOO_NEW:
        raise CliError(
            f"The database is at revision {current} of a newer release,"
            f" which this one ({revisions.head()}) cannot use.",
            code="newer_schema",
            hint="install the release that upgraded it",
        )
    raise CliError(
        f"The database is at revision {current or 'none'}, and this release needs {revisions.head()}.",
        code="not_upgraded",
        hint=UPGRADE_HINT,
    )


def schema_state(settings: "Settings") -> dict[str, Any]:
    """Return the `revision` of the database, the `head` that this release needs, and whether they agree."""
    from booking_core.db import revisions

    current, head = revision(settings), revisions.head()
    return {"revision": current, "head": head, "is_head": current == head}


def revision(settings: "Settings") -> str | None:
    """Return the revision of the database; None if there is no database, which is not created."""
    if settings.sqlite_path is not None and not is_there(settings.sqlite_path):
        return None
    with translate_errors():
        from booking_core.db import revisions

        return revisions.current(settings.database_url)


def differences(settings: "Settings") -> list[str]:
    """Return the differences between the tables of the database and the tables of this release."""
    with translate_errors():
        from booking_core.db import migrate

        return migrate.differences(settings.database_url)
