"""The revisions of the schema that this release has, compared with the revision of a database (decision 0003).

Every process does so when it starts. It reads the names of the migrations' files: Alembic, which would import them all,
is for upgrades.
"""

from contextlib import closing
from enum import StrEnum
from pathlib import Path

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Dialect

from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement

USABLE_FROM = "usable by releases from revision "
"""The beginning of the comment on alembic_version, which an older process reads before it starts."""
_VERSIONS = Path(__file__).parent / "migrations" / "versions"


def folders() -> list[Path]:
    """Return the folders of the migrations' files."""
    return [_VERSIONS]


def known() -> list[str]:
    """Return the revisions of this release, the first one first."""
    return [path.name.partition("_")[0] for path in files()]


def files() -> list[Path]:
    """Return the migrations' files, the first one first."""
    return sorted((path for folder in folders() for path in folder.glob("[0-9]*.py")), key=lambda path: path.name)


def head() -> str:
    """Return the revision that this release needs."""
    return known()[-1]


def is_known(revision: str) -> bool:
    """Return whether this release has the revision: an earlier one, or its own."""
    return revision in known()


class SchemaState(StrEnum):
    """The relation of a database's schema to this release."""

    CURRENT = "current"
    OLDER = "older"
    """It has to be upgraded."""
    NEWER = "newer"
    """A newer release has upgraded it, by additive revisions only: this release can use it."""
    TOO_NEW = "too_new"
    """A newer release has upgraded it, and this release cannot use it."""


def current(url: str) -> str | None:
    """Return the database's revision; None when it is empty. No lock is taken."""
    with closing(Database(url)) as database:
        return database.read(current_of)


def current_of(tx: Tx) -> str | None:
    """Return the same, on a connection that is open."""
    row = tx.first(_REVISION_AND_NOTE) if tx.first(_HAS_REVISION) else None
    return row[0] if row else None


def state(tx: Tx) -> SchemaState:
    """Return the relation of a database, which may be empty, to this release. No lock is taken."""
    return state_of(tx, head()) if tx.first(_HAS_REVISION) else SchemaState.OLDER


def state_of(tx: Tx, head: str) -> SchemaState:
    """Return the same for a database that was upgraded."""
    row = tx.first(_REVISION_AND_NOTE)
    if row is None:
        return SchemaState.OLDER
    revision, note = row
    if revision == head:
        return SchemaState.CURRENT
    if is_known(revision):
        return SchemaState.OLDER
    oldest = oldest_usable(note)
    return SchemaState.NEWER if oldest is not None and oldest <= head else SchemaState.TOO_NEW


def oldest_usable(note: str | None) -> str | None:
    """Return the oldest revision whose release can use the schema, from the comment on alembic_version."""
    return note.removeprefix(USABLE_FROM) if note and note.startswith(USABLE_FROM) else None


NOTE = "obj_description(to_regclass('alembic_version'), 'pg_class')"
"""The comment on alembic_version, in PostgreSQL. SQLite, which one process serves, has none."""


def _revision_and_note(dialect: Dialect) -> TextClause:
    return text(f"SELECT version_num, {'NULL' if dialect.name == 'sqlite' else NOTE} FROM alembic_version")  # noqa: S608


def _has_revision(dialect: Dialect) -> TextClause:
    if dialect.name == "sqlite":
        return text("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")
    return text("SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL")


_REVISION_AND_NOTE = Statement(_revision_and_note)
_HAS_REVISION = Statement(_has_revision)
