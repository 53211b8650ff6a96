"""Migrations: a database is upgraded to the schema of this release, beside processes that serve it (decision 0045)."""

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, text
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from booking_core import database_urls, private_files
from booking_core.db.backfills import Backfill
from booking_core.db.engine import Database, Tx
from booking_core.db.pooling import PoolerMode, find_pooling
from booking_core.db.statements import Statement
from booking_core.db.tables import metadata

log = logging.getLogger("booking.migrate")

LOCK_TIMEOUT_MS = 1_000
"""A statement of a revision waits so long for a table. Requests queue behind it meanwhile; they wait for 3 seconds."""
_ATTEMPTS = 30
_PAUSE_S = 2.0
_LOCK_POLL_S = 0.2
_LOCKED = frozenset({"55P03", "40P01"})
"""SQLSTATE of a lock timeout and of a deadlock."""
_USABLE_FROM = "usable by releases from revision "
"""The beginning of the comment on alembic_version, which an older process reads before it starts."""

_LOCK = 0x626F6F6B
"""The advisory lock of upgrades, so that two processes that upgrade at once take turns."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str, *, writes: bool) -> Engine:
    parsed = database_urls.parse(url)
    if parsed.get_backend_name() == "postgresql":
        return create_engine("postgresql+psycopg://", creator=lambda: _postgres_connection(parsed), poolclass=NullPool)
    private_files.make_file(Path(parsed.database or ""))
    engine = create_engine(parsed)

    # The driver would begin a transaction before INSERT only; a migration is one transaction, so it begins before DDL.
    @event.listens_for(engine, "connect")
    def manual(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    if writes:

        @event.listens_for(engine, "begin")
        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgres_connection(url: URL) -> Any:
    """Open a connection as the service does, since SQLAlchemy knows fewer spellings of several hosts. It prepares
    nothing, since a pooler may lose what was prepared."""
    from booking_core.db.postgres_hosts import Connector  # psycopg is not installed where only SQLite is used

    connection = Connector(url).connect()
    connection.prepare_threshold = None
    if schema := database_urls.schema_of(url):
        # For the session, which `booking db upgrade` has of its own. Reads go through `state_of`, whatever is between.
        connection.execute(f"SET search_path = {schema}")
    connection.autocommit = False
    return connection


@contextmanager
def _connection(url: str, *, writes: bool = False) -> Iterator[Connection]:
    """Open a connection.

    Args:
        writes: whether a transaction takes SQLite's lock when it begins; on PostgreSQL nothing is locked.
    """
    engine = _engine(url, writes=writes)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _upgrade_lock(connection: Connection) -> Iterator[None]:
    """Hold the lock of upgrades, and limit waits for the locks of tables.

    The lock is tried again and again: a waiting statement would keep a snapshot, and CREATE INDEX CONCURRENTLY in the
    process that has the lock would wait for it.
    """
    while not connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _LOCK}).scalar():
        connection.rollback()
        time.sleep(_LOCK_POLL_S)
    connection.execute(text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))
    connection.commit()
    try:
        yield
    finally:
        if not connection.closed and not connection.invalidated:
            connection.rollback()
            connection.execute(text("RESET lock_timeout"))
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            connection.commit()


def head() -> str:
    """Return the revision that this release needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def is_known(revision: str) -> bool:
    """Return whether this release has the revision: an earlier one, or its own."""
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


@cache
def backfills() -> dict[str, Backfill]:
    """Return the back-fills that a revision of this release has begun and none has ended, by that revision."""
    modules = [script.module for script in ScriptDirectory.from_config(_config()).walk_revisions()]
    ended = {module.completes for module in modules if hasattr(module, "completes")}
    begun = {module.revision: module.backfill for module in reversed(modules) if hasattr(module, "backfill")}
    return {revision: backfill for revision, backfill in begun.items() if revision not in ended}


