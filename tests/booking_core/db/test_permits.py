"""Permits, and with them connections, go to threads in the order in which they asked."""

import threading
from collections.abc import Callable
from typing import Any

from support.world import FixedClock, make_world

from booking_core.db.engine import Database, Tx
from booking_core.db.permits import FairSemaphore


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
    assert not permits.acquire(blocking=False)
    permits.release()
    assert (permits.free, permits.waiting) == (1, 0)


def test_a_permit_that_is_handed_over_at_the_last_moment_is_kept() -> None:
    permits = FairSemaphore(1)
    permits.acquire()
    turn = threading.Lock()
    permits._waiting.append(turn)
    permits._waiting.popleft()
    assert not permits._has_given_up(turn), "it was handed over, so that the thread has it"


def test_a_lane_that_always_has_work_lets_another_write_after_the_transaction_in_hand(
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
