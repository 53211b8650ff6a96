"""Migrations: a database is upgraded to the schema of this release in one transaction, all of it or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url

from booking_core import private_files
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement
from booking_core.db.tables import metadata

_LOCK = 0x626F6F6B
"""The advisory lock of upgrades, so that two processes that upgrade at once take turns."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return create_engine(parsed.set(drivername="postgresql+psycopg"))
    private_files.make_file(Path(parsed.database or ""))
    engine = create_engine(parsed)

    # The driver would begin a transaction before INSERT only; a migration is one transaction, so it begins before DDL.
    @event.listens_for(engine, "connect")
    def manual(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    engine = _engine(url)
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            yield connection
    finally:
        engine.dispose()


def head() -> str:
    """Return the revision that this release needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


_REVISION = Statement(text("SELECT version_num FROM alembic_version"))


def revision_of(tx: Tx) -> str | None:
    """Return the revision of a database that was upgraded, read on a connection that is open."""
    row = tx.first(_REVISION)
    return str(row[0]) if row else None


def current(url: str) -> str | None:
    """Return the database's revision; none when it is empty."""
    with _connection(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(url: str, revision: str = "head") -> None:
    """Upgrade the database to this release's schema, or to that of an earlier revision."""
    with _connection(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
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
