"""The retention job deletes rows past their retention, in batches with pauses, and no row earlier."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.databases import due
from support.world.creating import create, created
from support.world.hooks import follow, queue_rows
from support.world.mails import Mails
from support.world.operations import Operations
from support.world.world import DAY, HOUR, SECRET, World, make_world

from booking_core import notifications, webhooks
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db import tables
from booking_core.notifications import ClaimedMail, MailOutcome, MailResult
from booking_core.records import retention_clock
from booking_core.records.retention_clock import CATCH_UP, Measured, moved
from booking_server.worker.jobs.retention import RetentionJob


@pytest.fixture
def world(alone: World) -> World:
    return alone


def settings(world: World) -> Settings:
    return Settings(database_url=str(world.database.url), secret_key=SECRET)


def make_job(world: World, **options: Any) -> RetentionJob:
    """Return the job of a worker that has run for a long time: its retention clock agrees with the clock."""
    job = RetentionJob(settings(world), world.database, elapsed_s=lambda: world.clock() / SECOND, **options)
    long_ago = Measured(world.clock(), world.clock() / SECOND - 1e9)
    for _ in range(2):
        reading = world.database.write(lambda tx: retention_clock.advance(tx, long_ago, world.clock() / SECOND))
    job._measured = reading.measured
    return job


def turn(job: RetentionJob) -> int:
    return asyncio.run(job.run_once())


def book(world: World, count: int = 1) -> None:
    departure = world.departure(world.experience())
    created(world.database, [create(world, departure, f"{departure}-{number}") for number in range(count)])


def subscribe(world: World) -> str:
    at = {"enabled_at": world.clock(), "created_at": world.clock(), "updated_at": world.clock()}
    endpoint = world.insert(tables.webhook_endpoints, url="https://hooks.example/", status="enabled", **at)
    follow(world, endpoint, "booking.created")
    return endpoint


def settle(world: World) -> None:
    queue_rows(world)
    for row in world.rows(tables.deliveries):
        outcome = {"status": "succeeded", "completed_at": world.clock(), "next_attempt_at": None}
        world.change(tables.deliveries, row["id"], **outcome)


def sizes(world: World) -> dict[str, int]:
    names = (tables.deliveries, tables.idempotency, tables.events, tables.webhook_endpoints, tables.bookings)
    return {table.name: len(world.rows(table)) for table in names}


def test_each_kind_is_deleted_after_its_retention(world: World) -> None:
    endpoint = subscribe(world)
    book(world)
    settle(world)
    world.database.write(lambda tx: webhooks.delete(tx, world.caller(), endpoint))
    job = make_job(world)
    before = {"deliveries": 1, "idempotency": 1, "events": 3, "webhook_endpoints": 1, "bookings": 1}
    world.clock.advance(30 * DAY)
    assert (turn(job), sizes(world)) == (0, before)
    world.clock.advance(MINUTE)
    assert turn(job) == 3
    assert sizes(world) == before | {"deliveries": 0, "webhook_endpoints": 0, "idempotency": 0}
    world.clock.advance(60 * DAY)
    assert turn(job) == 3
    assert sizes(world) == {"deliveries": 0, "idempotency": 0, "events": 0, "webhook_endpoints": 0, "bookings": 1}


def test_a_row_is_old_when_its_retention_has_passed_and_not_before(world: World) -> None:
    book(world)
    job, start = make_job(world), world.clock()

    def old_kinds(at: int) -> set[str]:
        job.at = at
        return world.database.read(lambda tx: {kind.name for kind in job.kinds if due.organizations(tx, kind)})

    assert [old_kinds(start + 30 * DAY + more) for more in (0, 1)] == [set(), {"stored_answers"}]
    assert [old_kinds(start + 90 * DAY + more) for more in (0, 1)] == [{"stored_answers"}, {"stored_answers", "events"}]


def test_full_batches_are_followed_by_a_short_pause(world: World) -> None:
    book(world, 5)
    world.clock.advance(31 * DAY)
    job = make_job(world, limit=1, transactions=2)
    counts = [turn(job)]
    for _ in range(3):
        assert turn(job) == 0, "without a pause"
        world.clock.advance(SECOND)
        counts.append(turn(job))
    assert counts == [2, 2, 1, 0]


def test_an_idle_turn_runs_once_a_minute(world: World) -> None:
    job = make_job(world)
    turn(job)
    book(world)
    world.clock.advance(MINUTE - 1)
    texts: list[str] = []
    world.database.observer = texts.append
    assert (turn(job), texts) == (0, [])
    world.clock.advance(1)
    turn(job)
    assert len(texts) == 14, "the clock, eight kinds, two of them with more ends, and the parked rows"


@pytest.mark.one_database
def test_a_failing_kind_does_not_stop_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one table fail, as with a statement timeout; the other tables must not grow."""

    def fail(*_: object, **__: object) -> int:
        raise Unavailable

    monkeypatch.setattr(webhooks, "purge", fail)
    book(world)
    world.clock.advance(31 * DAY)
    with pytest.raises(Unavailable):
        turn(make_job(world))
    assert sizes(world)["idempotency"] == 0


