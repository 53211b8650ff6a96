"""Faults of the worker, one at a time: it is killed, stopped, duplicated, and receivers fail in the middle."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.databases.databases import connect
from support.receivers.receivers import (
    OK,
    Answer,
    Receipt,
    Receiver,
    Receivers,
    Worker,
    hang,
    plain,
    wait_until,
    workers,
)
from support.serving.servers import new_world
from support.world.hooks import Hooks

from booking_cli.framework.exit_codes import ExitCode
from booking_core.base.clock import SECOND, system_clock

DEADLINE = {"BOOKING_WEBHOOK_DEADLINE": "0.9"}
"""For tests that wait until a lease has passed. The test acts on a worker before the receiver answers, since a busy
machine may be too slow afterwards."""
PATIENCE = {"BOOKING_WEBHOOK_DEADLINE": "60"}
"""For all others: no attempt times out, however busy the machine is."""
LEASE_S = 3
"""Of the short deadline."""
RECLAIMED_WITHIN_S = LEASE_S + 60


@dataclass
class Setup:
    """A receiver, its endpoint, and workers that are not started yet."""

    receivers: Receivers
    receiver: Receiver
    hooks: Hooks
    endpoint: str
    workers: list[Worker]

    def delivery(self) -> dict[str, Any]:
        return self.hooks.delivery()

    def is_over(self) -> bool:
        return all(row["status"] != "queued" for row in self.hooks.deliveries())

    def outcomes(self) -> list[str | None]:
        """Return the outcome of each attempt, in order."""
        return [outcome(attempt) for attempt in self.hooks.attempts()]


def outcome(attempt: dict[str, Any]) -> str:
    if attempt["duration_ms"] is None:
        return "lost"
    return attempt["error"] or "ok"


@pytest.fixture
def deadline() -> dict[str, str]:
    return PATIENCE


on_postgresql = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
"""An SQLite file has one worker, in the process that commits."""
with_short_leases = pytest.mark.parametrize("deadline", [pytest.param(DEADLINE, id="short leases")])


@pytest.fixture
def setup(fresh_database_url: str, tmp_path: Path, deadline: dict[str, str]) -> Iterator[Setup]:
    with (
        Receivers() as receivers,
        new_world(fresh_database_url) as world,
        workers(fresh_database_url, tmp_path, 2, **deadline) as started,
    ):
        receiver, hooks = receivers.open(), Hooks(world)
        yield Setup(receivers, receiver, hooks, hooks.endpoint(url=receiver.url), list(started))


def lease_has_passed(hooks: Hooks) -> None:
    """Waits for that: a worker that starts later takes the delivery up at once."""

    def passed() -> bool:
        ends = [row["lease_until"] for row in hooks.deliveries()]
        return all(end is None or end <= system_clock() for end in ends)

    wait_until(passed, "the lease has passed")


def in_turn(*answers: Answer) -> Callable[[Receipt], Answer]:
    """Return these answers one after the other, then acceptance."""
    remaining = list(answers)
    return lambda _: remaining.pop(0) if remaining else OK


# Kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but="postgresql-as")
@with_short_leases
@pytest.mark.parametrize("answer", [hang, OK], ids=["before it was accepted", "as it was accepted"])
def test_deliveries_of_a_killed_worker_repeat_with_their_event_ids(setup: Setup, answer: Answer) -> None:
    worker = setup.workers[0]

    def kill_and_answer(_: Receipt) -> Answer:
        setup.receiver.choose = in_turn()
        worker.kill()
        return answer

    setup.receiver.choose = kill_and_answer
    (event,) = setup.hooks.publish()
    worker.start()
    wait_until(lambda: setup.receiver.accepted if answer is OK else setup.receiver.receipts, "the first request")
    worker.start()
    wait_until(setup.is_over, "the delivery is over")
    first, second = setup.receiver.receipts
    assert [receipt.accepted for receipt in (first, second)] == [answer is OK, True]
    assert (first.event_id, second.event_id) == (event, event)
    assert first.attempt_id != second.attempt_id
    assert first.body == second.body
    assert setup.outcomes() == ["lost", "ok"]
    assert [attempt["id"] for attempt in setup.hooks.attempts()] == [first.attempt_id, second.attempt_id]
    assert (setup.delivery()["status"], setup.delivery()["attempt_count"]) == ("succeeded", 1)
    before, after = (attempt["started_at"] for attempt in setup.hooks.attempts())
    assert LEASE_S * SECOND <= after - before <= RECLAIMED_WITHIN_S * SECOND


# Stops -----------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive(but="sqlite")
def test_a_worker_that_is_asked_to_stop_finishes_what_it_sends(setup: Setup) -> None:
    answer, let_go = setup.receivers.holding()
    setup.receiver.choose = in_turn(answer)
    setup.hooks.publish()
    worker = setup.workers[0].start()
    setup.receiver.wait_for(1)
    worker.signal(signal.SIGTERM)
    let_go()
    assert worker.wait_until_it_ends() == ExitCode.OK
    assert setup.outcomes() == ["ok"]
    assert setup.delivery()["status"] == "succeeded"


@pytest.mark.exhaustive(but="sqlite")
def test_a_worker_that_is_asked_twice_finishes_nothing_more(setup: Setup) -> None:
    setup.receiver.choose = lambda _: hang
    setup.hooks.publish()
    worker = setup.workers[0].start()
    setup.receiver.wait_for(1)
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "the worker stops" in worker.log, "it has heard that it is to stop")
    worker.signal(signal.SIGTERM)
    assert worker.wait_until_it_ends() == -signal.SIGTERM
    assert setup.outcomes() == ["lost"]


# More than one worker --------------------------------------------------------------------------------------------


def test_a_second_worker_is_refused_beside_sqlite_and_welcome_beside_postgresql(setup: Setup) -> None:
    first, second = setup.workers
    first.start().wait_until_it_runs()
    second.start()
    if setup.hooks.database.is_sqlite:
        assert second.wait_until_it_ends() == ExitCode.USAGE
        assert "already" in second.log
        assert "Traceback" not in second.log
    else:
        second.wait_until_it_runs()
        assert second.stop() == ExitCode.OK
    setup.hooks.publish()
    setup.receiver.wait_for(1)
    assert first.stop() == ExitCode.OK
    assert setup.delivery()["status"] == "succeeded"


@pytest.mark.exhaustive(but="postgresql")
def test_a_worker_without_notifications_finds_due_rows(setup: Setup) -> None:
    worker = setup.workers[0].start().wait_until_it_runs()
    setup.receiver.choose = in_turn(plain(500))
    setup.hooks.publish()
    setup.receiver.wait_for(2)
    assert worker.stop() == ExitCode.OK
    assert setup.outcomes() == ["http_status", "ok"]
    first, second = setup.hooks.attempts()
    assert second["started_at"] >= first["started_at"] + SECOND


@on_postgresql
def test_a_worker_that_no_bell_can_wake_finds_what_is_due(setup: Setup) -> None:
    url = setup.hooks.database.url
    worker = setup.workers[0].start().wait_until_it_runs()
    with connect(url.render_as_string(hide_password=False)) as connection:
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'booking notifier'"
        terminate += " AND datname = current_database()"
        for count in (1, 2, 3):
            wait_until(lambda: connection.execute(terminate).fetchall(), "it listens, and is cut off")
            setup.hooks.publish()
            setup.receiver.wait_for(count)
    assert worker.stop() == ExitCode.OK
    assert set(setup.outcomes()) == {"ok"}
    assert "Traceback" not in worker.log