def current(url: str) -> str | None:
    """Return the database's revision; none when it is empty. No lock is taken."""
    with _connection(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


class SchemaState(StrEnum):
    """The relation of a database's schema to this release."""

    CURRENT = "current"
    OLDER = "older"
    """It has to be upgraded."""
    NEWER = "newer"
    """A newer release has upgraded it, by additive revisions only: this release can use it."""
    TOO_NEW = "too_new"
    """A newer release has upgraded it, and this release cannot use it."""


def state(url: str) -> SchemaState:
    """Return the relation of the database's schema to this release. No lock is taken."""
    if database_urls.schema_of(database_urls.parse(url)):
        return _state_of_schema(url)
    with _connection(url) as connection:
        revision = MigrationContext.configure(connection).get_current_revision()
        return _state(revision, _note(connection), head())


def _state_of_schema(url: str) -> SchemaState:
    """Return the same for one of several schemas, also through a pooler in transaction mode."""
    with contextlib.closing(Database(url)) as database, database.reading() as tx:
        is_empty = tx.all(_HAS_REVISION) == [(None,)]
        return SchemaState.OLDER if is_empty else state_of(tx, head())


def state_of(tx: Tx, head: str) -> SchemaState:
    """Return the same for a database that was upgraded, on a connection that is open."""
    row = tx.first(_REVISION_AND_NOTE)
    return _state(row[0], row[1], head) if row else SchemaState.OLDER


def _state(revision: str | None, note: str | None, head: str) -> SchemaState:
    if revision == head:
        return SchemaState.CURRENT
    if revision is None or is_known(revision):
        return SchemaState.OLDER
    oldest = _oldest_usable(note)
    return SchemaState.NEWER if oldest is not None and oldest <= head else SchemaState.TOO_NEW


_NOTE = "obj_description(to_regclass('alembic_version'), 'pg_class')"


def _revision_and_note(dialect: Dialect) -> TextClause:
    return text(f"SELECT version_num, {'NULL' if dialect.name == 'sqlite' else _NOTE} FROM alembic_version")  # noqa: S608


_REVISION_AND_NOTE = Statement(_revision_and_note)
_HAS_REVISION = Statement(text("SELECT to_regclass('alembic_version')"))


def _note(connection: Connection) -> str | None:
    """Return the comment on alembic_version. SQLite, which one process serves, has none."""
    if connection.dialect.name != "postgresql":
        return None
    return connection.execute(text(f"SELECT {_NOTE}")).scalar()


def _oldest_usable(note: str | None) -> str | None:
    """Return the oldest revision whose release can use the schema."""
    return note.removeprefix(_USABLE_FROM) if note and note.startswith(_USABLE_FROM) else None


def _note_oldest_usable(*, ctx: MigrationContext, step: Any, **_: Any) -> None:
    """Note after each revision, in its transaction, which releases can use the schema."""
    connection = ctx.connection
    if connection is None or connection.dialect.name != "postgresql":
        return
    module = step.up_revision.module
    before = _oldest_usable(_note(connection)) or module.down_revision
    oldest = before if getattr(module, "is_additive", False) and before else module.revision
    connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_USABLE_FROM}{oldest}'"))


class SessionRequired(Exception):
    """A schema cannot be upgraded through a pooler in transaction mode: the lock of upgrades would stay in a session
    that others get next."""

    code = "pooler"
    hint = "set BOOKING_DATABASE_DIRECT_URL to a URL that leads past it"

    def __init__(self) -> None:
        super().__init__("The database cannot be upgraded through a pooler in transaction mode.")


def require_session(url: str) -> None:
    """Check that the URL gives a client a session of its own, as an upgrade needs.

    Raises:
        SessionRequired: it does not.
    """
    if database_urls.parse(url).get_backend_name() == "sqlite":
        return
    with closing(Database(url)) as database:
        if find_pooling(database).mode is PoolerMode.TRANSACTION:
            raise SessionRequired


def upgrade(url: str, revision: str = "head", *, pause: Callable[[float], None] = time.sleep) -> None:
    """Upgrade the database to this release's schema, or to that of an earlier revision.

    On PostgreSQL each revision is a transaction. One that waits too long for a table is rolled back and tried again, so
    that the service never waits behind it for long. On SQLite, which one process serves, all of it is one transaction.
    Without anything to upgrade no lock is taken.

    Raises:
        SessionRequired: the URL leads through a pooler in transaction mode.
        OperationalError: a table was still locked after all attempts; the revisions before are done.
    """
    require_session(url)
    if revision == "head" and current(url) == head():
        return
    if database_urls.parse(url).get_backend_name() == "sqlite":
        with _connection(url, writes=True) as connection, connection.begin():
            _run(connection, revision)
        return
    with _connection(url) as connection, _upgrade_lock(connection):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _run(connection, revision)
                break
            except OperationalError as error:
                connection.rollback()
                if getattr(error.orig, "sqlstate", None) not in _LOCKED or attempt == _ATTEMPTS:
                    raise
                log.warning("A table is in use: attempt %d of %d of the upgrade follows", attempt + 1, _ATTEMPTS)
                pause(_PAUSE_S * random.uniform(0.5, 1.5))


def _run(connection: Connection, revision: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    config.attributes["on_version_apply"] = [_note_oldest_usable]
    command.upgrade(config, revision)


def differences(url: str) -> list[str]:
    """Return the differences between the database's tables and this release's; empty when they are the same."""
    with _connection(url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": False})
        return [repr(difference) for difference in compare_metadata(context, metadata)]


def write_revision(url: str, message: str) -> None:
    """Write a migration file with the differences between the tables and that database, numbered after the last."""
    revisions = [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]
    with _connection(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.revision(config, message, autogenerate=True, rev_id=f"{len(revisions) + 1:04}")
