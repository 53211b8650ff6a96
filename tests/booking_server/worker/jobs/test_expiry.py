"""The expiry job and the job of erasures: each task runs once for each row, at its own interval."""

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from support.api.refusals import nothing_changes
from support.databases import databases
from support.world.operations import Operations
from support.world.rows import customer
from support.world.world import DAY, HOUR, World

from booking_core.base import tokens
from booking_core.base.clock import MINUTE, SECOND
from booking_core.base.context import Actor
from booking_core.base.settings import Settings
from booking_core.bookings import cancel_batches
from booking_core.customers import erasures
from booking_core.db import tables
from booking_core.records import retention_clock
from booking_server.worker.jobs import erasure_job
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.periodic import Job


@pytest.fixture
def ops(new_world: Callable[..., World]) -> Operations:
    return Operations(new_world(cancel_under_minimum=True))


def make_job(ops: Operations) -> ExpiryJob:
    world = ops.world
    return ExpiryJob(world.database, world.installation, elapsed_s=lambda: world.clock() / SECOND)


def turn(job: ExpiryJob) -> int:
    return asyncio.run(job.run_once())


def test_turns_within_a_second_do_nothing(ops: Operations, statements: list[str]) -> None:
    job = make_job(ops)
    turn(job)
    statements.clear()
    assert [turn(job) for _ in range(3)] == [0, 0, 0]
    assert statements == []


class UnderMinimum(NamedTuple):
    """A departure that started under its minimum of three with one seat confirmed and two seats pending."""

    departure: str
    confirmed: str
    pending: list[str]


@pytest.fixture
def waiting(ops: Operations) -> UnderMinimum:
    world = ops.world
    departure = world.departure(world.experience(min_participants=3), seats=20)
    world.clock.advance(2 * DAY - MINUTE)
    confirmed = ops.book(departure)["id"]
    pending = [ops.check_out(departure)["id"] for _ in range(2)]
    world.clock.advance(2 * MINUTE)
    with nothing_changes(world):
        turn(make_job(ops))
    return UnderMinimum(departure, confirmed, pending)


def expire(ops: Operations, booking_id: str) -> None:
    ops.world.change(tables.bookings, booking_id, expires_at=ops.world.clock())


def cancel(ops: Operations, booking_id: str) -> None:
    ops.cancel(booking_id)


def pay(ops: Operations, booking_id: str) -> None:
    ops.pay(booking_id, f"pi_{booking_id}")


def confirm(ops: Operations, booking_id: str) -> None:
    ops.confirm(booking_id)


ENDINGS = (expire, cancel, pay, confirm)


@pytest.mark.one_database
@pytest.mark.exhaustive(but="postgresql")
@pytest.mark.parametrize("last", ENDINGS)
@pytest.mark.parametrize("first", ENDINGS)
def test_a_departure_is_counted_when_its_last_pending_booking_has_ended(
    ops: Operations, waiting: UnderMinimum, first: Callable[..., None], last: Callable[..., None]
) -> None:
    """The minimum is reached only when both are confirmed, and nothing is decided while one is pending."""
    world, job, gained = ops.world, make_job(ops), (pay, confirm)
    first(ops, waiting.pending[0])
    turn(job)
    row = world.row(tables.departures, waiting.departure)
    assert (row["status"], row["minimum_checked_at"]) == ("open", None)
    assert ops.booking(waiting.confirmed)["status"] == "confirmed"
    world.clock.advance(MINUTE)
    last(ops, waiting.pending[1])
    turn(job)
    row = world.row(tables.departures, waiting.departure)
    if first in gained and last in gained:
        assert (row["status"], row["minimum_checked_at"]) == ("open", world.clock())
        assert ops.seats_taken(waiting.departure) == 3
    else:
        assert row["status"] == "cancelled"
        assert ops.seats_taken(waiting.departure) == 0
        assert ops.booking(waiting.confirmed)["cancel_reason"] == "min_participants"
    assert world.examine() == []
    world.clock.advance(MINUTE)
    with nothing_changes(world):
        turn(job)


def test_a_pending_booking_delays_no_other_departure(ops: Operations, waiting: UnderMinimum) -> None:
    world = ops.world
    other = world.departure(world.experience(min_participants=3), starts_at=world.clock() + MINUTE)
    ops.book(other)
    world.clock.advance(2 * MINUTE)
    turn(make_job(ops))
    assert world.row(tables.departures, other)["status"] == "cancelled"
    assert world.row(tables.departures, waiting.departure)["status"] == "open"


