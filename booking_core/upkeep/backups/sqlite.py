"""Copy an SQLite database by its online backup API: consistent, while a service writes."""

import sqlite3
from contextlib import closing
from pathlib import Path

from booking_core.base import private_files
from booking_core.base.progress import Progress
from booking_core.base.settings import Settings
from booking_core.base.tokens import SEALED_PREFIX, sealing_key_id
from booking_core.db.tables import OF_INSTALLATION
from booking_core.upkeep.backups.errors import BackupError, Content, damaged
from booking_core.upkeep.secret_keys import KINDS

_PAGES_AT_ONCE = 1024
"""Pages between two calls of `Progress`. Ctrl-C is noticed after a few milliseconds."""
_BUSY_TIMEOUT_S = 10.0


def dump(settings: Settings, draft: Path, advance: Progress) -> None:
    """Copy the live database into an empty file."""
    assert settings.sqlite_path is not None
    with closing(_opened(settings.sqlite_path)) as source, closing(_opened(draft)) as copy:
        # Without a snapshot the copy would begin again after each commit of the service.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        _copy(source, copy, advance)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it


def inspect(settings: Settings, file: Path) -> Content:
    """Check every page of a backup, and return its content.

    Raises:
        BackupError: the file is damaged.
    """
    with file.open("rb"):  # a missing file is reported as such
        uri = f"{file.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if result != "ok":
                raise damaged(file, f"{result}.")
            return _content(connection)
    except sqlite3.DatabaseError as error:
        raise damaged(file, f"{error}.") from error


def load(settings: Settings, file: Path, force: bool, advance: Progress) -> None:
    """Copy the backup over the database, in one transaction."""
    path = settings.sqlite_path
    assert path is not None
    private_files.make_file(path)
    with closing(_opened(file)) as source, closing(_opened(path)) as target:
        if not force and _has_rows(target):
            raise BackupError(f"{path} is not empty.", code="not_empty", hint="pass --force to replace all of its data")
        _copy(source, target, advance)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
    connection.execute("PRAGMA wal_autocheckpoint=0")  # checkpoints are the service's
    return connection


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, advance: Progress) -> None:
    source.backup(target, pages=_PAGES_AT_ONCE, progress=lambda _, remaining, total: advance(total - remaining, total))


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}


def _has_rows(connection: sqlite3.Connection) -> bool:
    names = _tables(connection) - OF_INSTALLATION - {"sqlite_sequence"}
    return any(connection.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone() for name in names)  # noqa: S608


def _content(connection: sqlite3.Connection) -> Content:
    content, names = Content(), _tables(connection)
    if "alembic_version" in names:
        (content.revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone() or (None,)
    for kind in KINDS:
        if kind.table.name in names:
            heads = f"SELECT DISTINCT substr({kind.column}, 1, 16) FROM {kind.table.name}"  # noqa: S608 - names of tables.py
            sealed = connection.execute(f"{heads} WHERE {kind.column} LIKE '{SEALED_PREFIX}%'")
            content.key_ids[kind] = {str(sealing_key_id(head)) for (head,) in sealed}
    return content
