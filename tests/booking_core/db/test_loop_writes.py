"""A transaction on the event loop does what one in a thread does, and moves there when it would have to wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import pytest
from sqlalchemy import bindparam, literal_column, select
from support.world import FixedClock, World, make_world

from booking_core.db import loop_writes, tables
from booking_core.db.driver import LoopConnection
from booking_core.db.engine import Database, Query, Tx
from booking_core.db.statements import Row, Statement
from booking_core.db.unit_of_work import Update
from booking_core.errors import NotFound, Unavailable

LAST = Statement(
    select(tables.counters.c.last_booking_number).where(tables.counters.c.organization_id == bindparam("o"))
)
LOCKED = Statement(
    select(tables.counters.c.last_booking_number)
    .where(tables.counters.c.organization_id == bindparam("o"))
    .with_for_update()
)
BUMP = Update("bump", tables.counters, adds=("last_booking_number",), keys=("organization_id",))


@pytest.fixture
def alone(fresh_database_url: str, clock: FixedClock) -> Iterator[World]:
    database = Database(fresh_database_url, clock=clock)
    yield make_world(database, clock)
    database.close()


def last(world: World) -> Query[int]:
    return Query(LAST, {"o": world.org}, lambda rows: int(rows[0][0]))


def locked(world: World) -> Query[int]:
    """Return what `last` reads, which waits for the end of every other transaction that has locked or changed it."""
    return Query(LOCKED, {"o": world.org}, lambda rows: int(rows[0][0]))


def bump(tx: Tx, world: World, by: int = 1) -> None:
    tx.update(BUMP, organization_id=world.org, last_booking_number=by)


def number(world: World) -> int:
    return cast(int, world.database.read(lambda tx: tx.pipeline(last(world))[0]))


def written(world: World, decide: Callable[[Tx, int], Any], query: Query[int] | None = None) -> Any:
    return asyncio.run(loop_writes.write(world.database, query or last(world), decide))


def is_on_loop(world: World) -> bool:
    """Return whether a transaction runs on the loop's thread."""
    return bool(written(world, lambda *_: threading.current_thread() is threading.main_thread()))


def test_what_is_read_is_decided_about_and_written_together(alone: World) -> None:
    def decide(tx: Tx, read: int) -> str:
        bump(tx, alone, by=read + 3)
        return f"read {read}"

    assert [written(alone, decide), written(alone, decide)] == ["read 0", "read 3"]
    assert number(alone) == 9


def test_the_loop_makes_the_transaction_itself_where_it_need_not_wait(alone: World) -> None:
    assert is_on_loop(alone) is not alone.database.is_sqlite