def test_a_departure_that_ran_with_a_booking_pending_is_not_cancelled(ops: Operations, waiting: UnderMinimum) -> None:
    world = ops.world
    for booking_id in waiting.pending:
        world.change(tables.bookings, booking_id, expires_at=world.clock() + 5 * HOUR)
    world.clock.advance(2 * HOUR)
    for booking_id in waiting.pending:
        ops.cancel(booking_id)
    turn(make_job(ops))
    assert world.row(tables.departures, waiting.departure)["status"] == "open"
    assert ops.booking(waiting.confirmed)["status"] == "confirmed"


def test_a_departure_larger_than_a_batch_waits_for_its_pending_booking(
    ops: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_batches, "BATCH", 2)
    world, job = ops.world, make_job(ops)
    departure = world.departure(world.experience(min_participants=6), seats=20)
    world.clock.advance(2 * DAY - MINUTE)
    for _ in range(5):
        ops.book(departure)
    pending = ops.check_out(departure)["id"]
    world.clock.advance(2 * MINUTE)
    turn(job)
    assert ops.seats_taken(departure) == 6
    expire(ops, pending)
    world.clock.advance(MINUTE)
    turn(job)
    assert ops.seats_taken(departure) == 0
    reasons = sorted(row["cancel_reason"] for row in world.rows(tables.bookings))
    assert reasons == ["abandoned"] + ["min_participants"] * 5
    assert world.examine() == []


# Keys that expire ------------------------------------------------------------------------------------------------


def warned(world: World) -> list[str]:
    return [row["subject_id"] for row in world.rows(tables.effects) if row["kind"] == "staff_key_expiring_mail"]


def test_staff_is_warned_once_a_week_before_a_key_expires(ops: Operations) -> None:
    world = ops.world
    world.key(expires_at=world.clock() + 8 * DAY)
    (key,) = world.rows(tables.api_keys)
    job = make_job(ops)
    turn(job)
    assert warned(world) == []
    world.clock.advance(DAY)
    turn(job)
    (effect,) = [row for row in world.rows(tables.effects) if row["subject_id"] == key["id"]]
    assert json.loads(effect["payload"]) == {"name": "test", "prefix": key["prefix"], "expires_at": key["expires_at"]}
    for _ in range(3):
        world.clock.advance(DAY)
        turn(job)
    assert warned(world) == [key["id"]]
    url = world.database.url.render_as_string(hide_password=False)
    databases.run(url, f"DELETE FROM effects WHERE organization_id = '{world.org}'")
    world.change(tables.api_keys, key["id"], expires_at=world.clock() + 2 * DAY)
    world.clock.advance(HOUR)
    turn(job)
    assert warned(world) == [], "also once the job of retention has deleted the outbox row"


def test_no_warning_for_expired_revoked_or_permanent_keys(ops: Operations, new_world: Callable[..., World]) -> None:
    world, without_mail = ops.world, new_world(notify_staff=False)
    soon = world.clock() + DAY
    world.key()
    world.key(expires_at=world.clock())
    world.key(expires_at=soon, revoked_at=world.clock())
    without_mail.key(expires_at=soon)
    turn(make_job(ops))
    assert warned(world) == warned(without_mail) == []


# Erasures ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(alone: World) -> World:
    return alone


@pytest.fixture
def customer_id(world: World) -> str:
    row = customer(world.org, tokens.new_id(), world.clock())
    del row["organization_id"]
    return world.insert(tables.customers, **row)


def job_of(world: World, days: int | None = None) -> Job:
    return erasure_job(Settings(guest_retention_days=days), world.database, world.installation)


def turn_of(job: Job) -> int:
    return asyncio.run(job.run_turn(asyncio.Event()))


def test_erasures_run_after_a_minute_and_customers_expire_daily(world: World, customer_id: str) -> None:
    clock, job, without = world.clock, job_of(world, days=30), job_of(world)
    actor = Actor(installation=world.installation, organization=world.organization, at=clock())
    world.database.write(lambda tx: erasures.request(tx, actor, customer_id))
    assert turn_of(job) == 0
    clock.advance(MINUTE)
    assert turn_of(job) == 1
    (row,) = world.rows(tables.erasures)
    assert (row["finished_at"], row["addresses"]) == (clock(), "[]")

    other = customer(world.org, tokens.new_id(), clock() - 40 * DAY)
    del other["organization_id"]
    other_id = world.insert(tables.customers, **other)
    world.database.write(lambda tx: retention_clock.advance(tx, None, 0.0))
    clock.advance(DAY - HOUR)
    assert turn_of(without) == turn_of(job) == 0
    clock.advance(HOUR)
    assert turn_of(job) == 1
    assert world.row(tables.customers, other_id)["anonymized_at"] == clock()
