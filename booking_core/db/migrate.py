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
from sqlalchemy import URL, Connection, Engine, create_engine, event, text

from booking_core import database_urls, private_files
from booking_core.db.tables import metadata

_LOCK = 0x626F6F6B
"""The advisory lock of upgrades, so that two processes that upgrade at once take turns."""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    return config


def _engine(url: str) -> Engine:
    parsed = database_urls.parse(url)
    if parsed.get_backend_name() == "postgresql":
        return create_engine("postgresql+psycopg://", creator=lambda: _postgres_connection(parsed))
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


def _postgres_connection(url: URL) -> Any:
    """Open a connection as the service does, since SQLAlchemy knows fewer spellings of several hosts. It prepares
    nothing, since a pooler may lose what was prepared."""
    from booking_core.db.postgres_hosts import Connector  # psycopg is not installed where only SQLite is used

    connection = Connector(url).connect()
    connection.prepare_threshold = None
    connection.autocommit = False
    return connection


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
