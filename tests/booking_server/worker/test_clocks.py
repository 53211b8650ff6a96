"""A clock that jumps ahead, and the job for expired rows, on both databases.

After a jump nothing expires before the clock was steady for half an hour. The tests of the retention job are in
`jobs/test_retention.py`; rows from a clock that was ahead are tested with the doctor.
"""

import asyncio

import pytest
from support.databases import databases
from support.world.operations import Operations
from support.world.world import DAY, HOUR, World

from booking_core import sandboxes
from booking_core.base.clock import MINUTE, SECOND
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.sandboxes import Clocks
from booking_server.worker.jobs.expiry import SETTLE_S, ExpiryJob

FORWARD = pytest.mark.parametrize("jump", [DAY, 366 * DAY], ids=["day", "year"])
RESTARTS = pytest.mark.parametrize("restarts", [False, True], ids=["the same process", "a new process"])


class Machine:
    """A process that watches the clock of a database and runs the expiry job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.elapsed_s = 1e6  # as long as the machine has run
        self.start()

    def start(self) -> None:
        """Replace the process by a new one."""
        self.job = ExpiryJob(self.world.database, self.world.installation, elapsed_s=lambda: self.elapsed_s)

    def turn(self) -> int:
        return asyncio.run(self.job.run_once())

    def pass_time(self, micros: int) -> None:
        self.world.clock.advance(micros)
        self.elapsed_s += micros / SECOND
        self.turn()

    def step(self, micros: int, *, restarts: bool = False) -> None:
        """Set the clock."""
        self.world.clock.advance(micros)
        if restarts:
            self.start()
        self.turn()


@pytest.fixture
def world(alone: World) -> World:
    alone.change(tables.organizations, alone.org, cancel_under_minimum=True)
    return alone


@pytest.fixture
def machine(world: World) -> Machine:
    running = Machine(world)
    running.turn()
    return running


@pytest.mark.exhaustive(but=("sqlite", "postgresql-a new process-day"))
@FORWARD
@RESTARTS
def test_a_checkout_outlives_a_jump_that_is_reverted(machine: Machine, jump: int, restarts: bool) -> None:
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    observed(machine)
    ops.check_out(departure)
    machine.step(jump + SECOND, restarts=restarts)
    machine.pass_time(10 * MINUTE)
    assert ops.seats_taken(departure) == 1
    machine.step(-jump)
    assert ops.seats_taken(departure) == 1
    machine.pass_time(21 * MINUTE)
    assert ops.seats_taken(departure) == 0


def observed(machine: Machine) -> None:
    """Set the retention clock to the present, as a running retention job does."""
    world = machine.world
    row = {"id": 1, "at": world.clock(), "moved_at": world.clock()}
    url = world.database.url.render_as_string(hide_password=False)
    databases.fill(url, tables.retention_clock, [row])


@FORWARD
def test_a_jump_that_stays_is_logged_and_trusted_after_half_an_hour(
    machine: Machine, caplog: pytest.LogCaptureFixture, jump: int
) -> None:
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    ops.check_out(departure)
    machine.step(jump)
    assert f"leapt ahead by {jump // SECOND} s" in caplog.text
    machine.pass_time(round(SETTLE_S - 1) * SECOND)
    assert ops.seats_taken(departure) == 1
    machine.pass_time(SECOND)
    assert ops.seats_taken(departure) == 0


@pytest.mark.exhaustive(but=("sqlite", "postgresql-a new process-day"))
@FORWARD
@RESTARTS
def test_a_jump_cancels_no_departure_and_warns_of_no_key(machine: Machine, jump: int, restarts: bool) -> None:
    ops, world = Operations(machine.world), machine.world
    starts_at = world.clock() + jump + 5 * MINUTE
    departure = world.departure(world.experience(min_participants=6), starts_at=starts_at)
    world.key(expires_at=world.clock() + jump + 7 * DAY - HOUR)
    ops.book(departure)
    observed(machine)
    machine.step(jump + SECOND, restarts=restarts)
    machine.pass_time(10 * MINUTE)
    assert ops.seats_taken(departure) == 1
    assert [row["warned_at"] for row in world.rows(tables.api_keys)] == [None]


def test_a_slow_database_is_no_jump_of_its_clock(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read at an unknown moment of a request that takes an hour."""
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    read_clocks = sandboxes.read_clocks
    ops.check_out(departure)

    def slow(tx: Tx) -> Clocks:
        machine.elapsed_s += HOUR / SECOND
        world.clock.advance(HOUR)
        return read_clocks(tx)._replace(now=world.clock())

    monkeypatch.setattr(sandboxes, "read_clocks", slow)
    machine.pass_time(SECOND)
    machine.pass_time(SECOND)
    assert ops.seats_taken(departure) == 0
