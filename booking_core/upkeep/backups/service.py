"""Create and restore a backup of the database of the settings."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from booking_core.base import private_files
from booking_core.base.progress import Progress
from booking_core.base.settings import Settings
from booking_core.db import migrate, revisions
from booking_core.db.engine import Database
from booking_core.upkeep import secret_keys
from booking_core.upkeep.backups import postgres, sqlite
from booking_core.upkeep.backups.errors import BackupError, damaged


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was written or restored."""

    revision: str
    """The revision of the schema in the file."""
    size: int
    """Bytes of the file."""
    warning: str | None
    """Says which values the secret keys do not open, where BOOKING_SECRET_KEY_CHECK asks for a warning."""


def create(settings: Settings, file: Path, *, force: bool = False, advance: Progress) -> Backup:
    """Write a backup of the live database, with mode 0600. The file takes its name when it is whole and checked.

    Args:
        force: whether an existing file is replaced.

    Raises:
        BackupError: the file exists, or it cannot be written; the secret keys do not open the backup.
    """
    try:
        if file.exists() and not force:
            raise BackupError(f"{file} exists.", code="file_exists", hint="choose another name, or pass --force")
        with private_files.replacing(file) as draft:
            (sqlite if settings.is_sqlite else postgres).dump(settings, draft, advance)
            return _checked(settings, draft)
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror}.", code="bad_file") from error


def restore(settings: Settings, file: Path, *, force: bool = False, advance: Progress) -> Backup:
    """Replace the content of the database with the backup, in one transaction, and upgrade its schema.

    Args:
        force: whether a database with rows is replaced.

    Raises:
        BackupError: the file is damaged, of a newer release, or sealed with another secret key; the database is in
            use, or has rows.
        SessionRequired: the URL leads through a pooler.
    """
    try:
        backup = _checked(settings, file)
    except OSError as error:
        raise BackupError(f"{file} cannot be read: {error.strerror}.", code="bad_file") from error
    with closing(Database(settings.session_url)) as database:
        migrate.require_session(database)  # before the data is replaced: an older schema is upgraded then
    (sqlite if settings.is_sqlite else postgres).load(settings, file, force, advance)
    migrate.upgrade(settings.session_url)
    return backup


def _checked(settings: Settings, file: Path) -> Backup:
    """Return the backup in a file that is complete and was sealed with the secret keys of the settings."""
    content = (sqlite if settings.is_sqlite else postgres).inspect(settings, file)
    if content.revision is None:
        raise damaged(file, "it has no schema of this service.")
    if not revisions.is_known(content.revision):
        raise BackupError(
            f"{file} has the schema {content.revision} of another release; this one knows {revisions.head()} and"
            " earlier.",
            code="newer_backup",
            hint="use the release that wrote it, or a newer one",
        )
    problem = secret_keys.find_problem_of_key_ids(settings, content.key_ids)
    if problem and problem.is_refused:
        raise BackupError(problem.message, code="wrong_secret_key", hint=problem.hint)
    return Backup(content.revision, file.stat().st_size, problem.message if problem else None)
