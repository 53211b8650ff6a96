"""`booking db`, and programs that wait for a database that is unavailable, recovers or is full, for nothing else."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url
from support.databases.databases import connect, fill, run
from support.faults.proxies import Recovering
from support.serving.commands import Booking, Environment, Process
from support.serving.servers import free_port
from support.serving.serving import read_until
from support.world.world import SECRET

from booking_core.base.errors import Unavailable
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
    result = booking("db", "current", "--json")
    assert (result.code, result.json) == (0, {"revision": None, "head": revisions.head(), "is_head": False})
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
    counts = fjord_on_both("db", "purge", "-o", "json").json
    assert counts == tried | {"dry_run": False}
    assert fjord_on_both("db", "purge", "-o", "json").json["total"] == 0
    assert "Nothing was deleted" in fjord_on_both("db", "purge", "--dry-run").err


# Waiting -------------------------------------------------------------------------------------------------------------


on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
SAYS = "waiting for the database"


@pytest.mark.exhaustive(but=("serve-recovers", "worker-is full"))
@on_postgresql
@pytest.mark.parametrize("sqlstate", ["57P03", "53300"], ids=["recovers", "is full"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_process_waits_for_a_server_that_takes_no_connections_yet(
    command: str,
    sqlstate: str,
    stored_on_both: Booking,
    fresh_database_url: str,
    environment: Environment,
    process: Process,
) -> None:
    port = str(free_port())
    options = ("--port", port, "--no-worker") if command == "serve" else ("--health-port", port)
    with Recovering(fresh_database_url, sqlstate) as server:
        environment("BOOKING_DATABASE_URL", server.url)
        running = process(command, *options, stderr=subprocess.STDOUT)
        read_until(running.stdout, SAYS)
        if command == "worker":  # it is alive, and not ready
            waiting = [httpx.get(f"http://127.0.0.1:{port}/{path}").status_code for path in ("healthz", "readyz")]
            assert waiting == [200, 503]
        server.is_over.set()
        lines = read_until(running.stdout, "the worker runs", "startup complete")
        assert SAYS not in "".join(lines)
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        running.terminate()
        running.communicate(timeout=50)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_after_the_wait_the_exit_code_is_that_of_a_server_error(
    command: str, booking: Booking, environment: Environment, postgres_server: str
) -> None:
    refusing = make_url(postgres_server).set(host="127.0.0.1", port=free_port(), query={})
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_DATABASE_URL", refusing.render_as_string(hide_password=False))
    ended = booking(command, "--wait-for-database", "0.1")
    assert ended.code == 10
    assert SAYS in ended.err


@pytest.mark.parametrize(
    ("command", "sqlstate"), [("serve", "28P01"), ("worker", "3D000")], ids=["wrong password", "no such database"]
)
def test_what_is_wrong_for_good_ends_at_once(
    command: str, sqlstate: str, environment: Environment, process: Process, postgres_server: str
) -> None:
    with Recovering(postgres_server, sqlstate) as server:
        environment("BOOKING_SECRET_KEY", SECRET)
        environment("BOOKING_DATABASE_URL", server.url)
        ended = process(command, stderr=subprocess.STDOUT)
        output, _ = ended.communicate(timeout=50)
    assert ended.returncode == 10
    assert SAYS not in output


@pytest.mark.parametrize("argv", [("serve", "--port", "0"), ("worker",)], ids=["serve", "worker"])
def test_a_database_without_the_schema_is_refused_at_once(
    argv: tuple[str, ...], booking: Booking, environment: Environment, postgres_server: str
) -> None:
    environment("BOOKING_SECRET_KEY", SECRET)
    environment("BOOKING_DATABASE_URL", postgres_server)
    ended = booking(*argv, "-o", "json")
    assert (*ended.refusal, ended.error["hint"]) == (2, "not_upgraded", "booking db upgrade")
    assert SAYS not in ended.err


@on_postgresql
def test_a_worker_whose_database_goes_away_after_its_checks_starts_again(
    stored_on_both: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []

    async def serve_forever(*_: object) -> None:
        starts.append("started")
        if len(starts) == 1:
            raise Unavailable

    monkeypatch.setattr("booking_server.worker.process.serve_forever", serve_forever)
    monkeypatch.setattr("booking_core.db.waiting.is_away", lambda url: True)
    assert stored_on_both("worker").code == 0
    assert len(starts) == 2
