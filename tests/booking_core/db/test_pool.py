"""Connections that are lent, reused and bounded, to threads in the order of their requests, and turns on SQLite."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, cast

import pytest
from sqlalchemy.engine import make_url
from support.databases import databases
from support.receivers.receivers import wait_until
from support.world.world import FixedClock, make_world

from booking_core.base.errors import Unavailable
from booking_core.db import pool as pools
from booking_core.db.engine import Database, Tx
from booking_core.db.pool import FairSemaphore, Pool
from booking_core.db.sqlite import FREE_MAX_S, WriterTurns
from booking_core.db.waiting import is_away, patiently


class Idle:
    """A connection that is never used."""

    broken = was_closed_by_server = False

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def make_pool(size: int) -> tuple[Pool, list[Idle]]:
    opened: list[Idle] = []

    def connect() -> Any:
        opened.append(Idle())
        return opened[-1]

    return Pool("test", size, connect), opened


def test_a_pool_lends_no_more_than_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "POOL_TIMEOUT_S", 0)
    pool, opened = make_pool(2)
    with ExitStack() as stack:
        lent = [stack.enter_context(pool.connection()) for _ in range(2)]
        assert (pool.in_use, cast(list[Any], lent)) == (2, opened)
        with pytest.raises(Unavailable), pool.connection():
            pass
    assert pool.in_use == 0


def test_a_block_that_raises_returns_its_connection() -> None:
    pool, opened = make_pool(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), pool.connection():
            raise ZeroDivisionError
    assert (pool.in_use, len(opened)) == (0, 1)


def test_the_connection_that_was_returned_last_is_lent_first() -> None:
    pool, opened = make_pool(2)
    with pool.connection() as first:
        with pool.connection() as second:
            pass
        with pool.connection() as again:
            assert again is second
    with pool.connection() as again:
        assert again is first
    assert len(opened) == 2


def test_a_broken_connection_is_closed_and_another_one_opened() -> None:
    pool, opened = make_pool(1)
    with pool.connection():
        opened[0].broken = True
    with pool.connection():
        pass
    assert [connection.is_closed for connection in opened] == [True, False]


def test_a_closed_pool_closes_what_is_returned_to_it() -> None:
    pool, opened = make_pool(1)
    with pool.connection():
        pool.close()
        assert not opened[0].is_closed
    assert opened[0].is_closed


def started(run: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_asks_again_at_once_is_behind_those_that_wait() -> None:
    permits, order = FairSemaphore(1), []
    assert permits.acquire(timeout=30)

    def ask(name: str) -> None:
        assert permits.acquire(timeout=30)
        order.append(name)
        permits.release()

    threads = []
    for number, name in enumerate(("first", "second")):
        threads.append(started(lambda name=name: ask(name)))
        wait_until(lambda number=number: permits.waiting == number + 1, f"{name} waits")
    permits.release()
    ask("again")
    for thread in threads:
        thread.join(30)
    assert order == ["first", "second", "again"]
    assert (permits.free, permits.waiting) == (1, 0)


def test_a_thread_that_gives_up_takes_no_permit_with_it() -> None:
    permits = FairSemaphore(2)
    assert [permits.acquire(timeout=0) for _ in range(3)] == [True, True, False]
    permits.release()
    assert (permits.free, permits.waiting) == (1, 0)


def test_a_permit_that_is_handed_over_at_the_last_moment_is_kept() -> None:
    permits = FairSemaphore(1)
    permits.acquire(timeout=0)
    turn = threading.Lock()
    permits._waiting.append(turn)
    permits._waiting.popleft()
    assert not permits._has_given_up(turn), "it was handed over: the thread has it"


def test_a_busy_lane_lets_another_write_after_its_current_transaction(
    new_database_url: Callable[[str], str], clock: FixedClock
) -> None:
    """On SQLite, which has one writer: the transactions of two lanes alternate, however many one of them has."""
    database = Database(new_database_url("sqlite"), clock=clock)
    make_world(database, clock)
    begun, order = threading.Event(), []

    def write(name: str) -> Callable[[Tx], None]:
        def work(_: Tx) -> None:
            order.append(name)
            begun.set()
            if len(order) == 1:
                wait_until(lambda: database._writers._permits.waiting == 1, "the other lane waits")

        return work

    def always() -> None:
        for _ in range(5):
            database.write(write("busy"))

    busy = started(always)
    assert begun.wait(30)
    database.write(write("neighbour"))
    busy.join(30)
    database.close()
    assert order == ["busy", "neighbour", "busy", "busy", "busy", "busy"]


# Waiting -------------------------------------------------------------------------------------------------------------


class Away(Exception):
    pass


class Wrong(Exception):
    pass


@pytest.mark.parametrize(
    ("errors", "outcome", "waited_s", "notified", "ends"),
    [
        pytest.param([Away] * 3, None, 1.5, 1, False, id="it starts when the database is back"),
        pytest.param([Away] * 100, Away, 2, 1, False, id="after the wait the error is raised"),
        pytest.param([Wrong] * 2, Wrong, 0, 0, False, id="another error is raised at the second try, without a pause"),
        pytest.param([Wrong], None, 0, 0, False, id="a database that came back after the first try is used"),
        pytest.param([Away] * 100, Away, 0, 1, True, id="a process that ends does not wait on"),
    ],
)
def test_a_start_waits_while_the_database_is_away(
    errors: list[type[Exception]], outcome: type[Exception] | None, waited_s: float, notified: int, ends: bool
) -> None:
    at, notices, failures = 0.0, list[Exception](), list(errors)

    def start() -> str:
        if failures:
            raise failures.pop(0)
        return "started"

    def pause(seconds: float) -> bool:
        nonlocal at
        at += 0 if ends else seconds
        return ends

    def run() -> str:
        return patiently(
            start, lambda error: isinstance(error, Away), notices.append, wait_s=2, pause=pause, clock=lambda: at
        )

    if outcome is None:
        assert run() == "started"
    else:
        with pytest.raises(outcome):
            run()
    assert (at, len(notices)) == (waited_s, notified)


def test_a_server_that_refuses_connections_is_away(postgres_server: str) -> None:
    assert is_away("postgresql://127.0.0.1:1/booking")
    assert not is_away(postgres_server)
    of_standby = make_url(postgres_server).update_query_dict({"target_session_attrs": "read-write"})
    assert is_away(of_standby.render_as_string(hide_password=False)), "the server answers, and takes no writes yet"
    assert not is_away(of_standby.set(database="missing").render_as_string(hide_password=False))
    assert not is_away("sqlite:///booking.db")


# Turns on SQLite -----------------------------------------------------------------------------------------------------


class Seconds:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.at = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.at += seconds


def transactions(clock: Seconds, *, held_s: float, count: int, between_s: float = 0.0) -> list[float]:
    """Return the pauses of so many transactions."""
    turns = WriterTurns(clock=clock, sleep=clock.sleep)
    for _ in range(count):
        turns.before()
        turns.begun()
        clock.at += held_s
        turns.ended()
        clock.at += between_s
    return clock.slept


@pytest.mark.parametrize(
    ("held_s", "count", "between_s", "pauses"),
    [
        (0.03, 4, 0.0, [0.03, 0.03, 0.03]),
        (0.03, 4, 0.03, []),
        (0.004, 8, 0.0, [0.012, 0.012]),
        (0.004, 8, 0.004, []),
        (9.0, 2, 0.0, [FREE_MAX_S]),
        (9.0, 1, 0.0, []),
    ],
)
def test_the_lock_is_left_free_for_as_long_as_it_was_held(
    held_s: float, count: int, between_s: float, pauses: list[float]
) -> None:
    assert transactions(Seconds(), held_s=held_s, count=count, between_s=between_s) == pauses


def test_only_processes_beside_the_serving_one_pause(
    new_database_url: Callable[[str], str], clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[WriterTurns] = []
    monkeypatch.setattr(WriterTurns, "before", lambda turns: paused.append(turns))
    database = Database(new_database_url("sqlite"), clock=clock)
    make_world(database, clock)
    assert paused
    database.close()
    paused.clear()
    serving = Database(str(database.url), clock=clock)
    serving.driver.checkpoints = True  # type: ignore[union-attr]
    serving.write(lambda tx: tx.now())
    serving.close()
    assert not paused


def test_only_the_serving_process_moves_pages_of_the_log(
    new_database_url: Callable[[str], str], clock: FixedClock
) -> None:
    url = new_database_url("sqlite")
    for checkpoints, pages in ((False, 0), (True, 1_000)):
        with closing(Database(url, clock=clock)) as database:
            database.driver.checkpoints = checkpoints  # type: ignore[union-attr]
            with database._writers.connection() as connection:
                assert connection._raw.execute("PRAGMA wal_autocheckpoint").fetchone() == (pages,)  # type: ignore[union-attr]


def test_a_released_lock_is_noticed_without_a_long_pause(
    new_database_url: Callable[[str], str], clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process looks many times while another one holds the lock."""
    database = Database(new_database_url("sqlite"), clock=clock)
    world = make_world(database, clock)
    looks, enough = 0, threading.Event()
    with database._writers.connection() as connection:
        command = type(connection).command

    def counted(self: Any, text: str) -> None:
        nonlocal looks
        looks += text == "BEGIN IMMEDIATE"
        if looks == 20:
            enough.set()
        command(self, text)

    monkeypatch.setattr(type(connection), "command", counted)
    with databases.numbers_held(str(database.url), world.org):
        waiting = threading.Thread(target=database.write, args=(lambda tx: tx.now(),), daemon=True)
        waiting.start()
        assert enough.wait(30)
    waiting.join(30)
    assert not waiting.is_alive()
    database.close()
