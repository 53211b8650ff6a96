"""Create and restore a backup of the database of the settings."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from booking_core.base import private_files
from booking_core.base.settings import Settings
from booking_core.db import migrate, revisions
from booking_core.db.engine import Database
from booking_core.upkeep.backups import postgres, sqlite
from booking_core.upkeep.backups.errors import BackupError, damaged
from booking_core.upkeep.backups.progress import Advance
from booking_core.upkeep.secret_keys import Problem

Refuse = Callable[[Problem], None]
"""Raises an error for a secret key that does not open the values of a backup, or warns."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was written or restored."""

    revision: str
    """The revision of the schema in the file."""
    size: int
    """Bytes of the file."""


def create(settings: Settings, file: Path, refuse: Refuse, *, force: bool = False, advance: Advance) -> Backup:
    """Write a backup of the live database, with mode 0600. The file takes its name when it is whole and checked.

    Args:
        refuse: called if the secret keys do not open what was written.
        force: whether an existing file is replaced.

    Raises:
        BackupError: the file exists, or it cannot be written.
    """
    _require_name(file)
    try:
        if file.exists() and not force:
            raise BackupError(f"{file} exists.", code="file_exists", hint="choose another name, or pass --force")
        with private_files.replacing(file) as draft:
            _store(settings).dump(settings, draft, advance)
            return Backup(_checked(settings, draft, refuse), draft.stat().st_size)
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror}.", code="bad_file") from error


def restore(settings: Settings, file: Path, refuse: Refuse, *, force: bool = False, advance: Advance) -> Backup:
    """Replace the content of the database by that of the backup, in one transaction, and upgrade its schema.

    Args:
        refuse: called before anything is changed, if the secret keys do not open what the file holds.
        force: whether a database with rows is replaced.

    Raises:
        BackupError: the file is damaged or of a newer release; the database is in use, or has rows.
        SessionRequired: the URL leads through a pooler.
    """
    _require_name(file)
    try:
        found = Backup(_checked(settings, file, refuse), file.stat().st_size)
    except OSError as error:
        raise BackupError(f"{file} cannot be read: {error.strerror}.", code="bad_file") from error
    with closing(Database(settings.session_url)) as database:
        migrate.require_session(database)  # before the data is replaced: an older schema is upgraded then
    _store(settings).load(settings, file, force, advance)
    migrate.upgrade(settings.session_url)
    return found


def _require_name(file: Path) -> None:
    if not file.name:
        raise BackupError(f"{file} is a folder.", code="bad_file", hint="name a file")


def _store(settings: Settings) -> "type[sqlite.SqliteStore | postgres.PostgresStore]":
    return sqlite.SqliteStore if settings.is_sqlite else postgres.PostgresStore


def _checked(settings: Settings, file: Path, refuse: Refuse) -> str:
    """Return the revision of a backup that is whole and whose sealed values open."""
    revision, problem = _store(settings).inspect(settings, file)
    if revision is None:
        raise damaged(file, "it has no schema of this service.")
    if not revisions.is_known(revision):
        raise BackupError(
            f"{file} has the schema {revision} of another release; this one knows {revisions.head()} and earlier.",
            code="newer_backup",
            hint="use the release that wrote it, or a newer one",
        )
    if problem:
        refuse(problem)
    return revision
