"""Compare the database schema with this release, and upgrade it."""

from typing import TYPE_CHECKING, Any

from booking_cli.framework.arguments import is_there
from booking_cli.framework.errors import CliError
from booking_cli.operator import storage

if TYPE_CHECKING:
    from booking_core.base.settings import Settings
    from booking_core.db.engine import Database


def upgrade(settings: "Settings") -> None:
    """Upgrade the database to this release's schema. An SQLite file that does not exist is created.

    Raises:
        CliError: the database cannot be reached or written, or it belongs to a newer release.
    """
    with storage.translate_errors():
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
    found = database.read(revisions.current_of)
    if state_of is revisions.SchemaState.TOO_NEW:
        raise CliError(
            f"The database is at revision {found} of a newer release, which this one ({revisions.head()}) cannot use.",
            code="newer_schema",
            hint="install the release that upgraded it",
        )
    raise CliError(
        f"The database is at revision {found or 'none'}, and this release needs {revisions.head()}.",
        code="not_upgraded",
        hint=storage.UPGRADE_HINT,
    )


def state(settings: "Settings") -> dict[str, Any]:
    """Return the `revision` of the database, the `head` that this release needs, and whether they agree."""
    from booking_core.db import revisions

    found, head = revision(settings), revisions.head()
    return {"revision": found, "head": head, "is_head": found == head}


def revision(settings: "Settings") -> str | None:
    """Return the revision of the database; None if there is no database, which is not created."""
    if settings.sqlite_path is not None and not is_there(settings.sqlite_path):
        return None
    with storage.translate_errors():
        from booking_core.db import revisions

        return revisions.current(settings.database_url)


def differences(settings: "Settings") -> list[str]:
    """Return the differences between the tables of the database and those of this release."""
    with storage.translate_errors():
        from booking_core.db import migrate

        return migrate.differences(settings.database_url)
