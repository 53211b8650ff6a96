"""`booking db`: the schema, looked at and brought up to date."""

import os
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from support.databases.databases import connect, fill, run
from support.serving.commands import Booking, Environment

from booking_core.db import revisions, tables

pytestmark = pytest.mark.both_databases


@pytest.fixture
def sqlite_file(environment: Environment, tmp_path: Path) -> Path:
    environment("BOOKING_DATABASE_URL", f"sqlite:///{tmp_path / 'tours.db'}")
    return tmp_path / "tours.db"


def test_upgrade_makes_the_database_and_says_what_it_did(sqlite_file: Path, booking: Booking) -> None:
    assert booking("db", "upgrade", "--json").json == {"previous": None, "revision": revisions.head()}
    assert sqlite_file.exists()
    assert booking("db", "upgrade", "--json").json == {"previous": revisions.head(), "revision": revisions.head()}


def test_the_refusal_of_a_database_not_in_utf8_shows_the_command(
    booking: Booking, environment: Environment, postgres_server: str
) -> None:
    """Without a locale, as on a minimal Debian, createdb makes one in SQL_ASCII, whose texts are bytes to clients."""
    locale = "LC_COLLATE 'C' LC_CTYPE 'C'"
    run(postgres_server, f"CREATE DATABASE in_ascii ENCODING SQL_ASCII TEMPLATE template0 {locale}")
    environment("BOOKING_DATABASE_URL", str(make_url(postgres_server).set(database="in_ascii")))
    refused = booking("db", "upgrade", "--json")
    assert refused.error["code"] == "wrong_encoding"
    assert "SQL_ASCII" in refused.error["message"]
    assert "createdb --encoding UTF8 --template template0" in refused.error["hint"]


def test_current_tells_of_an_absent_database_without_making_it(sqlite_file: Path, booking: Booking) -> None:
    shown = booking("db", "current", "--json")
    assert (shown.code, shown.json) == (0, {"revision": None, "head": revisions.head(), "is_head": False})
    assert not sqlite_file.exists()


def test_check_exits_1_until_the_database_is_upgraded(sqlite_file: Path, booking: Booking) -> None:
    assert booking("db", "check").code == 1
    booking("db", "upgrade")
    checked = booking("db", "check", "--json")
    assert (checked.code, checked.json["differences"]) == (0, [])


def test_check_names_what_differs(stored_on_both: Booking, fresh_database_url: str) -> None:
    run(fresh_database_url, "DROP INDEX ix_bookings_pending_expires_at")
    checked = stored_on_both("db", "check", "--json")
    assert checked.code == 1
    assert "ix_bookings_pending_expires_at" in checked.json["differences"][0]


def test_a_migrated_database_is_at_head(stored_on_both: Booking) -> None:
    assert stored_on_both("db", "current", "--json").json["is_head"] is True
    assert stored_on_both("db", "check").code == 0


def test_a_database_of_a_newer_release_is_left_alone(stored_on_both: Booking, fresh_database_url: str) -> None:
    run(fresh_database_url, "UPDATE alembic_version SET version_num = '9999'")
    assert stored_on_both("db", "upgrade", "--json").refusal == (2, "not_upgraded")
    assert stored_on_both("db", "current", "--json").json["revision"] == "9999"


def test_a_file_that_cannot_be_made_exits_2(booking: Booking, environment: Environment, tmp_path: Path) -> None:
    environment("BOOKING_DATABASE_URL", f"sqlite:///{tmp_path}/no/such/folder/tours.db")
    assert booking("db", "upgrade", "--json").refusal == (2, "no_database")


def test_a_database_that_another_process_writes_is_busy(
    stored: Booking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("booking_core.db.sqlite.BUSY_TIMEOUT_S", 0.0)
    with connect(os.environ["BOOKING_DATABASE_URL"]) as other:
        other.execute("BEGIN IMMEDIATE")
        create = ("--slug", "a", "--name", "A", "--timezone", "UTC", "--currency", "EUR")
        refused = stored("orgs", "create", *create, "-o", "json")
    assert refused.refusal == (10, "service_unavailable")
    assert "busy" in refused.error["message"]


def test_what_is_past_its_retention_is_counted_and_then_deleted(
    fjord_on_both: Booking, environment: Environment, fresh_database_url: str
) -> None:
    with connect(fresh_database_url) as connection:
        ((organization,),) = connection.execute("SELECT id FROM organizations").fetchall()
    answer = {"organization_id": str(organization), "fingerprint": "f" * 64, "status": 201, "body_sealed": "s"}
    fill(fresh_database_url, tables.idempotency, [answer | {"key": f"old-{n}", "created_at": 0} for n in range(3)])
    tried = fjord_on_both("db", "purge", "--dry-run", "-o", "json").json
    assert (tried["stored_answers"], tried["total"], tried["dry_run"]) == (3, 3, True)
    done = fjord_on_both("db", "purge", "-o", "json").json
    assert done == tried | {"dry_run": False}
    assert fjord_on_both("db", "purge", "-o", "json").json["total"] == 0
    assert "Nothing was deleted" in fjord_on_both("db", "purge", "--dry-run").err
