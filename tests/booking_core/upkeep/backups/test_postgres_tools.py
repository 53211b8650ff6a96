"""The programs of PostgreSQL are found by their version, and a missing one is named with its package."""

from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from booking_core.upkeep.backups import BackupError, postgres_tools

Install = Callable[[int], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs programs of a version, in a folder that is not on the PATH."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(postgres_tools, "_FOLDERS", ())

    def make(major: int) -> Path:
        folder = tmp_path / str(major)
        folder.mkdir()
        for program in postgres_tools.PROGRAMS:
            (folder / program).write_text(f"#!/bin/sh\necho '{program} (PostgreSQL) {major}.4 (Debian)'\n")
            (folder / program).chmod(0o755)
        return folder

    return make


def test_the_version_nearest_to_the_server_is_taken(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{install(15)}:{install(18)}:{install(16)}")
    assert postgres_tools.find(16, None).major == 16
    assert postgres_tools.find(17, None).major == 18


def test_programs_beside_the_server_are_found(install: Install) -> None:
    assert postgres_tools.find(16, install(16)).major == 16


def test_an_older_version_is_refused_with_the_package_to_install(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(install(15)))
    with pytest.raises(BackupError, match="pg_dump 15 cannot back up PostgreSQL 16") as refused:
        postgres_tools.find(16, None)
    assert "postgresql-client-16" in str(refused.value.hint)


def test_missing_programs_are_named_with_the_package_to_install(install: Install, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="pg_dump, pg_restore and psql were not found") as refused:
        postgres_tools.find(16, tmp_path)
    assert "postgresql-client-16" in str(refused.value.hint)


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hunter2@db:5433/booking", "postgresql://ada@db:5433/booking?password=hunter2"]
)
def test_the_password_is_an_environment_variable_and_no_argument(url: str) -> None:
    shown, environment = postgres_tools.connection(url)
    assert conninfo_to_dict(shown) == {"user": "ada", "host": "db", "port": "5433", "dbname": "booking"}
    assert environment["PGPASSWORD"] == "hunter2"
