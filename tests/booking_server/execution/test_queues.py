"""Queues take the owners of jobs in turn, and bound the threads of each."""

from dataclasses import dataclass

import pytest

from booking_server.execution.load import Load
from booking_server.execution.queues import MixedQueue, OwnerQueue, Place, SeparateQueue


@dataclass(frozen=True)
class Job:
    """A job with its place."""

    name: str
    place: Place


def jobs(owner: str, count: int, group: str | None = None) -> list[Job]:
    return [Job(f"{owner}{number}", Place(owner, group)) for number in range(count)]


def names(taken: list[Job]) -> list[str]:
    return [job.name for job in taken]


# Batches of many owners ----------------------------------------------------------------------------------------------


def test_a_single_job_is_second_behind_a_rush_of_another_owner() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in [*jobs("a", 1000), *jobs("b", 1)]:
        queue.put(job)
    assert names(queue.take(4)) == ["a0", "b0", "a1", "a2"]


def test_owners_take_turns_and_keep_the_order_of_their_jobs() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in [*jobs("a", 3), *jobs("b", 2), *jobs("c", 1)]:
        queue.put(job)
    assert names(queue.take(10)) == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert (len(queue), queue.is_ready) == (0, False)


def test_a_batch_begins_with_the_jobs_that_were_taken_before() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in jobs("a", 5):
        queue.put(job)
    first = queue.take(2)
    assert names(queue.take(4, first=first)) == ["a0", "a1", "a2", "a3"]


def test_jobs_that_are_put_back_have_their_turns_again_in_their_order() -> None:
    """Of a batch `a0 b0 a1 a2` only `a0` was run: its owner has had its turn."""
    queue: MixedQueue[Job] = MixedQueue()
    for job in [*jobs("a", 6), *jobs("b", 1)]:
        queue.put(job)
    taken = queue.take(4)
    queue.put(jobs("c", 1)[0])
    queue.put_back(taken[1:])
    assert (len(queue), queue.count("a"), queue.count("b")) == (7, 6, 1)
    queue.done(taken[:1])
    assert names(queue.take(9)) == ["b0", "a1", "c0", "a2", "a3", "a4", "a5"]


def test_an_owner_has_a_turn_in_each_round_although_one_job_is_run_of_each_batch() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in [*jobs("a", 9), *jobs("b", 9), *jobs("c", 2)]:
        queue.put(job)
    run = []
    for _ in range(8):
        first, *others = queue.take(4)
        queue.put_back(others)
        run.append(first)
    assert names(run) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2"]


def test_jobs_that_are_ahead_are_bounded_by_the_turns() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in [*jobs("a", 1000), *jobs("b", 10)]:
        queue.put(job)
    assert queue.ahead_of("c") == 2
    assert queue.ahead_of("b") == 10 + 11
    assert queue.ahead_of("a") == 1010


def test_an_owners_jobs_are_counted_until_they_are_done() -> None:
    queue: MixedQueue[Job] = MixedQueue()
    for job in jobs("a", 3):
        queue.put(job)
    taken = queue.take(2)
    assert (len(queue), queue.count("a")) == (1, 3)
    queue.done(taken)
    assert queue.count("a") == 1


# Batches of one owner ------------------------------------------------------------------------------------------------


def owner_queue(*waiting: Job) -> OwnerQueue[Job]:
    queue: OwnerQueue[Job] = OwnerQueue(threads_per_owner=2)
    for job in waiting:
        queue.put(job)
    return queue


def test_a_batch_has_jobs_of_one_owner_and_owners_take_turns() -> None:
    queue = owner_queue(*jobs("a", 5), *jobs("b", 1))
    assert [names(queue.take(2)) for _ in range(3)] == [["a0", "a1"], ["b0"], ["a2", "a3"]]


def test_each_thread_takes_its_share_of_an_owners_jobs() -> None:
    queue = owner_queue(*jobs("a", 4))
    assert [names(queue.take(4, threads=6)) for _ in range(2)] == [["a0", "a1"], ["a2"]]


def test_an_owner_with_all_its_threads_is_passed_over_until_one_goes_on() -> None:
    queue = owner_queue(*jobs("a", 9))
    first = queue.take(1)
    queue.take(1)
    assert (queue.is_ready, queue.take(1), len(queue)) == (False, [], 7)
    queue.put(jobs("b", 1)[0])
    assert names(queue.take(1)) == ["b0"]
    queue.leave(first[0])
    assert names(queue.take(1)) == ["a2"]
    assert not queue.is_ready


def test_an_owner_whose_jobs_are_put_back_has_another_turn_once_the_thread_goes_on() -> None:
    queue = owner_queue(*jobs("a", 3))
    taken = queue.take(3)
    queue.put_back(taken[1:])
    assert (len(queue), queue.is_ready) == (2, False)
    queue.done(taken[:1])
    queue.leave(taken[0])
    assert names(queue.take(3, threads=1)) == ["a1", "a2"]


