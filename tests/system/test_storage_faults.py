"""A full, read-only or failing disk: 503 for as long as it lasts, one log line for a period, and nothing half done."""

import asyncio
import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url
from support.api.api import Api
from support.api.client import WholeResponses
from support.api.refusals import refused
from support.databases import databases
from support.faults import faults
from support.faults.faults import Breaking
from support.serving import forking
from support.serving.serving import environment
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_core.db.statements import Statement
from booking_server.app import create_app
from booking_server.worker import loops
from booking_server.worker.jobs.periodic import Job
from booking_server.worker.loops import backoff_s
from booking_server.worker.process import Worker

NewUrl = Callable[[str], str]
SQLSTATES = ("53100", "53200", "53400", "58030", "XX001")
"""Disk full, out of memory, a limit of the configuration, input or output failed, data corrupted."""
KINDS = ["sqlite-pages", "sqlite-full-disk", "postgresql-read-only", *(f"postgresql-{state}" for state in SQLSTATES)]


def copied(new_database_url: NewUrl, folder: Path) -> str:
    """Copy a new SQLite database to a folder, and return its URL."""
    path = folder / "booking.db"
    path.write_bytes(Path(str(make_url(new_database_url("sqlite")).database)).read_bytes())
    return f"sqlite:///{path}"


@pytest.fixture(params=KINDS)
def breaking(request: pytest.FixtureRequest, new_database_url: NewUrl, tmp_path: Path) -> Iterator[Breaking]:
    backend, _, kind = request.param.partition("-")
    if kind == "full-disk":
        with faults.small_disk(tmp_path / "disk") as folder:
            url = copied(new_database_url, folder)
            yield Breaking(url, lambda _: faults.fill(folder), lambda _: faults.free(folder))
        return
    url = new_database_url(backend)
    if kind == "pages":
        yield Breaking(url, lambda url: faults.pages(url, "1"), lambda url: faults.pages(url, "1000000"))
    elif kind == "read-only":
        yield Breaking(url, lambda _: faults.read_only(url, "on"), lambda _: faults.read_only(url, "off"))
    else:
        mend = "DROP TRIGGER fail ON bookings"
        yield Breaking(url, lambda _: faults.raising(url, kind), lambda _: databases.run(url, mend))


@contextmanager
def served(url: str) -> Iterator[Api]:
    """Serve the database, with an organization that is read past the service."""
    clock = FixedClock()
    database = Database(url, clock=clock)
    settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
    with closing(Database(url, clock=clock)) as beside:
        world = make_world(beside, clock)
        with WholeResponses(create_app(settings, database=database)) as client:
            yield Api(client, world)


@pytest.fixture
def api(breaking: Breaking) -> Iterator[Api]:
    """The application on that database alone."""
    with served(breaking.url) as api:
        yield api


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the service's lines. The notifier has its own connection, and may log that it was closed."""
    records = (record for record in caplog.records if record.name.startswith("booking"))
    return [record for record in records if record.name != "booking.notifier"]


