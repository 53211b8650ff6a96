"""Queues take the owners of jobs in turn, and bound the threads of each."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from booking_server.execution.executor import JobQueue, MixedQueue, OwnerQueue, Place


@dataclass(frozen=True)
class Job:
    """A job with its place."""

    name: str
    place: Place


def jobs(owner: str, count: int, group: str | None = None) -> list[Job]:
    return [Job(f"{owner}{number}", Place(owner, group)) for number in range(count)]


def names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


def filled(queue: JobQueue, *waiting: Job) -> JobQueue:
    """Return the queue with these jobs."""
    for job in waiting:
        queue.put(job)
    return queue


# Batches of many owners ----------------------------------------------------------------------------------------------


def mixed(*waiting: Job) -> JobQueue:
    return filled(MixedQueue(), *waiting)


@pytest.mark.parametrize(
    ("waiting", "batch", "threads", "expected"),
    [
        pytest.param([*jobs("a", 1000), *jobs("b", 1)], 4, 1, "a0 b0 a1 a2", id="second-behind-a-rush"),
        pytest.param([*jobs("a", 3), *jobs("b", 2), *jobs("c", 1)], 10, 1, "a0 b0 c0 a1 b1 a2", id="turns"),
        pytest.param(jobs("a", 5), 4, 2, "a0 a1 a2", id="the-share-of-a-thread"),
        pytest.param([], 4, 1, "", id="empty"),
    ],
)
def test_owners_take_turns_and_keep_the_order_of_their_jobs(
    waiting: list[Job], batch: int, threads: int, expected: str
) -> None:
    queue = mixed(*waiting)
    assert names(queue.take(batch, threads)) == expected.split()
    assert len(queue) == len(waiting) - len(expected.split())
    assert queue.is_ready == bool(len(queue))


def test_jobs_that_return_have_the_next_turns_in_their_order() -> None:
    """Of a batch `a0 b0 a1 a2` only `a0` was run: its owner has had its turn."""
    queue = mixed(*jobs("a", 6), *jobs("b", 1))
    batch = queue.take(4)
    queue.put(jobs("c", 1)[0])
    queue.end(batch, batch[1:])
    assert (len(queue), queue.count("a"), queue.count("b")) == (7, 5, 1)
    assert names(queue.take(9)) == ["b0", "a1", "c0", "a2", "a3", "a4", "a5"]


def test_returned_jobs_cost_no_owner_its_turn_in_a_round() -> None:
    queue, run = mixed(*jobs("a", 9), *jobs("b", 9), *jobs("c", 2)), []
    for _ in range(8):
        batch = queue.take(4)
        queue.end(batch, batch[1:])
        run.append(batch[0])
    assert names(run) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2"]


@pytest.mark.parametrize("make", [MixedQueue, lambda: OwnerQueue(2)], ids=["mixed", "owner"])
def test_an_owners_jobs_are_counted_until_they_have_ended(make: Callable[[], JobQueue]) -> None:
    queue = filled(make(), *jobs("a", 3))
    batch = queue.take(2)
    assert (len(queue), queue.count("a"), queue.owners, queue.of_only_owner) == (1, 3, 1, 3)
    queue.put(jobs("b", 1)[0])
    assert (queue.count("b"), queue.owners, queue.of_only_owner) == (1, 2, 0)
    queue.end(batch)
    assert (len(queue), queue.count("a")) == (2, 1)
    while last := queue.take(9):
        queue.end(last)
    assert (len(queue), queue.is_ready, queue.count("a"), queue.owners) == (0, False, 0, 0)


# Batches of one owner ------------------------------------------------------------------------------------------------


def owner_queue(*waiting: Job) -> OwnerQueue:
    queue = OwnerQueue(threads_per_owner=2)
    filled(queue, *waiting)
    return queue


@pytest.mark.parametrize(
    ("waiting", "batch", "threads", "batches"),
    [
        pytest.param([*jobs("a", 5), *jobs("b", 1)], 2, 1, "a0 a1, b0, a2 a3", id="owners-take-turns"),
        pytest.param(jobs("a", 4), 4, 6, "a0 a1, a2", id="each-thread-has-its-share-of-an-owners-jobs"),
        pytest.param([*jobs("a", 3, "x"), *jobs("b", 2, "y")], 2, 1, "a0 a1, b0 b1, ", id="of-a-group-one-thread"),
        pytest.param([*jobs("a", 3, "x"), Job("y", Place("a", "y"))], 9, 9, "a0 a1 a2, y", id="groups-are-separate"),
    ],
)
def test_a_batch_has_jobs_of_one_owner_and_group(waiting: list[Job], batch: int, threads: int, batches: str) -> None:
    queue = owner_queue(*waiting)
    assert [names(queue.take(batch, threads)) for _ in batches.split(", ")] == [b.split() for b in batches.split(", ")]


def test_an_owner_without_free_threads_is_skipped_until_one_continues() -> None:
    queue = owner_queue(*jobs("a", 9))
    first = queue.take(1)
    queue.take(1)
    assert (queue.is_ready, queue.take(1), len(queue), queue.threads["a"]) == (False, [], 7, 2)
    queue.put(jobs("b", 1)[0])
    assert names(queue.take(1)) == ["b0"]
    queue.end(first)
    assert names(queue.take(1)) == ["a2"]
    assert not queue.is_ready


def test_an_owner_with_several_groups_has_at_most_its_threads() -> None:
    queue = owner_queue(*(Job(group, Place("a", group)) for group in "xyz"), Job("b", Place("b", "other")))
    batches = [queue.take(9) for _ in range(3)]
    assert [names(jobs) for jobs in batches] == [["x"], ["b"], ["y"]]
    assert (queue.is_ready, queue.threads["a"]) == (False, 2)
    queue.end(batches[0])
    assert names(queue.take(9)) == ["z"]


@pytest.mark.parametrize("group", [None, "x"])
def test_an_owner_of_returned_jobs_gets_another_turn(group: str | None) -> None:
    queue = owner_queue(*jobs("a", 3, group))
    batch = queue.take(3, threads=1)
    queue.end(batch, batch[1:])
    assert (len(queue), queue.count("a")) == (2, 2)
    assert names(queue.take(3, threads=1)) == ["a1", "a2"]


def test_a_group_waits_or_runs_until_its_last_batch_has_ended() -> None:
    queue, place = owner_queue(*jobs("a", 1, "x")), Place("a", "x")
    first = queue.take(9)
    for job in (Job("a1", place), Job("a2", Place("a", "y"))):
        queue.put(job)
    queue.end(first, first)  # its lock is still taken
    assert place in queue
    assert names(queue.take(9)) == ["a2"]
    again = queue.take(9)
    assert names(again) == ["a0", "a1"]
    queue.end(again)
    assert place not in queue