def test_an_owner_without_jobs_leaves_nothing_behind() -> None:
    queue = owner_queue(*jobs("a", 2))
    taken = queue.take(2)
    queue.done(taken)
    queue.leave(taken[0])
    assert (len(queue), queue.is_ready, queue.count("a"), queue.ahead_of("a")) == (0, False, 0, 0)
    queue.put(taken[0])
    assert names(queue.take(2, first=[taken[1]])) == ["a1", "a0"]
    assert not queue.is_ready


# Batches of one group ------------------------------------------------------------------------------------------------


def test_a_batch_has_jobs_of_one_group() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(2)
    for job in [*jobs("a", 3, "x"), *jobs("b", 2, "y")]:
        queue.put(job)
    assert [names(queue.take(2)), names(queue.take(2)), names(queue.take(2))] == [["a0", "a1"], ["b0", "b1"], []]


def test_a_group_is_run_by_one_thread_at_a_time() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(2)
    for job in jobs("a", 3, "x"):
        queue.put(job)
    (taken,) = queue.take(1)
    assert "x" in queue
    assert not queue.is_ready
    queue.leave(taken)
    assert names(queue.take(5)) == ["a1", "a2"]


def test_an_owner_has_at_most_its_number_of_threads_and_gets_them_back() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(2)
    for group in "xyz":
        queue.put(Job(group, Place("a", group)))
    queue.put(Job("b", Place("b", "other")))
    taken = [queue.take(9) for _ in range(3)]
    assert [names(each) for each in taken] == [["x"], ["b"], ["y"]]
    assert (queue.is_ready, queue.threads_of("a")) == (False, 2)
    queue.leave(taken[0][0])
    assert names(queue.take(9)) == ["z"]
    assert len(queue) == 0


def test_jobs_without_a_group_are_run_alone() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(2)
    for job in jobs("a", 3):
        queue.put(job)
    first, second = queue.take(9), queue.take(9)
    assert (names(first), names(second), names(queue.take(9))) == (["a0"], ["a1"], [])
    queue.leave(second[0])
    assert names(queue.take(9)) == ["a2"]


def test_a_group_whose_jobs_are_put_back_is_ready_once_the_thread_goes_on() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(2)
    for job in jobs("a", 3, "x"):
        queue.put(job)
    taken = queue.take(2)
    queue.put_back(taken[1:])
    assert (len(queue), queue.is_ready) == (2, False)
    queue.done(taken[:1])
    queue.leave(taken[0])
    assert names(queue.take(9)) == ["a1", "a2"]
    assert queue.ahead_of("a") == 0


def test_retried_jobs_are_joined_by_those_of_their_group() -> None:
    queue: SeparateQueue[Job] = SeparateQueue(1)
    queue.put(Job("a0", Place("a", "x")))
    first = queue.take(9)
    queue.put(Job("a1", Place("a", "x")))
    queue.put(Job("a2", Place("a", "y")))
    assert names(queue.take(9, first=first)) == ["a0", "a1"]
    assert "x" in queue
    queue.leave(first[0])
    assert "x" not in queue
    assert names(queue.take(9)) == ["a2"]


# The estimate of a wait ----------------------------------------------------------------------------------------------


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_wait_is_the_number_of_batches_ahead_times_their_mean_duration() -> None:
    clock = Seconds()
    load = Load(2, 10, clock)
    for _ in range(50):
        load.begin()
        clock.at += 0.5
        load.end()
    assert load.wait_s(0) == 0
    assert load.wait_s(1) == pytest.approx(0.25, rel=0.01)
    assert load.wait_s(41) == pytest.approx(5 * 0.25, rel=0.01)


def test_the_lag_of_the_event_loop_counts_before_and_after() -> None:
    load = Load(1, 10, Seconds())
    load.note_lag(1.5)
    assert load.wait_s(0) == 3.0
    load.note_lag(0.0)
    assert load.wait_s(0) == 0


def test_a_batch_that_takes_long_is_expected_to_take_as_long_again() -> None:
    clock = Seconds()
    load = Load(1, 10, clock)
    load.begin()
    assert load.wait_s(0) == 0
    clock.at += 4
    assert load.wait_s(0) == 4
    load.end()
    assert load.wait_s(0) == 0
    assert 0 < load.wait_s(1) <= 1  # one long batch among short ones counts for a quarter


def test_batches_that_had_no_time_for_all_of_their_jobs_are_expected_to_have_none_again() -> None:
    clock = Seconds()
    load = Load(1, 32, clock)
    for _ in range(50):
        load.begin()
        clock.at += 0.01
        load.end(4)
    assert load.wait_s(40) == pytest.approx(10 * 0.01, rel=0.1)