@pytest.mark.exhaustive(but="sqlite-full-disk")
def test_writes_are_503_during_the_fault_and_book_once_after_it(
    breaking: Breaking, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    departure = api.world.departure(api.world.experience(), seats=500)
    padding = {"note": "x" * 2_000}
    assert api.book(departure).status_code == 201
    database = api.client.app.state.service.database  # type: ignore[attr-defined]
    breaking.breaks(database)
    keys = [f"booked-once-{number}" for number in range(60)]
    answers = [api.book(departure, key=key, **padding) for key in keys]
    failed = [answer for answer in answers if answer.status_code != 201]  # free pages are filled before the disk is
    assert len(failed) > 20
    for answer in failed:
        refused(answer, 503, "service_unavailable")
        assert int(answer.headers["retry-after"]) == 10  # a fault lasts longer than a moment
    (line,) = lines(caplog)
    assert line.exc_info is None
    assert "503" in line.message
    assert api.get("/me").status_code == 200  # what only reads goes on
    breaking.mends(database)
    for key, before in zip(keys, answers, strict=True):
        after = api.book(departure, key=key, **padding)
        assert after.status_code == 201
        assert ("idempotent-replayed" in after.headers) == (before.status_code == 201)
    assert api.world.examine() == []
    page = api.get("/availability", **{"from": "2026-11-20"}).json()["data"]
    assert [departure["seats_available"] for departure in page] == [500 - 61]


def test_a_file_opened_on_a_readonly_disk_is_reopened(new_database_url: NewUrl, tmp_path: Path) -> None:
    with faults.small_disk(tmp_path / "disk") as folder:
        url, clock = copied(new_database_url, folder), FixedClock()
        beside = Database(url, clock=clock)
        world = make_world(beside, clock)
        departure = world.departure(world.experience())
        key = world.key()
        beside.close()
        settings = Settings(database_url=url, secret_key=SECRET, rate_limit=None)
        database = Database(url, clock=clock)
        application = create_app(settings, database=database)
        faults.drop_idle_connections(database)  # a file that is open for writing would keep the disk as it is
        faults.remount(folder, "ro")
        with WholeResponses(application) as client:
            api = Api(client, world, key)
            refused(api.book(departure, key="booked-once"), 503, "service_unavailable")
            faults.remount(folder, "rw")
            assert api.book(departure, key="booked-once").status_code == 201


def test_a_full_disk_of_a_postgresql_server_is_a_503(new_database_url: NewUrl, tmp_path_factory: Any) -> None:
    """With a table space on a small disk of the server's own."""
    url = new_database_url("postgresql")
    with databases.connect(url) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone()
    owner = Path(data).stat()
    with faults.small_disk(Path(data).parent / f"disk-{make_url(url).database}", size="2m") as folder:
        os.chown(folder, owner.st_uid, owner.st_gid)
        name = f"space_{make_url(url).database}"
        databases.run(
            url, f"CREATE TABLESPACE {name} LOCATION '{folder}'", f"ALTER TABLE idempotency SET TABLESPACE {name}"
        )
        try:
            with served(url) as api:
                departure = api.world.departure(api.world.experience(), seats=5_000)
                assert api.book(departure).status_code == 201
                faults.fill(folder)
                keys = [f"booked-once-{number}" for number in range(40)]
                answers = [api.book(departure, key=key, note="x" * 2_000) for key in keys]
                assert {answer.status_code for answer in answers} <= {201, 503}
                assert answers[-1].status_code == 503
                faults.free(folder)
                assert {api.book(departure, key=key, note="x" * 2_000).status_code for key in keys} == {201}
        finally:  # no checkpoint of the server would succeed without the disk
            databases.run(url, "ALTER TABLE idempotency SET TABLESPACE pg_default", f"DROP TABLESPACE {name}")


class Growing(Job):
    """A periodic job that needs space on the disk."""

    name = "growing"

    def __init__(self, database: Database) -> None:
        self.database = database
        self.turns = 0

    async def run_turn(self, _: asyncio.Event) -> int:
        statement = Statement(text("INSERT INTO padding (content) VALUES (:content)"))
        await asyncio.to_thread(self.database.write, lambda tx: tx.run(statement, content="x" * 100_000))
        self.turns += 1
        return 0

    async def close(self) -> None:
        """Do nothing: there is no connection."""


@pytest.mark.exhaustive(but="sqlite")
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_worker_backs_off_during_full_storage_and_continues_afterwards(
    backend: str, new_database_url: NewUrl, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database_url(backend)
    databases.run(url, "CREATE TABLE padding (content TEXT)")
    settings, database, pauses = Settings(database_url=url, secret_key=SECRET), Database(url), [0]

    async def back_off(_: asyncio.Event, failures: int) -> None:
        pauses.append(failures)
        await asyncio.sleep(0)

    monkeypatch.setattr(loops, "back_off", back_off)
    job, sender = Growing(database), AsyncMock()
    worker = Worker(settings, database, settings.installation(), sender, [job])

    def break_or_mend(limit: str, value: str) -> None:
        faults.pages(database, limit) if database.is_sqlite else faults.read_only(url, value)

    async def run() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(stop))
        while max(pauses) < 5:
            await asyncio.sleep(0.001)
        assert job.turns == 0
        await asyncio.to_thread(break_or_mend, "1000000", "off")
        while not job.turns:
            await asyncio.sleep(0.001)
        stop.set()
        await running

    break_or_mend("1", "on")
    asyncio.run(asyncio.wait_for(run(), 60))
    database.close()
    sender.send.assert_not_called()
    logged = [record for record in lines(caplog) if record.levelno >= logging.WARNING]
    assert [record.name for record in logged].count("booking.database") == 1
    assert not [record for record in logged if record.exc_info]
    assert len(logged) <= 3  # where the server also ended connections, the worker and its job log the outage once


def test_the_backoff_grows_with_each_failure_up_to_five_seconds() -> None:
    assert [backoff_s(failures) for failures in range(1, 8)] == [0.5, 1, 2, 4, 5, 5, 5]
    assert backoff_s(100_000) == 5


# The command line ------------------------------------------------------------------------------------------------


def explained(failed: Any) -> Any:
    assert "Traceback" not in failed.stderr
    (line,) = failed.stderr.splitlines()
    return json.loads(line)["error"]


ORGANIZATION = ("--slug", "x", "--name", "X", "--timezone", "UTC", "--currency", "EUR")


def ran(folder: Path, *argv: str, **settings: str) -> "subprocess.CompletedProcess[Any]":
    return forking.run(["booking", *argv], cwd=folder, env=environment(folder, **settings), text=True)


def test_a_command_reports_a_readonly_server_in_one_line(new_database_url: NewUrl, tmp_path: Path) -> None:
    url = new_database_url("postgresql")
    variables = {"BOOKING_DATABASE_URL": url, "BOOKING_SECRET_KEY": SECRET}
    faults.read_only(url, "on")
    failed = ran(tmp_path, "orgs", "create", *ORGANIZATION, "-o", "json", **variables)
    error = explained(failed)
    assert (failed.returncode, error["code"]) == (10, "service_unavailable")
    assert error["message"].startswith("The database cannot be used, the database takes no writes: ")
    assert ran(tmp_path, "orgs", "list", **variables).returncode == 0


def test_a_command_on_a_full_disk_says_so_in_one_line(new_database_url: NewUrl, tmp_path: Path) -> None:
    with faults.small_disk(tmp_path / "disk") as folder:
        variables = {"BOOKING_DATABASE_URL": copied(new_database_url, folder), "BOOKING_SECRET_KEY": SECRET}
        faults.fill(folder)
        for command in (("orgs", "create", *ORGANIZATION), ("db", "upgrade")):
            failed = ran(tmp_path, *command, "-o", "json", **variables)
            if command[0] == "db" and failed.returncode == 0:
                continue  # nothing was to be done
            assert (failed.returncode, explained(failed)["code"]) == (10, "service_unavailable")
        empty = {**variables, "BOOKING_DATABASE_URL": f"sqlite:///{folder / 'new.db'}"}
        for command in (("db", "upgrade"), ("serve", "--port", "0")):
            failed = ran(tmp_path, *command, "-o", "json", **empty)
            assert (failed.returncode, explained(failed)["code"]) == (10, "service_unavailable")
        faults.free(folder)
        assert ran(tmp_path, "orgs", "create", *ORGANIZATION, **variables).returncode == 0


# One line for a period ---------------------------------------------------------------------------------------------


def test_what_goes_on_failing_is_logged_once_for_a_period_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    at = [0.0]
    repeated = RepeatedLog(logging.getLogger("booking.test"), period_s=60, clock=lambda: at[0])
    for _ in range(1_000):
        repeated.note(logging.ERROR, "full", "the disk is full")
    repeated.note(logging.ERROR, "other", "something else")
    at[0] = 59.9
    repeated.note(logging.ERROR, "full", "the disk is full")
    at[0] = 60
    repeated.note(logging.ERROR, "full", "the disk is full")
    assert [record.message for record in lines(caplog)] == [
        "the disk is full",
        "something else",
        "the disk is full (1000 more times since the last line)",
    ]
