"""`booking backup` and `booking restore`: the whole database in one file, checked before and after.

BOOKING_TEST_RESTORES is the number of backups under load that are taken and restored.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.databases import databases
from support.receivers.receivers import wait_until
from support.serving.commands import Booking, Environment
from support.world.creating import create, created
from support.world.sealed import Sealed
from support.world.world import NEWER_SECRET, SECRET, World

from booking_cli.operator.audited import operator
from booking_cli.operator.service import lock_sqlite
from booking_core.base.tokens import SecretKeys, new_id
from booking_core.db import revisions
from booking_core.upkeep.backups import postgres, sqlite

pytestmark = pytest.mark.both_databases


RESTORES = int(os.environ.get("BOOKING_TEST_RESTORES", "1"))
SOLD_PER_SECOND = 50


@pytest.fixture
def sold(world: World, environment: Environment, tmp_path: Path) -> World:
    """Return an organization with a departure, a booking and a value of every sealed kind."""
    environment("BOOKING_MAIL_DIR", str(tmp_path / "mails"))
    Sealed(world).fill()
    return world


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "of-today.backup"


@pytest.fixture
def empty(environment: Environment, backend: str, new_database_url: Callable[[str], str]) -> Callable[[], str]:
    """Return a function that makes an empty database, which the commands use from then on."""

    def make() -> str:
        url = new_database_url(backend)
        environment("BOOKING_DATABASE_URL", url)
        return url

    return make


def count(url: str, table: str = "bookings") -> int:
    with databases.connect(url) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_a_backup_restores_into_an_empty_database_and_the_doctor_finds_nothing(
    sold: World, booking: Booking, file: Path, empty: Callable[[], str]
) -> None:
    written = booking("backup", str(file), "--json")
    assert written.json == {
        "file": str(file),
        "bytes": file.stat().st_size,
        "revision": revisions.head(),
        "secret_key_id": SecretKeys(SECRET).first_id,
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in file.parent.glob(".*")] == []
    url = empty()
    restored = booking("restore", str(file), "--json")
    assert (restored.code, restored.json["findings"]) == (0, [])
    assert restored.json["database_revision"] == revisions.head()
    assert (count(url), count(url, "webhook_secrets")) == (1, 1)
    assert booking("doctor").code == 0
    entries = booking("audit", "list", "--json").json["data"]
    assert [(entry["action"], entry["actor"]) for entry in entries] == [("restore", operator())]


def test_an_existing_file_is_replaced_only_by_force(sold: World, booking: Booking, file: Path) -> None:
    file.write_text("a former backup")
    assert booking("backup", str(file), "--json").refusal == (2, "file_exists")
    assert file.read_text() == "a former backup"
    assert booking("backup", str(file), "--force").code == 0
    assert file.stat().st_size > 10_000


@contextmanager
def selling(world: World) -> Iterator[list[str]]:
    """Sell seats in a thread until the block ends, and yield the idempotency keys of the bookings so far."""
    departure, sold, is_over = world.departure(world.experience(), seats=50_000), [], threading.Event()

    def sell() -> None:
        while not is_over.is_set() and len(sold) < 2_000 * RESTORES:
            key = new_id()
            created(world.database, [create(world, departure, key)])
            sold.append(key)
            is_over.wait(1 / SOLD_PER_SECOND)  # the load has a rate: the databases stay small

    thread = threading.Thread(target=sell, daemon=True)
    thread.start()
    try:
        yield sold
    finally:
        is_over.set()
        thread.join()


@pytest.mark.one_database
def test_a_backup_under_load_restores_every_earlier_booking(
    sold: World,
    booking: Booking,
    file: Path,
    empty: Callable[[], str],
    environment: Environment,
    fresh_database_url: str,
) -> None:
    """Seats are sold on while a backup is restored into another database."""
    with selling(sold) as keys:
        for _ in range(RESTORES):
            sold_before = len(keys)
            wait_until(lambda more=sold_before: len(keys) > more + 20, "seats are sold")
            environment("BOOKING_DATABASE_URL", fresh_database_url)
            before = list(keys)
            assert booking("backup", str(file), "--force").code == 0
            url = empty()
            restored = booking("restore", str(file), "--json")
            assert (restored.code, restored.json["findings"]) == (0, [])
            with databases.connect(url) as connection:
                restored = {key for (key,) in connection.execute("SELECT key FROM idempotency").fetchall()}
            assert set(before) <= restored
            if databases.is_sqlite(url):
                Path(url.removeprefix("sqlite:///")).unlink()


def sell_one_more(sold: World) -> None:
    created(sold.database, [create(sold, sold.departure(sold.experience(), seats=5), new_id())])
    sold.database.close()


@pytest.mark.one_database
def test_a_database_with_rows_is_replaced_only_by_force(
    sold: World, fresh_database_url: str, booking: Booking, file: Path
) -> None:
    assert booking("backup", str(file)).code == 0
    sell_one_more(sold)
    assert booking("restore", str(file), "--json").refusal == (7, "not_empty")
    assert count(fresh_database_url) == 2
    assert booking("restore", str(file), "--force").code == 0
    assert count(fresh_database_url) == 1


def test_a_database_in_use_is_not_replaced(stored_on_both: Booking, file: Path, fresh_database_url: str) -> None:
    assert stored_on_both("backup", str(file)).code == 0
    if databases.is_sqlite(fresh_database_url):
        with lock_sqlite(Path(fresh_database_url.removeprefix("sqlite:///"))):
            refused = stored_on_both("restore", str(file), "--json")
        assert refused.error["code"] == "already_served"
        return
    with databases.connect(fresh_database_url):
        refused = stored_on_both("restore", str(file), "--json")
    assert refused.refusal == (7, "database_in_use")


@pytest.mark.one_database
def test_another_secret_key_is_refused_before_anything_is_changed(
    sold: World, booking: Booking, file: Path, empty: Callable[[], str], environment: Environment
) -> None:
    environment("BOOKING_SECRET_KEY", NEWER_SECRET)
    assert booking("backup", str(file), "--json").error["code"] == "wrong_secret_key"
    assert not file.exists()
    environment("BOOKING_SECRET_KEY", SECRET)
    assert booking("backup", str(file)).code == 0
    url = empty()
    environment("BOOKING_SECRET_KEY", NEWER_SECRET)
    refused = booking("restore", str(file), "--json")
    assert refused.refusal == (2, "wrong_secret_key")
    for kind in ("webhook secrets", "gift card codes", "stored answers", "mails"):
        assert kind in refused.error["message"]
    assert "does not open the sealed values of the backup" in refused.error["message"]
    assert count(url, "organizations") == 0


@pytest.mark.one_database
def test_a_truncated_file_is_refused_before_anything_is_changed(
    sold: World, booking: Booking, file: Path, empty: Callable[[], str]
) -> None:
    assert booking("backup", str(file)).code == 0
    whole, url = file.read_bytes(), empty()
    for size in (0, 10, len(whole) // 2, len(whole) - 4096):
        file.write_bytes(whole[:size])
        assert booking("restore", str(file), "--json").refusal == (2, "bad_backup"), size
    assert count(url, "organizations") == 0


def test_a_missing_file_is_named(stored_on_both: Booking) -> None:
    refused = stored_on_both("restore", "nothing.backup", "--json")
    assert (refused.code, refused.error["message"]) == (2, "nothing.backup cannot be read: No such file or directory.")


@pytest.mark.one_database
def test_a_backup_with_the_schema_of_a_newer_release_is_refused(
    sold: World, booking: Booking, file: Path, empty: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert booking("backup", str(file)).code == 0
    url = empty()
    monkeypatch.setattr(revisions, "is_known", lambda revision: False)
    refused = booking("restore", str(file), "--json")
    assert refused.refusal == (2, "newer_backup")
    assert revisions.head() in refused.error["message"]
    assert count(url, "organizations") == 0


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupted_backup_leaves_no_file(
    sold: World, booking: Booking, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("booking_core.upkeep.backups.service._checked", interrupt)
    assert booking("backup", str(file)).code == 130
    assert [entry.name for entry in file.parent.iterdir() if "backup" in entry.name] == []


def test_an_interrupted_restoration_changes_nothing(
    sold: World, fresh_database_url: str, booking: Booking, file: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """The data is interrupted in the middle: after some pages on SQLite, within the script on PostgreSQL."""
    assert booking("backup", str(file)).code == 0
    sell_one_more(sold)
    if backend == "sqlite":
        copy = sqlite._copy
        monkeypatch.setattr(sqlite, "_PAGES_AT_ONCE", 3)
        monkeypatch.setattr(sqlite, "_copy", lambda source, target, _: copy(source, target, interrupt))
    else:
        monkeypatch.setattr(
            postgres.shutil, "copyfileobj", lambda script, to: (to.write(script.read(50_000)), interrupt())
        )
    assert booking("restore", str(file), "--force").code == 130
    assert count(fresh_database_url) == 2
    monkeypatch.undo()


_RECORDING = """#!/bin/sh
printf '%s\\n' "$0" "$@" >> "{log}"
exec "{program}" "$@"
"""


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_no_program_has_a_secret_among_its_arguments(
    sold: World,
    fresh_database_url: str,
    booking: Booking,
    environment: Environment,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    find, folder, log = postgres.find_programs, tmp_path / "programs", tmp_path / "arguments"
    folder.mkdir()

    def recording(beside_server: str) -> Path:
        for name in ("pg_dump", "pg_restore", "psql"):
            program = folder / name
            program.write_text(_RECORDING.format(log=log, program=find(beside_server) / name))
            program.chmod(0o755)
        return folder

    monkeypatch.setattr(postgres, "find_programs", recording)
    mark = "&" if "?" in fresh_database_url else "?"
    environment("BOOKING_DATABASE_URL", f"{fresh_database_url}{mark}password=hunter2&sslpassword=hunter3")
    assert booking("backup", str(file)).code == 0
    sold.database.close()
    assert booking("restore", str(file), "--force").code == 0
    arguments = log.read_text()
    assert all(f"{folder / name}\n" in arguments for name in ("pg_dump", "pg_restore", "psql"))
    assert "hunter" not in arguments


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_restoration_that_the_server_refuses_changes_nothing(
    sold: World, fresh_database_url: str, booking: Booking, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert booking("backup", str(file)).code == 0
    sold.database.close()
    monkeypatch.setattr(postgres, "_tables", lambda *_: [])
    refused = booking("restore", str(file), "--json")
    assert refused.refusal == (1, "not_restored")
    assert "already exists" in refused.error["message"]
    assert count(fresh_database_url) == 1
