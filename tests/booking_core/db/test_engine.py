"""Transactions behave alike on both databases."""

import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import bindparam, literal_column, select, text
from sqlalchemy.engine import make_url
from support.databases import databases
from support.world.world import FixedClock, World, make_world

from booking_core.base.errors import NotFound, Unavailable
from booking_core.db import engine, migrate, postgres, revisions, sqlite, tables
from booking_core.db.engine import Database, Query, Tx
from booking_core.db.postgres import statement_name
from booking_core.db.statements import Compiled, Statement
from booking_core.db.unit_of_work import Update
from booking_core.due_work.rows import NIL_ID

BUMP = Update("bump", tables.counters, adds=("last_booking_number",))


LAST = Statement(
    select(tables.counters.c.last_booking_number).where(tables.counters.c.organization_id == bindparam("o"))
)


SET = Statement(
    tables.counters.update()
    .where(tables.counters.c.organization_id == bindparam("o"))
    .values(last_booking_number=bindparam("number"))
)
LOCK = Statement(
    select(tables.counters.c.last_booking_number)
    .where(tables.counters.c.organization_id == bindparam("o"))
    .with_for_update(key_share=True, skip_locked=True)
)


def number(world: World) -> int:
    (row,) = world.rows(tables.counters)
    return int(row["last_booking_number"])


def bump(tx: Tx, world: World, by: int = 1) -> None:
    tx.update(BUMP, organization_id=world.org, last_booking_number=by)


def test_a_migrated_database_has_exactly_the_tables_of_the_schema(shared_database_url: str) -> None:
    assert revisions.current(shared_database_url) == revisions.head()
    assert migrate.differences(shared_database_url) == []


def test_upgrading_twice_changes_nothing(fresh_database_url: str) -> None:
    migrate.upgrade(fresh_database_url)
    assert migrate.differences(fresh_database_url) == []


def test_what_raises_is_rolled_back(world: World) -> None:
    def fail(tx: Tx) -> None:
        bump(tx, world)
        raise NotFound

    with pytest.raises(NotFound):
        world.database.write(fail)
    assert number(world) == 0


def test_what_is_rehearsed_gives_its_result_and_is_undone(world: World) -> None:
    def bumped(tx: Tx) -> int:
        bump(tx, world, 5)
        row = tx.first(LAST, o=world.org)
        assert row is not None
        return int(row[0])

    assert world.database.dry_run(bumped) == 5
    assert number(world) == 0


def test_what_the_database_refuses_is_refused_in_a_rehearsal(world: World) -> None:
    """Also by the last statement, which is otherwise sent with the COMMIT."""
    take = Update("take", tables.departures, adds=("seats_taken",))
    columns = {"id": world.departure(world.experience(), seats=1), "seats_taken": 2}
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation)):
        world.database.dry_run(lambda tx: tx.update(take, organization_id=world.org, **columns))


def test_what_is_asked_together_is_answered_in_order_within_the_transaction(world: World) -> None:
    def asking(tx: Tx) -> list[int]:
        bump(tx, world)
        counted = Query(LAST, {"o": world.org}, lambda rows: int(rows[0][0]))
        return tx.pipeline(counted, Query(LAST, {"o": world.org}, len, is_lock=True), counted)

    locks = 0 if world.database.is_sqlite else 1  # a lock is not sent to SQLite
    assert world.database.write(asking) == [1, locks, 1]
    assert world.database.read(lambda tx: tx.pipeline(Query(LAST, {"o": world.org}, len))) == [1]


def test_one_that_fails_of_those_asked_together_undoes_all(world: World) -> None:
    fails = Statement(select(literal_column("json('no')" if world.database.is_sqlite else "CAST(lower('NO') AS json)")))

    def asking(tx: Tx) -> None:
        bump(tx, world)
        counted = Query(LAST, {"o": world.org}, list)
        tx.pipeline(counted, Query(fails, {}, list), counted)

    with pytest.raises((sqlite3.OperationalError, psycopg.DataError)):
        world.database.write(asking)
    assert number(world) == 0
    world.database.write(lambda tx: bump(tx, world))
    assert number(world) == 1


def test_one_that_fails_among_many_undoes_only_itself(world: World) -> None:
    def fail(tx: Tx) -> int:
        bump(tx, world, 100)
        raise NotFound

    def work(tx: Tx) -> int:
        bump(tx, world)
        return 7

    first, second, third = world.database.write_each([work, fail, work])
    assert (first, third) == (7, 7)
    assert isinstance(second, NotFound)
    assert number(world) == 2


