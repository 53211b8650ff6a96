"""The log is kept for its time and no longer, and nothing that is still to be sent is ever removed."""

import threading
from typing import Any

from support.hooks import Hooks
from support.world import DAY, HOUR, FixedClock

from booking_core import webhooks
from booking_core.db import tables


def purge(hooks: Hooks, *, before: int, limit: int = 1000) -> int:
    return hooks.database.write(lambda tx: webhooks.purge(tx, before=before, limit=limit))


def left(hooks: Hooks) -> set[Any]:
    return {row["event_sequence"] for row in hooks.deliveries()}


def test_what_ended_before_is_removed_with_its_attempts(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(2):
        hooks.endpoint()
    hooks.tell()
    hooks.succeed(*hooks.claim())
    clock.advance(DAY)
    hooks.tell()
    hooks.succeed(*hooks.claim())
    assert len(hooks.attempts()) == 4
    assert purge(hooks, before=clock()) == 2
    assert left(hooks) == {2}
    assert len(hooks.attempts()) == 2


def test_the_last_instant_that_is_kept_is_kept(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint()
    hooks.tell()
    hooks.succeed(hooks.one())
    assert purge(hooks, before=clock()) == 0
    assert purge(hooks, before=clock() + 1) == 1


def test_it_is_kept_from_its_end_and_not_from_its_beginning(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint()
    hooks.tell()
    created_at = clock()
    clock.advance(HOUR)
    hooks.succeed(hooks.one())
    assert purge(hooks, before=created_at + 1) == 0
    assert purge(hooks, before=clock() + 1) == 1


def test_what_is_queued_or_under_way_is_kept_however_old(hooks: Hooks, clock: FixedClock) -> None:
    hooks.endpoint()
    hooks.tell(times=3)
    hooks.claim(free=1)
    given_up = hooks.claim(free=1)[0]
    ended = {"status": "failed", "completed_at": clock(), "next_attempt_at": None}
    hooks.world.change(tables.deliveries, given_up.delivery_id, **ended)
    clock.advance(400 * DAY)
    assert purge(hooks, before=clock()) == 0
    hooks.succeed(given_up)
    clock.advance(1)
    assert purge(hooks, before=clock()) == 1
    assert len(hooks.deliveries()) == 2


def test_a_batch_is_no_larger_than_asked(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(2):
        hooks.endpoint()
    hooks.tell(times=5)
    hooks.succeed(*hooks.claim())
    sizes = []
    while size := purge(hooks, before=clock() + 1, limit=4):
        sizes.append(size)
    assert sizes == [4, 4, 2]


def test_two_that_purge_at_once_take_different_rows(hooks: Hooks, clock: FixedClock) -> None:
    for _ in range(3):
        hooks.endpoint()
    hooks.tell(times=40)
    hooks.succeed(*hooks.claim(free=200))
    removed: list[int] = []

    def work() -> None:
        while size := purge(hooks, before=clock() + 1, limit=7):
            removed.append(size)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while size := purge(hooks, before=clock() + 1):
        removed.append(size)
    assert sum(removed) == 120
    assert hooks.deliveries() == []
    assert hooks.attempts() == []