def test_a_database_whose_statements_are_traced_is_left_to_threads(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tracer:
        def traced(self, connection: Any, pool: str) -> Any:
            return connection

    monkeypatch.setattr(alone.database, "tracer", Tracer())
    assert not is_on_loop(alone)


def test_without_an_idle_connection_a_thread_opens_one(fresh_database_url: str) -> None:
    database = Database(fresh_database_url)
    query: Query[int] = Query(Statement(select(literal_column("1"))), {}, lambda rows: int(rows[0][0]))
    threads: list[bool] = []

    def decide(_: Tx, read: int) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        return read

    async def twice() -> list[int]:
        return [await loop_writes.write(database, query, decide) for _ in range(2)]

    assert asyncio.run(twice()) == [1, 1]
    assert threads == [False, not database.is_sqlite]
    database.close()


def test_a_decision_that_needs_a_statement_begins_again_in_a_thread_and_is_written_once(alone: World) -> None:
    threads: list[bool] = []

    def decide(tx: Tx, read: int) -> int:
        threads.append(threading.current_thread() is threading.main_thread())
        bump(tx, alone)
        return cast(int, tx.pipeline(last(alone))[0])

    assert written(alone, decide) == 1
    assert threads == ([False] if alone.database.is_sqlite else [True, False])
    assert number(alone) == 1


def test_an_exception_undoes_what_was_collected_and_leaves_the_connection_usable(alone: World) -> None:
    def refuse(tx: Tx, _: int) -> None:
        bump(tx, alone)
        raise NotFound

    for _ in range(3):
        with pytest.raises(NotFound):
            written(alone, refuse)
    assert number(alone) == 0
    assert is_on_loop(alone) is not alone.database.is_sqlite


def test_a_conflict_with_another_transaction_is_retried(alone: World) -> None:
    """A row that another transaction has written first is found by the second run."""
    runs: list[int] = []

    def decide(tx: Tx, _: int) -> None:
        runs.append(1)
        if len(runs) == 1 and not alone.database.is_sqlite:
            tx.insert(tables.counters, organization_id=alone.org)  # it has one already
        bump(tx, alone)

    written(alone, decide)
    assert len(runs) == (1 if alone.database.is_sqlite else 2)
    assert number(alone) == 1


def test_several_queries_are_answered_together_and_one_without_a_statement_is_known(alone: World) -> None:
    known: Query[str] = Query(None, {}, lambda _: "known")

    async def run() -> Any:
        return await loop_writes.write_on_loop(alone.database, (last(alone), known, locked(alone)), decide)

    def decide(tx: Tx, found: list[Any]) -> list[Any]:
        bump(tx, alone)
        return found

    if alone.database.is_sqlite:
        with pytest.raises(loop_writes.NotOnLoop):
            asyncio.run(run())
    else:
        assert is_on_loop(alone)
        assert asyncio.run(run()) == [0, "known", 0]
        assert number(alone) == 1


def test_more_than_a_socket_takes_at_once_is_sent_and_read(alone: World) -> None:
    echo = Statement(select(bindparam("long").label("long")))
    long = "x" * 4_000_000
    query: Query[Any] = Query(echo, {"long": long}, lambda rows: rows[0][0])
    assert written(alone, lambda _, read: read == long, query)


def test_a_transaction_that_is_cancelled_at_its_commit_is_made_whole_or_not_at_all(alone: World) -> None:
    if alone.database.is_sqlite:
        pytest.skip("a thread cannot be cancelled")

    async def cancel() -> None:
        began = asyncio.Event()

        def decide(tx: Tx, _: int) -> None:
            bump(tx, alone)
            began.set()

        running = asyncio.create_task(loop_writes.write(alone.database, locked(alone), decide))
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert is_on_loop(alone)
    asyncio.run(cancel())
    before = written(alone, lambda _, read: read, locked(alone))
    assert before in (0, 1)  # the COMMIT was on its way
    written(alone, lambda tx, _: bump(tx, alone))
    assert number(alone) == before + 1


def test_a_transaction_that_is_cancelled_before_its_decision_writes_nothing(
    alone: World, fresh_database_url: str
) -> None:
    if alone.database.is_sqlite:
        pytest.skip("a thread cannot be cancelled")
    decided: list[int] = []

    def decide(tx: Tx, read: int) -> None:
        bump(tx, alone)
        decided.append(read)

    async def cancel() -> None:
        running = asyncio.create_task(loop_writes.write(alone.database, locked(alone), decide))
        await asyncio.sleep(0)  # the task has sent its first statement, and waits
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert is_on_loop(alone)
    with closing(Database(fresh_database_url)) as other, other.writing() as holder:
        holder.pipeline(locked(alone))
        asyncio.run(cancel())
    assert written(alone, lambda _, read: read, locked(alone)) == 0
    assert decided == []
    written(alone, lambda tx, _: bump(tx, alone))
    assert number(alone) == 1


def test_a_server_that_stays_silent_counts_as_away() -> None:
    class Silent:
        silence_s, is_sending, waited = 0.001, False, 0.0

        def is_lost(self, waited_s: float) -> bool:
            self.waited = waited_s
            return waited_s >= 3 * self.silence_s

    async def wait() -> None:
        rows: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        await loop_writes._in_time(cast(LoopConnection, silent), rows)

    silent = Silent()
    with pytest.raises(Unavailable):
        asyncio.run(wait())
    assert silent.waited == pytest.approx(0.003)