def test_each_organization_keeps_its_own_events(world: World) -> None:
    other = make_world(world.database, world.clock)
    book(world)
    world.clock.advance(91 * DAY)
    book(other)
    turn(make_job(world))
    assert (len(world.rows(tables.events)), len(other.rows(tables.events))) == (0, 3)


# A clock that jumps ----------------------------------------------------------------------------------------------


class Machine:
    """A process with its monotonic clock and its retention job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.elapsed_s = 0.0
        self.start()

    def start(self) -> None:
        """Replace the process by a new one."""
        self.job = RetentionJob(settings(self.world), self.world.database, elapsed_s=lambda: self.elapsed_s)

    def pass_time(self, micros: int) -> None:
        """Let time pass, with one turn each day."""
        while micros > 0:
            step = min(micros, DAY)
            self.world.clock.advance(step)
            self.elapsed_s += step / SECOND
            turn(self.job)
            micros -= step


def everything(world: World) -> dict[str, int]:
    return sizes(world) | {table.name: len(world.rows(table)) for table in (tables.mails, tables.effects, tables.holds)}


@pytest.mark.exhaustive(but=("sqlite-the same process-year", "sqlite-a new process-day"))
@pytest.mark.parametrize("jump", [DAY, 31 * DAY, 366 * DAY], ids=["day", "month", "year"])
@pytest.mark.parametrize("restarts", [False, True], ids=["the same process", "a new process"])
def test_a_clock_that_jumps_ahead_deletes_nothing(world: World, jump: int, restarts: bool) -> None:
    ops = Operations(world)
    subscribe(world)
    book(world, 3)
    settle(world)
    ops.hold(world.departure(world.experience(), starts_at=world.clock() + 90 * DAY), 1)
    machine = Machine(world)
    machine.pass_time(29 * DAY)
    before = everything(world)
    assert before["idempotency"] == 3
    world.clock.advance(jump)
    if restarts:
        machine.start()
    machine.pass_time(2 * HOUR)
    assert everything(world) == before
    world.clock.advance(-jump)
    machine.pass_time(HOUR)
    assert everything(world) == before
    machine.pass_time(DAY)
    assert len(world.rows(tables.idempotency)) == 0, "30 days have passed now"


def test_an_idempotency_key_books_once_also_after_a_jump(world: World) -> None:
    departure = world.departure(world.experience(), starts_at=world.clock() + 800 * DAY)
    once = [create(world, departure, "a-key-of-a-test")]
    created(world.database, once)
    machine = Machine(world)
    turn(machine.job)
    world.clock.advance(366 * DAY)
    machine.pass_time(5 * HOUR)
    created(world.database, once)
    assert len(world.rows(tables.bookings)) == 1


def test_the_first_turn_distrusts_a_clock_ahead_of_the_newest_event(world: World) -> None:
    book(world)
    world.clock.advance(366 * DAY)
    Machine(world).pass_time(2 * HOUR)
    assert len(world.rows(tables.idempotency)) == 1


def test_a_long_pause_of_the_service_is_caught_up_with(world: World) -> None:
    book(world)
    machine = Machine(world)
    machine.pass_time(HOUR)
    world.clock.advance(40 * DAY)
    machine.start()
    machine.pass_time(29 * DAY // CATCH_UP)
    assert len(world.rows(tables.idempotency)) == 1
    machine.pass_time(12 * DAY // CATCH_UP)
    assert len(world.rows(tables.idempotency)) == 0


@pytest.mark.exhaustive(but="postgresql")
def test_several_workers_follow_a_jump_no_faster_than_one(world: World) -> None:
    book(world)
    machines = [Machine(world) for _ in range(4)]
    for machine in machines:
        turn(machine.job)
    world.clock.advance(366 * DAY)
    for _ in range(29 * 4 // CATCH_UP):
        world.clock.advance(6 * HOUR)
        for machine in machines:
            machine.elapsed_s += 6 * HOUR / SECOND
            turn(machine.job)
    assert len(world.rows(tables.idempotency)) == 1


@pytest.mark.one_database
@pytest.mark.parametrize("back", [HOUR, DAY, 366 * DAY], ids=["hour", "day", "year"])
def test_a_clock_set_back_neither_hastens_nor_delays_a_deletion(world: World, back: int) -> None:
    world.clock.advance(400 * DAY)
    machine = Machine(world)
    turn(machine.job)
    world.clock.advance(-back)
    book(world)
    machine.pass_time(30 * DAY)
    assert len(world.rows(tables.idempotency)) == 1
    machine.pass_time(HOUR)
    assert len(world.rows(tables.idempotency)) == 0


def test_a_clock_ahead_is_logged_once_and_its_return_too(world: World, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(world)
    caplog.set_level("INFO", "booking.retention")
    machine.pass_time(2 * HOUR)
    world.clock.advance(366 * DAY)
    machine.pass_time(3 * HOUR)
    world.clock.advance(-366 * DAY)
    machine.pass_time(3 * HOUR)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "365.1 days ahead" in caplog.text


@pytest.mark.parametrize(
    ("at", "now", "measured_at", "elapsed_s", "expected"),
    [
        (100, 101, 100, 1.0, 101),
        (100, 100 + 8 * SECOND, 100, 1.0, 100 + 8 * SECOND),
        (100, 101 + 8 * SECOND, 100, 1.0, 100 + 8 * SECOND),
        (100, 100 - 9 * SECOND, 100, 1.0, 100 - 8 * SECOND),
        (100, 500, 100, 0.0, 100),
        (100, 500, 100, -5.0, 100),
        # Another process has moved it further, or not as far, as this one would have.
        (100 + 20 * SECOND, 100 + 99 * SECOND, 100, 1.0, 100 + 20 * SECOND),
        (100 + 4 * SECOND, 100 + 99 * SECOND, 100, 1.0, 100 + 8 * SECOND),
    ],
)
def test_the_retention_clock_moves_in_bounded_steps(
    at: int, now: int, measured_at: int, elapsed_s: float, expected: int
) -> None:
    assert moved(at, now, Measured(measured_at, 0.0), elapsed_s) == expected


# Mails and holds -------------------------------------------------------------------------------------------------


def record(mails: Mails, claimed: Sequence[ClaimedMail], outcome: MailOutcome) -> None:
    tried = [MailResult(mail, outcome, "550 no such user") for mail in claimed]
    mails.world.database.write(lambda tx: notifications.record(tx, tried))


def outbox_statuses(world: World) -> dict[str, str]:
    return {row["kind"]: row["status"] for row in world.rows(tables.effects)}


@pytest.mark.one_database
def test_an_ended_mail_is_deleted_with_its_outbox_row_after_thirty_days(world: World) -> None:
    mails, job = Mails(world), make_job(world)
    mails.book(notify_staff=False)
    mails.write()
    world.clock.advance(HOUR)
    record(mails, mails.claim(), MailOutcome.SENT)
    mails.book("another-key-of-a-test", notify_staff=False)
    mails.write()
    record(mails, mails.claim(), MailOutcome.REFUSED)
    assert {row["status"] for row in world.rows(tables.mails)} == {"sent", "failed"}
    world.clock.advance(30 * DAY)
    turn(job)
    assert (len(world.rows(tables.mails)), len(world.rows(tables.effects))) == (2, 2)
    world.clock.advance(MINUTE)
    assert turn(job) == 3
    assert (world.rows(tables.mails), world.rows(tables.effects)) == ([], [])
    assert world.examine() == []


def test_outbox_rows_without_a_mail_are_deleted_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mails, job = Mails(world), make_job(world)
    world.change(tables.organizations, world.org, staff_email=None)
    mails.book()
    monkeypatch.setattr(notifications.rendering, "render", None)
    for _ in range(10):
        mails.write()
        world.clock.advance(2 * HOUR)
    assert outbox_statuses(world) == {"booking_confirmation_mail": "failed", "staff_booking_mail": "done"}
    world.clock.advance(30 * DAY - 20 * HOUR + MINUTE)
    turn(job)
    assert outbox_statuses(world) == {"booking_confirmation_mail": "failed"}
    world.clock.advance(DAY)
    turn(job)
    assert outbox_statuses(world) == {}


def test_holds_are_deleted_thirty_days_after_they_expired(world: World) -> None:
    ops, job = Operations(world), make_job(world)
    departure = world.departure(world.experience(), starts_at=world.clock() + 90 * DAY)
    ops.hold(departure, 1, for_s=86_400)
    ops.hold(departure, 1)
    ops.release(ops.hold(departure, 1))
    world.clock.advance(31 * DAY)
    live = ops.hold(departure, 1)
    turn(job)
    assert len(world.rows(tables.holds)) == 4
    world.clock.advance(MINUTE)
    turn(job)
    assert [row["id"] for row in world.rows(tables.holds)] == [live]
    assert world.examine() == []


def test_run_all_deletes_everything_old_and_a_dry_run_counts_it(world: World) -> None:
    subscribe(world)
    book(world, 5)
    settle(world)
    world.clock.advance(91 * DAY)
    job = make_job(world, limit=2)
    before = sizes(world)
    counts = {"deliveries": 5, "stored_answers": 5, "events": 2 * 5 + 1}
    counted = asyncio.run(job.run_all(dry_run=True))
    assert ({kind: count for kind, count in counted.items() if count}, sizes(world)) == (counts, before)
    deleted = asyncio.run(job.run_all())
    assert {kind: count for kind, count in deleted.items() if count} == counts
    assert sizes(world) == before | {"deliveries": 0, "idempotency": 0, "events": 0}
    assert sum(asyncio.run(job.run_all()).values()) == 0
