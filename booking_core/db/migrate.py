"""Migrations: a database is upgraded to the schema of this release, beside processes that serve it (decision 0003)."""

import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from booking_core.base import database_urls, private_files
from booking_core.db import revisions
from booking_core.db.driver import SessionRequired
from booking_core.db.engine import Database, Tx
from booking_core.db.tables import metadata

log = logging.getLogger("booking.migrate")

LOCK_TIMEOUT_MS = 1_000
"""A statement of a revision waits so long for a table. Requests queue after it meanwhile; they wait for 3 seconds."""
_ATTEMPTS = 30
_PAUSE_S = 2.0
_LOCK_POLL_S = 0.2
_LOCKED = frozenset({"55P03", "40P01"})
"""SQLSTATE of a lock timeout and of a deadlock."""

_LOCK = 0x626F6F6B
"""The advisory lock of upgrades: two processes that upgrade at once take turns."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", os.pathsep.join(map(str, revisions.folders())))
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
    nothing, since a pooler may lose prepared statements."""
    from booking_core.db.postgres import connect  # psycopg is not installed where only SQLite is used

    connection = connect(url)
    connection.prepare_threshold = None
    if schema := database_urls.schema_of(url):
        # For the session of `booking db upgrade`, which no other work uses.
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


def _note(connection: Connection) -> str | None:
    """Return the comment on alembic_version. SQLite, which one process serves, has none."""
    if connection.dialect.name != "postgresql":
        return None
    return connection.execute(text(f"SELECT {revisions.NOTE}")).scalar()


def _note_oldest_usable(*, ctx: MigrationContext, step: Any, **_: Any) -> None:
    """Note after each revision, in its transaction, which releases can use the schema."""
    connection = ctx.connection
    if connection is None or connection.dialect.name != "postgresql":
        return
    module = step.up_revision.module
    oldest = revisions.oldest_usable(_note(connection)) or module.down_revision
    if not (oldest and getattr(module, "is_additive", False)):
        oldest = module.revision
    connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{revisions.USABLE_FROM}{oldest}'"))


def upgrade(
    url: str,
    revision: str = "head",
    *,
    prepare: Callable[[Tx], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Upgrade the database to this release's schema, or to an earlier revision.

    On PostgreSQL each revision is a transaction. A revision that waits too long for a table is rolled back and tried
    again: the service never waits long for it. On SQLite, which one process serves, all of it is one transaction.
    Without anything to upgrade no lock is taken.

    Args:
        prepare: runs in a separate transaction before anything else is changed.

    Raises:
        SessionRequired: the URL leads through a pooler.
        OperationalError: a table was still locked after all attempts; the revisions before are done.
    """
    with closing(Database(url)) as database:
        require_session(database)
        if prepare:
            database.write(prepare)
        if revision == "head" and database.read(revisions.current_of) == revisions.head():
            return
    if database_urls.parse(url).get_backend_name() == "sqlite":
        with _connection(url, writes=True) as connection, connection.begin():
            _run(connection, revision)
        return
    with _connection(url) as connection, _upgrade_lock(connection):
        _run_with_retries(connection, revision, pause)


def require_session(database: Database) -> None:
    """Check that the database's URL leads to a session that no other client gets, as an upgrade needs.

    Raises:
        SessionRequired: a pooler is between.
    """
    if not (database.is_sqlite or database.has_own_sessions()):
        raise SessionRequired


def _run_with_retries(connection: Connection, revision: str, pause: Callable[[float], None]) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _run(connection, revision)
            return
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


def write_base(url: str) -> None:
    """Write the base revision from the tables, replacing the existing revision. The database is empty.

    Raises:
        ValueError: other revisions follow it.
    """
    existing = revisions.known()
    if existing[1:]:
        raise ValueError(f"revisions {existing[1:]} follow the base revision")
    for path in revisions.files():
        path.unlink()
    _write(url, "The schema of the first release", "0001")


def write_revision(url: str, message: str) -> None:
    """Write a revision with the differences between the tables and that database, numbered after the last."""
    _write(url, message, f"{int(max(revisions.known())) + 1:04}")


def _write(url: str, message: str, number: str) -> None:
    with _connection(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.revision(config, message, autogenerate=True, rev_id=number)
