"""Connections that are lent, reused and bounded, to threads in the order of their requests."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import pytest
from support.world.world import FixedClock, make_world

from booking_core.base.errors import Unavailable
from booking_core.db import pool as pools
from booking_core.db.engine import Database, Tx
from booking_core.db.pool import FairSemaphore, Pool


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
    assert [each.is_closed for each in opened] == [True, False]


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


def until(condition: Callable[[], bool]) -> None:
    """Return when the condition is true."""
    event = threading.Event()
    while not condition():
        event.wait(0.001)


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
        until(lambda number=number: permits.waiting == number + 1)
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
                until(lambda: database._writers._permits.waiting == 1)

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
