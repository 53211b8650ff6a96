"""Copy an SQLite database by its online backup API: consistent, beside a service that writes."""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from booking_core.base import private_files
from booking_core.base.settings import Settings
from booking_core.db import migrate, revisions
from booking_core.db.engine import Database
from booking_core.db.tables import OF_INSTALLATION
from booking_core.upkeep.backups.errors import BackupError, damaged
from booking_core.upkeep.backups.progress import Advance
from booking_core.upkeep.secret_keys import Problem, find_problem

_PAGES_AT_ONCE = 1024
"""Pages between two calls of `advance`, so that Ctrl-C is noticed after a few milliseconds."""
_BUSY_TIMEOUT_S = 10.0


class SqliteStore:
    """Backups as SQLite databases."""

    @staticmethod
    def dump(settings: Settings, draft: Path, advance: Advance) -> None:
        """Copy the live database into an empty file."""
        with closing(_opened(_path_of(settings))) as source, closing(_opened(draft)) as copy:
            # Without a snapshot of its own the copy would begin again after each commit of the service.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            _copy(source, copy, advance)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it

    @staticmethod
    def inspect(settings: Settings, file: Path) -> tuple[str | None, Problem | None]:
        """Return the revision of a backup, and a problem of the secret keys with its values.

        Raises:
            BackupError: the file is damaged.
        """
        with _private_copy(settings, file) as copy:
            _check_pages(file, copy)
            url = f"sqlite:///{copy}"
            revision = revisions.current(url)
            if revision is None or not revisions.is_known(revision):
                return revision, None
            migrate.upgrade(url)  # the statements of this release read it
            with closing(Database(url)) as database:
                return revision, find_problem(settings, database)

    @staticmethod
    def load(settings: Settings, file: Path, force: bool, advance: Advance) -> None:
        """Copy the backup over the database, in one transaction."""
        path = _path_of(settings)
        is_new = not path.exists()
        private_files.make_file(path)
        try:
            with closing(_opened(file)) as source, closing(_opened(path)) as target:
                if not force and _has_rows(target):
                    raise BackupError(
                        f"{path} is not empty.", code="not_empty", hint="pass --force to replace all of its data"
                    )
                _copy(source, target, advance)
        except BaseException:
            if is_new:
                for each in private_files.of_content(path):
                    each.unlink(missing_ok=True)
            raise


def _path_of(settings: Settings) -> Path:
    path = settings.sqlite_path
    assert path is not None
    return path


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
    with contextlib.suppress(sqlite3.DatabaseError):  # a file that is no database is reported when it is read
        connection.execute("PRAGMA wal_autocheckpoint=0")  # checkpoints are the service's
    return connection


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, advance: Advance) -> None:
    def report(_status: int, remaining: int, total: int) -> None:
        advance(total - remaining, total)

    source.backup(target, pages=_PAGES_AT_ONCE, progress=report)


@contextmanager
def _private_copy(settings: Settings, file: Path) -> Iterator[Path]:
    """Yield a copy of the backup, in a folder beside the database, to be opened and upgraded."""
    if file.with_name(file.name + "-wal").exists():
        raise damaged(file, "a log is beside it, so it is a database that is in use.")
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=_path_of(settings).absolute().parent) as folder:
        copy = Path(folder) / "copy.db"
        private_files.make_file(copy)
        shutil.copyfile(file, copy)
        yield copy


def _check_pages(file: Path, copy: Path) -> None:
    """Check that every page is there and readable."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        raise damaged(file, f"{error}.") from error
    if found != "ok":
        raise damaged(file, f"{found}.")


def _has_rows(connection: sqlite3.Connection) -> bool:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    names = {name for (name,) in connection.execute(query).fetchall()} - OF_INSTALLATION - {"sqlite_sequence"}
    return any(connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in names)  # noqa: S608
