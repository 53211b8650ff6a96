"""Rows that a revision leaves to the worker: filled in batches, at any interruption, until a revision ends it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from sqlalchemy import text
from support import databases
from support.plans import plan_of
from support.releases import Release
from support.world import FixedClock, World, make_world

from booking_core import parked
from booking_core.db import migrate, revisions
from booking_core.db.backfills import Backfill
from booking_core.db.due import Processed
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_server.worker.jobs import backfill as job
from booking_server.worker.jobs.backfill import BackfillJob

COLUMN = 'op.add_column("experiences", sa.Column("colour", sa.Text()))'
INDEX = 'online.create_index("ix_missing", "experiences", ["organization_id", "id"], where="colour IS NULL")'
LEAVES = (
    INDEX,
    "from booking_core.db.backfills import Backfill\n"
    'backfill = Backfill("experiences", "colour IS NULL", {"colour": "lower(title)"})',
)
ENDS = ('online.finish_backfill("9002"); op.drop_index("ix_missing", "experiences")', 'completes = "9002"')
READ = Statement(text("SELECT coalesce(colour, lower(title)) FROM experiences ORDER BY id"))
"""The statement of a reader that knows both states."""


class Killed(BaseException):
    """The end of the process."""


@pytest.fixture
def database(fresh_database_url: str, clock: FixedClock) -> Iterator[Database]:
    with closing(Database(fresh_database_url, clock=clock)) as opened:
        yield opened


@pytest.fixture
def worlds(database: Database, clock: FixedClock) -> list[World]:
    """Two organizations: one with many experiences, and one with few."""
    worlds = [make_world(database, clock) for _ in range(2)]
    for world, count in zip(worlds, (20, 3), strict=True):
        for _ in range(count):
            world.experience()
    return worlds


@pytest.fixture
def filling(
    fresh_database_url: str, worlds: list[World], release: Release, monkeypatch: pytest.MonkeyPatch
) -> Backfill:
    """Return the back-fill of a newer release that has upgraded the database."""
    release(COLUMN, LEAVES)
    migrate.upgrade(fresh_database_url)
    monkeypatch.setattr(job, "TRANSACTION_MAX", 5)
    monkeypatch.setattr(job, "TRANSACTIONS_MAX", 2)
    return revisions.backfills()["9002"]


def new_job(database: Database) -> BackfillJob:
    """Return the job of a worker that has just been started."""
    return BackfillJob(database, revisions.backfills())


def turn(a_job: BackfillJob) -> int:
    return asyncio.run(a_job.run_turn(asyncio.Event()))


def left(world: World) -> int:
    return sum(row["colour"] is None for row in rows(world))


def rows(world: World) -> list[dict[str, object]]:
    find = Statement(text("SELECT id, colour FROM experiences WHERE organization_id = :organization_id"))
    found = world.database.read(lambda tx: tx.all(find, organization_id=world.org))
    return [dict(zip(("id", "colour"), row, strict=True)) for row in found]


def test_each_turn_fills_a_batch_of_each_organization_and_readers_see_no_difference(
    database: Database, worlds: list[World], filling: Backfill
) -> None:
    seen = database.read(lambda tx: tx.all(READ))
    assert turn(new_job(database)) == 8
    assert [left(world) for world in worlds] == [15, 0]
    assert database.read(lambda tx: (filling.count(tx), filling.count(tx, 7))) == (15, 7)
    assert database.read(lambda tx: tx.all(READ)) == seen
    assert asyncio.run(new_job(database).run_all()) == 15
    assert database.read(filling.count) == 0
    assert database.read(lambda tx: tx.all(READ)) == seen


def test_turns_follow_each_other_after_a_pause_and_when_nothing_is_left_after_a_longer_one(
    database: Database, filling: Backfill, clock: FixedClock
) -> None:
    running = new_job(database)
    assert (turn(running), turn(running)) == (8, 0)
    clock.at += job.PAUSE
    assert turn(running) == 10
    clock.at += job.PAUSE
    assert turn(running) == 5
    clock.at += job.PAUSE
    assert turn(running) == 0


def test_a_worker_that_is_killed_in_a_batch_leaves_rows_that_the_next_one_fills(
    database: Database, worlds: list[World], filling: Backfill, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = iter(range(10))

    def fill(self: Backfill, tx: Tx, organization_id: str, keys: Sequence[str]) -> Processed[None]:
        done = whole(self, tx, organization_id, keys)
        if next(batches) == 1:
            raise Killed
        return done

    whole = Backfill.fill
    with monkeypatch.context() as patched:
        patched.setattr(Backfill, "fill", fill)
        with pytest.raises(Killed):
            asyncio.run(new_job(database).run_all())
    assert sum(map(left, worlds)) in (18, 20)  # the first batch is of either organization
    asyncio.run(new_job(database).run_all())
    assert sum(map(left, worlds)) == 0


def test_a_row_that_the_release_before_writes_meanwhile_is_filled_too(
    database: Database, worlds: list[World], filling: Backfill, clock: FixedClock
) -> None:
    running = new_job(database)
    asyncio.run(running.run_all())
    worlds[1].experience()
    clock.at += job.EVERY
    assert turn(running) == 1
    assert left(worlds[1]) == 0


def test_a_locked_row_is_passed_over_and_filled_later(
    database: Database, worlds: list[World], filling: Backfill, fresh_database_url: str
) -> None:
    if database.is_sqlite:
        pytest.skip("SQLite locks no rows")
    with databases.connect(fresh_database_url) as other:
        other.autocommit = False
        other.execute(f"SELECT 1 FROM experiences WHERE organization_id = '{worlds[1].org}' FOR UPDATE")
        asyncio.run(new_job(database).run_all())
        assert [left(world) for world in worlds] == [0, 3]
    asyncio.run(new_job(database).run_all())
    assert left(worlds[1]) == 0
    assert database.read(parked.count) == {}


def test_a_row_that_cannot_be_filled_is_parked_and_the_others_are_filled(
    database: Database, worlds: list[World], filling: Backfill, fresh_database_url: str, clock: FixedClock
) -> None:
    broken = rows(worlds[0])[3]["id"]
    databases.run(fresh_database_url, *refusing(database, broken))
    asyncio.run(new_job(database).run_all())
    assert [left(world) for world in worlds] == [1, 0]
    assert database.read(parked.count) == {"backfill_9002": 1}


def refusing(database: Database, row_id: object) -> list[str]:
    """Return the statements of a trigger that refuses to change a row."""
    if database.is_sqlite:
        raise_it = f"WHEN NEW.id = '{row_id}' BEGIN SELECT RAISE(ABORT, 'broken'); END"
        return [f"CREATE TRIGGER refuse BEFORE UPDATE ON experiences {raise_it}"]
    body = f"BEGIN IF NEW.id = '{row_id}' THEN RAISE 'broken'; END IF; RETURN NEW; END"
    return [
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        "CREATE TRIGGER refuse BEFORE UPDATE ON experiences FOR EACH ROW EXECUTE FUNCTION refuse()",
    ]


def test_the_revision_that_ends_a_back_fill_fills_the_rest_itself(
    database: Database, worlds: list[World], filling: Backfill, release: Release, fresh_database_url: str
) -> None:
    turn(new_job(database))
    release(COLUMN, LEAVES, ENDS, additive=False)
    assert revisions.backfills() == {}
    migrate.upgrade(fresh_database_url)
    assert sum(map(left, worlds)) == 0


def test_an_upgrade_over_several_releases_at_once_fills_all_of_it(
    worlds: list[World], release: Release, fresh_database_url: str
) -> None:
    release(COLUMN, LEAVES, ENDS, additive=False)
    migrate.upgrade(fresh_database_url)
    assert sum(map(left, worlds)) == 0


def test_the_rows_that_are_left_are_found_by_the_index_of_the_revision(
    database: Database, worlds: list[World], filling: Backfill
) -> None:
    of = {"organization_id": worlds[0].org}
    behind = {"after": worlds[0].org, "limit": 5}
    with database.writing() as tx:
        if not database.is_sqlite:
            tx.run(Statement(text("SET LOCAL enable_seqscan = off")))  # the table is small
            tx.run(Statement(text("SET LOCAL enable_sort = off")))
        for statement, values in ((filling._organizations, behind), (filling._find, of | behind)):
            shown = plan_of(tx, statement, **values)
            assert "ix_missing" in shown, shown
