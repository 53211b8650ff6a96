"""The job of erasures: requests at once, and a pass over old customers once a day."""

import asyncio

import pytest
from support.world.rows import customer
from support.world.world import DAY, HOUR, World

from booking_core.base import tokens
from booking_core.base.clock import MINUTE
from booking_core.base.context import Actor
from booking_core.base.settings import Settings
from booking_core.customers import erasures
from booking_core.db import tables
from booking_core.records import retention_clock
from booking_server.worker.jobs import erasure_job
from booking_server.worker.jobs.periodic import Job


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


def turn(job: Job) -> int:
    return asyncio.run(job.run_turn(asyncio.Event()))


def test_erasures_run_after_a_minute_and_customers_expire_daily(world: World, customer_id: str) -> None:
    clock, job, without = world.clock, job_of(world, days=30), job_of(world)
    actor = Actor(installation=world.installation, organization=world.organization, at=clock())
    world.database.write(lambda tx: erasures.request(tx, actor, customer_id))
    assert turn(job) == 0
    clock.advance(MINUTE)
    assert turn(job) == 1
    (row,) = world.rows(tables.erasures)
    assert (row["finished_at"], row["addresses"]) == (clock(), "[]")

    other = customer(world.org, tokens.new_id(), clock() - 40 * DAY)
    del other["organization_id"]
    other_id = world.insert(tables.customers, **other)
    world.database.write(lambda tx: retention_clock.advance(tx, None, 0.0))
    clock.advance(DAY - HOUR)
    assert turn(without) == turn(job) == 0
    clock.advance(HOUR)
    assert turn(job) == 1
    assert world.row(tables.customers, other_id)["anonymized_at"] == clock()
