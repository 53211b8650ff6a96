"""Compare the database schema with this release, and upgrade it."""

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

        try:
            migrate.upgrade(settings.database_url)
        except CommandError as error:
            raise CliError(f"The database cannot be upgraded: {error}", code="not_upgraded") from error


def require_current(settings: "Settings") -> None:
    """Check that the database has this release's schema.

    Raises:
        CliError: it has another one, or it cannot be reached.
    """
    found = state(settings)
    if not found["is_head"]:
        raise CliError(
            f"The database is at revision {found['revision'] or 'none'}, and this release needs {found['head']}.",
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
