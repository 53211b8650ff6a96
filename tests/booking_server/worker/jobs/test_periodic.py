"""The turns of periodic jobs: their pauses, their intervals, and failures that stop no other task."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.serving import jumping_loop

from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.errors import Unavailable
from booking_server.worker.jobs.periodic import Job, SweepJob, Task
from booking_server.worker.loops import FailureLog, JobLoop, Turns


def test_a_job_pauses_when_idle_and_longer_with_each_failure() -> None:
    turns = [(0.5, 9), (0.5, 0), (2.5, None), (3.0, None), (4.0, None), (6.0, 0), (8.0, None), (8.5, None)]
    turns += [(9.5, None), (11.5, None), (15.5, None), (20.5, None), (25.5, 0)]
    """The times of the turns, and the rows of each; None for a turn that fails."""
    times = list[float]()

    class Rows(Job):
        name = "rows"

        async def run_turn(self, stop: asyncio.Event) -> int:
            _, count = turns[len(times)]
            times.append(round(asyncio.get_running_loop().time(), 1))
            if len(times) == len(turns):
                stop.set()
            if count is None:
                raise Unavailable
            return count

    jumping_loop.run(JobLoop(Rows(), FailureLog(), Turns()).run(asyncio.Event()))
    assert times == [time for time, _ in turns]


@pytest.mark.parametrize(
    ("error", "line", "count"),
    [
        (Unavailable("no answer"), "the database is unavailable, mail waits: no answer", 1),
        (Unavailable(fault="disk full"), "", 0),
        (ValueError("a defect"), "a turn of mail failed", 3),
    ],
    ids=repr,
)
def test_an_outage_is_logged_once_and_each_turn_with_a_defect(
    caplog: pytest.LogCaptureFixture, error: Exception, line: str, count: int
) -> None:
    """The database logs a fault of the machine itself."""
    failures = FailureLog()
    for _ in range(3):
        failures.add("mail", error)
    assert [record.getMessage() for record in caplog.records] == [line] * count


class Sweeping:
    """A sweep that counts its turns, and whose turns fail with the error."""

    def __init__(self) -> None:
        self.turns = 0
        self.has_more = False
        self.error: Exception | None = None

    async def run_turn(self, stop: asyncio.Event, *, batches: int) -> int:
        self.turns += 1
        if self.error:
            raise self.error
        return 3


def job_of(now: list[int], *sweeps: Any, **intervals: int) -> SweepJob:
    database: Any = SimpleNamespace(clock=lambda: now[0])
    return SweepJob("sweeping", database, *(Task(sweep=sweep, **{"every": MINUTE} | intervals) for sweep in sweeps))


def test_a_task_runs_at_its_interval_or_sooner_with_more_to_do() -> None:
    now, sweep = [5 * MINUTE], Sweeping()
    job = job_of(now, sweep, pause=SECOND)
    for step, has_more, turns in (
        (0, True, 1),
        (SECOND - 1, True, 1),
        (1, False, 2),
        (MINUTE - 1, False, 2),
        (1, False, 3),
        (-MINUTE, False, 4),
    ):
        now[0] += step
        sweep.has_more = has_more
        asyncio.run(job.run_turn(asyncio.Event()))
        assert sweep.turns == turns
    job.tasks[0].make_due()
    assert asyncio.run(job.run_turn(asyncio.Event())) == 3


@pytest.mark.parametrize(
    ("error", "turns"), [(ValueError("a defect"), 1), (Unavailable(), 1), (Unavailable(for_all=True), 0)], ids=repr
)
def test_a_task_that_fails_stops_no_other_unless_the_database_is_away(error: Exception, turns: int) -> None:
    failing, other = Sweeping(), Sweeping()
    failing.error = error
    with pytest.raises(type(error)):
        asyncio.run(job_of([MINUTE], failing, other).run_turn(asyncio.Event()))
    assert other.turns == turns
