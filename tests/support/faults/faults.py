"""Databases on a full, read-only or failing disk: a real file system if this machine can mount one."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from support.databases import databases

FILLER = "filler"


@dataclass(frozen=True)
class Breaking:
    """A database that a test can break and repair while it is in use."""

    url: str
    breaks: Callable[[Any], None]
    """Called with the `Database` that the fault affects."""
    mends: Callable[[Any], None]


@contextmanager
def small_disk(folder: Path, *, size: str = "6m") -> Iterator[Path]:
    """Mount a file system of this size. Skip the test if this machine cannot mount one."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("only root can mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Use up all free space."""
    with (folder / FILLER).open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def free(folder: Path) -> None:
    (folder / FILLER).unlink()


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def drop_idle_connections(database: Any) -> None:
    """Close the idle connections of the database. It opens new ones when it is used again."""
    for pool in database.pools:
        pool.close()
        pool._closed = False


def pages(database: Any, limit: str) -> None:
    """Limit the number of pages of the file, for the connection that writes."""
    with database._writers.connection() as connection:
        connection._raw.execute(f"PRAGMA max_page_count = {limit}").fetchall()


def raising(url: str, sqlstate: str) -> None:
    """Make every new booking fail with an error of the server."""
    databases.run(
        url,
        f"CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{sqlstate}'; END $$",
        "CREATE TRIGGER fail BEFORE INSERT ON bookings FOR EACH ROW EXECUTE FUNCTION fail()",
    )


def read_only(url: str, value: str) -> None:
    """Switch read-only mode on or off for new connections, and close the present ones.

    Waits until they are closed: a request whose read is interrupted answers 503.
    """
    name = make_url(url).database
    databases.run(
        url,
        "SET default_transaction_read_only = off",
        f"ALTER DATABASE {name} SET default_transaction_read_only = {value}",
    )
    databases.run(
        url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