@pytest.mark.parametrize(
    ("write", "count"),
    [
        pytest.param(lambda tx, org: bump(tx, org), 1, id="collected"),
        pytest.param(lambda tx, org: tx.run(SET, o=org.org, number=7), 1, id="run"),
        pytest.param(lambda tx, org: tx.all(SET, o=org.org, number=7), 1, id="all"),
        pytest.param(lambda tx, org: tx.pipeline(Query(SET, {"o": org.org, "number": 7}, list)), 1, id="pipeline"),
        pytest.param(lambda tx, org: tx.run(SET, o=NIL_ID, number=7), 0, id="no-row"),
        pytest.param(
            lambda tx, org: tx.pipeline(Query(SET, {"o": NIL_ID, "number": 7}, list)), 0, id="pipeline-no-row"
        ),
        pytest.param(lambda tx, org: tx.all(LAST, o=org.org), 0, id="read"),
        pytest.param(lambda tx, org: tx.all(LOCK, o=org.org), 0, id="lock"),
    ],
)
def test_a_transaction_counts_its_changes(world: World, write: Callable[[Tx, World], object], count: int) -> None:
    def act(tx: Tx) -> int:
        write(tx, world)
        return tx.changes

    assert world.database.write(act) == count


@pytest.mark.parametrize(
    ("statement", "changes_rows"),
    [
        ("INSERT INTO a VALUES (1)", True),
        ("UPDATE a SET b = 1", True),
        ("WITH old AS (DELETE FROM a RETURNING b) SELECT b FROM old", True),
        ("SELECT b FROM a FOR UPDATE SKIP LOCKED", False),
        ("SELECT b FROM a FOR NO KEY UPDATE OF a", False),
        ("SELECT updated_at FROM a", False),
    ],
)
def test_a_statement_tells_whether_it_changes_rows(world: World, statement: str, changes_rows: bool) -> None:
    assert Statement(text(statement)).compiled(world.database.dialect).changes_rows is changes_rows


def test_a_plan_made_while_a_table_was_empty_is_made_anew(new_database_url: Callable[[str], str]) -> None:
    """PostgreSQL keeps a plan, and on a new installation the best is to read tables whole, since nothing is in them."""
    connection = postgres.PostgresDriver(make_url(new_database_url("postgresql"))).connect(True)
    look_up = Compiled("SELECT b FROM grown WHERE a = CAST($1 AS integer)", ("a",), {}, wants_now=False)

    def plan() -> str:
        return str(
            connection._libpq.exec_(b"EXPLAIN EXECUTE " + statement_name(look_up.text) + b"('7')").get_value(0, 0)
        )

    connection.command("CREATE TABLE grown (a integer PRIMARY KEY, b text)")
    connection.command("VACUUM grown")
    for _ in range(postgres._FIRST_PLANS - 1):
        connection.execute(look_up, {"a": 7})
    connection.command("INSERT INTO grown SELECT each, 'text' FROM generate_series(1, 10000) each")
    assert "Seq Scan" in plan()
    assert connection.execute(look_up, {"a": 7}) == ([("text",)], 1)
    assert "Index Scan" in plan()
    connection.close()


# A database that goes away, and comes back ---------------------------------------------------------------------------


@pytest.fixture
def remote(new_database_url: Callable[[str], str], clock: FixedClock) -> Iterator[World]:
    """An organization in a PostgreSQL database of this test's own."""
    database = Database(new_database_url("postgresql"), clock=clock)
    yield make_world(database, clock)
    database.close()


def use_every_connection(database: Database) -> None:
    """Open as many connections as the pools may have, all idle."""
    with ExitStack() as stack:
        for pool, size in ((database._readers, 2), (database._writers, 8)):
            for _ in range(size):
                stack.enter_context(pool.connection())


def end_every_connection(database: Database) -> None:
    """Close all connections as a restarted server does, and return when the clients know it."""
    with databases.connect(database.url.render_as_string(hide_password=False)) as connection:
        other_sessions = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid, 10000) {other_sessions}")


def test_nobody_notices_that_the_server_was_restarted_while_nothing_was_asked(remote: World) -> None:
    database = remote.database
    use_every_connection(database)
    end_every_connection(database)
    for count in range(1, 11):
        database.write(lambda tx: bump(tx, remote))
        assert number(remote) == count


def test_a_connection_that_is_alive_is_used_again(remote: World) -> None:
    with remote.database._writers.connection() as first:
        pass
    remote.database.write(lambda tx: bump(tx, remote))
    with remote.database._writers.connection() as again:
        assert again is first


