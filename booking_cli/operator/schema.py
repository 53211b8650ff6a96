"""Compare the database schema with this release, and upgrade it."""

import contextlib
from typing import TYPE_CHECKING, Any

from booking_cli.framework.errors import CliError
from booking_cli.framework.files import is_there
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.settings import Settings


def upgrade(settings: "Settings") -> None:
    """Upgrade the database to this release's schema. An SQLite file that does not exist is created.

    Raises:
        CliError: the database cannot be reached or written, or it belongs to a newer release.
    """
    with storage.translate_errors():
        from alembic.util import CommandError

        from booking_core.db import migrate

        require_session(settings)
        try:
            migrate.upgrade(settings.session_url)
        except CommandError as error:
            raise CliError(f"The database cannot be upgraded: {error}", code="not_upgraded") from error


def require_session(settings: "Settings") -> None:
    """Refuse a pooler in transaction mode: the lock of upgrades would stay in a session that others get next."""
    if settings.is_sqlite:
        return
    from booking_core.db.engine import Database
    from booking_core.db.pooling import PoolerMode, find_pooling

    with contextlib.closing(Database(settings.session_url)) as database:
        if find_pooling(database).mode is PoolerMode.TRANSACTION:
            raise CliError(
                "The database cannot be upgraded through a pooler in transaction mode.",
                code="pooler",
                hint="set BOOKING_DATABASE_DIRECT_URL to a URL that leads past it",
            )


def require_usable(settings: "Settings") -> None:
    """Check that this release can use the schema of the database: its own, or a newer one with additions only.

    Raises:
        CliError: it cannot, or the database cannot be reached.
    """
    with storage.translate_errors():
        from booking_core.db import migrate

        state_of = migrate.state(settings.database_url)
        if state_of in (migrate.SchemaState.CURRENT, migrate.SchemaState.NEWER):
            return
        found = migrate.current(settings.database_url)
    if state_of is migrate.SchemaState.TOO_NEW:
        raise CliError(
            f"The database is at revision {found} of a newer release, which this one ({migrate.head()}) cannot use.",
            code="newer_schema",
            hint="install the release that upgraded it",
        )
    raise CliError(
        f"The database is at revision {found or 'none'}, and this release needs {migrate.head()}.",
        code="not_upgraded",
        hint=storage.UPGRADE_HINT,
    )


def state(settings: "Settings") -> dict[str, Any]:
    """Return the `revision` of the database, the `head` that this release needs, and whether they agree."""
    from booking_core.db import migrate

    found = revision(settings)
    return {"revision": found, "head": migrate.head(), "is_head": found == migrate.head()}


def revision(settings: "Settings") -> str | None:
    """Return the revision of the database; None if there is no database, which is not created."""
    if settings.sqlite_path is not None and not is_there(settings.sqlite_path):
        return None
    with storage.translate_errors():
        from booking_core.db import migrate

        return migrate.current(settings.database_url)


def differences(settings: "Settings") -> list[str]:
    """Return the differences between the tables of the database and those of this release."""
    with storage.translate_errors():
        from booking_core.db import migrate

        return migrate.differences(settings.database_url)
