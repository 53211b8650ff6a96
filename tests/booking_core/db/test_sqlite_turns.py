"""A process beside the process that serves an SQLite file leaves the writer free for as long as it has held it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.databases import databases
from support.world.world import FixedClock, make_world

from booking_core.db.engine import Database
from booking_core.db.sqlite import FREE_MAX_S, WriterTurns


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