def test_a_connection_to_a_server_that_takes_no_writes_is_not_kept(remote: World) -> None:
    """After a failover it leads to a standby, and the service has to find the new server."""
    database = remote.database
    url, name = database.url.render_as_string(hide_password=False), database.url.database
    databases.run(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    end_every_connection(database)
    use_every_connection(database)
    with pytest.raises(Unavailable):
        database.write(lambda tx: bump(tx, remote))
    databases.run(url, "SET default_transaction_read_only = off", f"ALTER DATABASE {name} RESET ALL")
    for _ in range(3):  # three tries each, and eight connections to be rid of
        database.write_each([lambda tx: bump(tx, remote)])
    database.write(lambda tx: bump(tx, remote))


def test_a_server_that_says_nothing_is_given_up(remote: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine is frozen, and its kernel still answers; here it takes its time to answer a question."""
    sleep = Statement(text("SELECT pg_sleep(30)"))
    database = Database(remote.url, clock=remote.clock)
    with database._readers.connection() as connection:
        pass
    monkeypatch.setattr(postgres, "RESPONSE_TIMEOUT_S", 0.05)
    runs: list[Tx] = []

    def work(tx: Tx) -> None:
        runs.append(tx)
        bump(tx, remote)
        tx.all(sleep)

    with pytest.raises(Unavailable) as raised:
        database.write(work)
    assert (len(runs), raised.value.for_all) == (1, True)
    assert connection.broken, "it leads to the same server"
    monkeypatch.undo()
    database.write(lambda tx: bump(tx, remote))
    assert number(replace(remote, database=database)) == 1
    database.close()


def test_statements_end_that_wait_for_a_server_that_another_one_found_frozen(
    remote: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_LOOK_S", 0.02)
    driver = remote.database.driver
    assert isinstance(driver, postgres.PostgresDriver)

    def work(tx: Tx) -> None:
        driver.note_frozen()
        tx.all(Statement(text("SELECT pg_sleep(30)")))

    with pytest.raises(Unavailable):
        remote.database.write(work)


def test_the_host_that_answers_is_tried_first_from_then_on(
    new_database_url: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_url(new_database_url("postgresql"))
    alive = str(target.query.get("host", target.host))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as the kernel of a frozen process is
        several = {"host": f"127.0.0.1,{alive}", "port": f"{silent.getsockname()[1]},{target.port or 5432}"}
        url = target.set(host=None, port=None).update_query_dict(several)
        driver, tried = postgres.PostgresDriver(url), list[object]()
        connect = postgres.connect
        monkeypatch.setattr(postgres, "connect", lambda url, server=None: tried.append(server) or connect(url, server))
        for _ in range(2):
            driver.open().close()
    driver.note_frozen()
    driver.open().close()
    assert [bool(server) for server in tried] == [False, True, False]


def test_who_is_in_no_hurry_waits(remote: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "RESPONSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(postgres, "STATEMENT_TIMEOUT_MS", 40)
    database = Database(remote.url, clock=remote.clock)
    slow = Statement(text("SELECT 1 FROM pg_sleep(0.2)"))

    def work(tx: Tx) -> int:
        with tx.without_statement_timeout():
            rows = tx.all(slow)
        return len(rows)

    assert database.read(work) == 1
    with pytest.raises(Unavailable):
        database.read(lambda tx: tx.all(slow))
    database.close()


def test_all_writes_of_a_batch_wait_once_for_a_locked_file(
    new_database_url: Callable[[str], str], clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.01)
    database = Database(new_database_url("sqlite"), clock=clock)
    world, begun, begin = make_world(database, clock), list[object](), sqlite.SqliteConnection.begin
    monkeypatch.setattr(sqlite.SqliteConnection, "begin", lambda self: begun.append(self) or begin(self))
    with databases.numbers_held(str(database.url), world.org):
        outcomes = database.write_each([lambda tx: bump(tx, world)] * 8)
    assert len(begun) == 1
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 8
    assert number(world) == 0
    assert database.write_each([lambda tx: bump(tx, world)] * 8) == [None] * 8
    database.close()


@pytest.mark.parametrize("state", ["53100", "53200", "58030", "XX001", "25006"])
def test_a_fault_below_the_database_concerns_every_caller(world: World, state: str) -> None:
    refused = world.database.driver.translate(psycopg.errors.lookup(state)())
    assert isinstance(refused, Unavailable)
    assert (refused.for_all, refused.reason, refused.retry_after_s) == (True, "fault", 10)


def test_a_server_that_cannot_be_reached_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    database, tries, connect = Database(f"postgresql://nobody@127.0.0.1:{port}/nothing"), [], psycopg.connect
    monkeypatch.setattr(psycopg, "connect", lambda *args, **options: tries.append(args) or connect(*args, **options))
    with pytest.raises(Unavailable) as raised:
        database.write(lambda tx: None)
    assert raised.value.for_all
    assert len(tries) == 1


@pytest.mark.usefixtures("postgresql_only")
def test_the_outcome_of_a_transaction_is_known_only_after_its_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "OUTCOME_TIMEOUT_S", 0.001)
    with database.writing() as tx:
        committed = tx.transaction_id()
        with pytest.raises(Unavailable, match="look before you try again"):
            database._has_committed(committed)
    assert database._has_committed(committed)
    names: list[str] = []

    def fail(tx: Tx) -> None:
        names.append(tx.transaction_id())
        raise NotFound

    with pytest.raises(NotFound):
        database.write_once(fail)
    assert not database._has_committed(names[0])


def test_a_file_that_is_no_database_leaves_no_connection_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    file = tmp_path / "booking.db"
    file.write_bytes(b"not a database" * 100)
    with closing(Database(f"sqlite:///{file}")) as database, pytest.raises(Unavailable):
        database.read(lambda tx: tx.now())
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
