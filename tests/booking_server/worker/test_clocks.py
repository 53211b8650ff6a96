"""A clock that jumps ahead or is set back, against each job of the worker, on both databases.

After a jump ahead nothing expires before the clock has settled; after it was set back nothing waits longer than its own
wait. The tests of the retention job are in `jobs/test_retention.py`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support import databases
from support.hooks import Hooks
from support.mails import Mails
from support.money import Till
from support.operations import Operations
from support.world import DAY, HOUR, SECRET, FixedClock, World, make_world

from booking_core import erasures, notifications, webhooks
from booking_core.checkouts import CHECK_DELAYS, first_check
from booking_core.clock import END_OF_TIME, MINUTE, SECOND
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.departure_touches import WINDOW
from booking_core.models.limits import WEBHOOK_WAITS_S
from booking_core.models.webhooks import AttemptError
from booking_core.notifications import MailOutcome, MailResult
from booking_core.payments import RETRY_DELAY_MAX_S, RefundOutcome
from booking_core.realign import all_kinds, delivery_waits
from booking_core.settings import Settings
from booking_core.tokens import new_id
from booking_server.adapters.webhook_client import Sent
from booking_server.worker.clock_watch import SETTLE_S, ClockWatch
from booking_server.worker.jobs.expiry import ExpiryJob
from booking_server.worker.jobs.mail import mail_job
from booking_server.worker.worker import Worker

LEASE_S = 31
FORWARD = pytest.mark.parametrize("jump", [DAY, 366 * DAY], ids=["day", "year"])
BACK = pytest.mark.parametrize("back", [HOUR, DAY, 366 * DAY], ids=["hour", "day", "year"])
RESTARTS = pytest.mark.parametrize("restarts", [False, True], ids=["the same process", "a new process"])


class Machine:
    """A process that watches the clock of a database and runs the expiry job."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.elapsed_s = 1000.0
        self.start()

    def start(self) -> None:
        """Replace the process by a new one."""
        self.watch = ClockWatch(elapsed_s=lambda: self.elapsed_s)
        realign = all_kinds(self.world.installation, waits_s=WEBHOOK_WAITS_S, lease_s=LEASE_S)
        self.job = ExpiryJob(self.world.database, self.world.installation, watch=self.watch, realign=realign)

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
def world(fresh_database_url: str, clock: FixedClock) -> Iterator[World]:
    database = Database(fresh_database_url, clock=clock)
    yield make_world(database, clock, cancel_under_minimum=True)
    database.close()


@pytest.fixture
def machine(world: World) -> Machine:
    running = Machine(world)
    running.turn()
    return running


@pytest.fixture
def hooks(world: World) -> Hooks:
    return Hooks(world)


def record(mails: Mails, claimed: Sequence[Any], outcome: MailOutcome) -> None:
    tried = [MailResult(each, outcome, "450 later") for each in claimed]
    mails.world.database.write(lambda tx: notifications.record(tx, tried))


# Set back --------------------------------------------------------------------------------------------------------


@BACK
@RESTARTS
@pytest.mark.parametrize("failures", range(6))
def test_a_delivery_waits_no_longer_than_its_own_wait_and_no_shorter(
    machine: Machine, hooks: Hooks, back: int, restarts: bool, failures: int
) -> None:
    hooks.endpoint()
    hooks.publish()
    for number in range(failures):
        hooks.fail(hooks.one())
        if number < failures - 1:
            machine.pass_time(WEBHOOK_WAITS_S[number] * SECOND)
    wait = WEBHOOK_WAITS_S[failures - 1] * SECOND if failures else 0
    before = hooks.delivery()["next_attempt_at"] - machine.world.clock()
    assert before == wait
    machine.step(-back, restarts=restarts)
    if not failures:  # what was published is sent by its place in the log, and waits for no instant
        assert hooks.one().number == 1
        return
    left = hooks.delivery()["next_attempt_at"] - machine.world.clock()
    assert left == round(wait * 1.05), "its wait from now, and the jitter that it may have had"
    machine.pass_time(left - 1)
    assert hooks.claim() == []
    machine.pass_time(1)
    assert hooks.one().number == failures + 1


@BACK
def test_a_delivery_that_was_retried_by_hand_is_due_at_once(machine: Machine, hooks: Hooks, back: int) -> None:
    hooks.endpoint()
    hooks.publish()
    hooks.fail_until_dead()
    asked = {"status": "queued", "max_attempts": 7, "completed_at": None, "next_attempt_at": machine.world.clock()}
    machine.world.change(tables.deliveries, hooks.delivery()["id"], **asked)
    machine.start()
    machine.turn()
    machine.step(-back)
    assert hooks.one().number == 7


@BACK
@RESTARTS
def test_a_lease_ends_after_its_length(machine: Machine, hooks: Hooks, back: int, restarts: bool) -> None:
    hooks.endpoint()
    hooks.publish()
    hooks.claim(lease_s=LEASE_S)  # by a worker that dies then
    machine.step(-back, restarts=restarts)
    assert hooks.rescue() == 0
    machine.pass_time(LEASE_S * SECOND)
    assert hooks.rescue() == 1
    machine.pass_time(SECOND)
    assert hooks.one().number == 2


@BACK
def test_an_attempt_in_flight_is_not_made_twice(machine: Machine, hooks: Hooks, back: int) -> None:
    hooks.endpoint()
    hooks.publish()
    claimed = hooks.one(lease_s=LEASE_S)
    machine.step(-back)
    assert (hooks.claim(), hooks.rescue()) == ([], 0)
    hooks.succeed(claimed)
    assert hooks.delivery()["status"] == "succeeded"


@BACK
@RESTARTS
def test_mails_are_written_and_sent_after_their_own_wait(machine: Machine, back: int, restarts: bool) -> None:
    mails = Mails(machine.world)
    mails.book()
    machine.step(-back, restarts=restarts)
    assert mails.write() == 2
    machine.world.clock.advance(back)
    machine.start()
    machine.turn()
    mails.book("another-key-of-a-test", notify_staff=False)
    assert mails.write() == 1
    machine.step(-back, restarts=restarts)
    claimed = mails.claim()
    assert len(claimed) == 3
    record(mails, claimed, MailOutcome.DELAYED)
    machine.step(-back, restarts=restarts)
    assert mails.claim() == []
    machine.pass_time(15 * MINUTE)
    assert len(mails.claim()) == 3


@BACK
def test_a_mail_that_waits_for_a_mail_server_goes_on_waiting(machine: Machine, back: int) -> None:
    mails = Mails(machine.world)
    mails.book(notify_staff=False)
    mails.write()
    record(mails, mails.claim(), MailOutcome.PARKED)
    machine.step(-back, restarts=True)
    assert [row["next_attempt_at"] for row in machine.world.rows(tables.mails)] == [END_OF_TIME]


@BACK
@RESTARTS
def test_a_refund_is_sent_after_a_quarter_of_an_hour_at_most(machine: Machine, back: int, restarts: bool) -> None:
    till = Till(machine.world)
    booking = till.paid()
    till.request_refund(booking)
    machine.step(-back, restarts=restarts)
    machine.pass_time(RETRY_DELAY_MAX_S * SECOND)
    (claimed,) = till.claim()
    till.answer(claimed, RefundOutcome.UNKNOWN)
    machine.step(-back, restarts=restarts)
    machine.pass_time(RETRY_DELAY_MAX_S * SECOND)
    (again,) = till.claim()
    assert again.look_first, "it is unknown how long ago the first one was sent"


@BACK
@RESTARTS
def test_seats_are_held_no_longer_than_intended(machine: Machine, back: int, restarts: bool) -> None:
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    ops.check_out(departure)
    hold = ops.hold(departure, 2, for_s=600)
    machine.step(-back, restarts=restarts)
    row, (booking,) = world.row(tables.holds, hold), world.rows(tables.bookings)
    assert row["expires_at"] - world.clock() == 10 * MINUTE
    assert booking["expires_at"] - world.clock() == 30 * MINUTE
    machine.pass_time(30 * MINUTE - SECOND)
    assert ops.taken(departure) == 1
    machine.pass_time(2 * SECOND)
    assert ops.taken(departure) == 0


def test_an_endpoint_with_a_limit_pauses_no_longer_than_its_limit_asks_for(machine: Machine, hooks: Hooks) -> None:
    endpoint = hooks.endpoint(max_per_second=1)
    hooks.publish(times=2)
    hooks.one()
    machine.step(-HOUR)
    assert hooks.cursor(endpoint)["next_send_at"] - machine.world.clock() == webhooks.PAUSE_MAX
    assert hooks.claim() == []
    machine.pass_time(webhooks.PAUSE_MAX)
    assert hooks.one().pause == webhooks.PAUSE_MAX


@pytest.mark.parametrize("checks", [0, 3])
def test_a_payment_is_looked_up_before_its_checkout_ends(machine: Machine, checks: int) -> None:
    world = machine.world
    Operations(world).check_out(world.departure(world.experience(), starts_at=world.clock() + 400 * DAY))
    (booking,) = world.rows(tables.bookings)
    row = {"booking_id": booking["id"], "intent_id": "pi_1", "status": "open", "amount_minor": 1, "currency": "NOK"}
    row |= {"check_at": first_check(world.clock(), booking["expires_at"]), "check_count": checks}
    world.insert(tables.payment_intents, **row, created_at=world.clock(), updated_at=world.clock())
    machine.step(-DAY)
    (booking,), (intent,) = world.rows(tables.bookings), world.rows(tables.payment_intents)
    assert intent["check_at"] == booking["expires_at"] - MINUTE


def test_a_payment_without_an_open_checkout_is_looked_up_after_its_delay(machine: Machine) -> None:
    world = machine.world
    departure = world.departure(world.experience())
    counts = (0, 3, 99)
    for _ in counts:
        Operations(world).book(departure)
    for count, booking in zip(counts, world.rows(tables.bookings), strict=True):
        row = {"booking_id": booking["id"], "intent_id": f"pi_{count}", "status": "open", "amount_minor": 1}
        row |= {"currency": "NOK", "check_at": world.clock() + HOUR, "check_count": count}
        world.insert(tables.payment_intents, **row, created_at=world.clock(), updated_at=world.clock())
    machine.step(-DAY)
    waits = {row["check_count"]: row["check_at"] - world.clock() for row in world.rows(tables.payment_intents)}
    assert waits == {0: CHECK_DELAYS[0], 3: HOUR, 99: CHECK_DELAYS[-1]}


def test_a_departure_is_announced_in_its_window_or_at_the_end_of_its_holds(machine: Machine) -> None:
    ops, world = Operations(machine.world), machine.world
    quiet, held = (world.departure(world.experience(), starts_at=world.clock() + 400 * DAY) for _ in range(2))
    ends_at = world.row(tables.holds, ops.hold(held, 2, for_s=600))["expires_at"]
    noted = {quiet: world.clock() + WINDOW, held: ends_at}
    for departure, due_at in noted.items():
        world.insert(tables.departure_touches, departure_id=departure, due_at=due_at)
    machine.start()
    machine.turn()
    assert announced(world) == noted, "the clock is right"
    machine.step(-DAY)
    now = world.clock()
    assert announced(world) == {quiet: now, held: now}, "the hold ends earlier too, and is looked for again"


def announced(world: World) -> dict[str, int]:
    return {row["departure_id"]: row["due_at"] for row in world.rows(tables.departure_touches)}


@BACK
def test_an_erasure_is_processed_within_minutes(machine: Machine, back: int) -> None:
    world = machine.world
    row = {"customer_id": new_id(), "addresses": "[]", "step": "bookings", "position": "[]"}
    world.insert(tables.erasures, **row, requested_at=world.clock(), progressed_at=world.clock())
    machine.step(-back)
    (found,) = world.rows(tables.erasures)
    assert found["requested_at"] == world.clock()
    world.clock.advance(erasures.SETTLED_AFTER)
    page = world.database.read(lambda tx: erasures.DUE.find(tx, world.org, after=None, limit=1))
    assert [each.key for each in page.rows] == [row["customer_id"]]


@BACK
def test_a_second_realignment_changes_nothing(machine: Machine, hooks: Hooks, back: int) -> None:
    mails, ops, till = Mails(machine.world), Operations(machine.world), Till(machine.world)
    hooks.endpoint()
    hooks.publish(times=3)
    hooks.fail(*hooks.claim(free=2))
    hooks.claim()
    mails.book()
    till.with_refund()
    ops.hold(till.departure_id, 1)
    ops.check_out(till.departure_id)
    machine.step(-back)
    everything = [machine.world.rows(table) for table in tables.metadata.sorted_tables if "organization_id" in table.c]
    machine.start()
    machine.turn()
    assert everything == [
        machine.world.rows(table) for table in tables.metadata.sorted_tables if "organization_id" in table.c
    ]


def test_times_of_a_correct_clock_are_left_alone(machine: Machine, hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.publish(times=40)
    hooks.record(*(hooks.result(each, AttemptError.TIMEOUT) for each in hooks.claim()), jitter=lambda: 1.0)
    before = hooks.deliveries()
    machine.start()
    machine.turn()
    assert hooks.deliveries() == before


def test_the_longest_wait_is_that_of_the_table_with_its_jitter() -> None:
    waits = delivery_waits(WEBHOOK_WAITS_S)
    assert waits == {left: round(wait_s * 1.05 * SECOND) for left, wait_s in enumerate((0, 28800, 7200, 1800, 300, 60))}


@BACK
def test_an_endpoint_that_fails_is_disabled_72_hours_after_the_clock_was_set_back(
    machine: Machine, hooks: Hooks, back: int
) -> None:
    world = machine.world
    endpoint = hooks.endpoint()
    world.clock.advance(back)
    hooks.publish()
    hooks.succeed(*hooks.claim())
    world.clock.advance(-back)
    machine.turn()
    for _ in range(8):
        hooks.publish()
        hooks.fail(*hooks.claim())
        world.clock.advance(12 * HOUR)
    assert hooks.row(endpoint)["status"] == "auto_disabled"


# Forward ---------------------------------------------------------------------------------------------------------


@FORWARD
@RESTARTS
def test_a_checkout_outlives_a_jump_that_is_reverted(machine: Machine, jump: int, restarts: bool) -> None:
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    observed(machine)
    ops.check_out(departure)
    machine.step(jump + SECOND, restarts=restarts)
    machine.pass_time(10 * MINUTE)
    assert ops.taken(departure) == 1
    machine.step(-jump)
    assert ops.taken(departure) == 1
    machine.pass_time(21 * MINUTE)
    assert ops.taken(departure) == 0


def observed(machine: Machine) -> None:
    """Set the retention clock to the present, as a running retention job does."""
    world = machine.world
    row = {"id": 1, "at": world.clock(), "moved_at": world.clock()}
    url = world.database.url.render_as_string(hide_password=False)
    databases.fill(url, tables.retention_clock, [row])


@FORWARD
def test_a_jump_that_stays_is_trusted_after_half_an_hour(machine: Machine, jump: int) -> None:
    ops, world = Operations(machine.world), machine.world
    departure = world.departure(world.experience(), starts_at=world.clock() + 400 * DAY)
    ops.check_out(departure)
    machine.step(jump)
    machine.pass_time(round(SETTLE_S - 1) * SECOND)
    assert ops.taken(departure) == 1
    machine.pass_time(SECOND)
    assert ops.taken(departure) == 0


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
    assert ops.taken(departure) == 1
    assert [row["warned_at"] for row in world.rows(tables.api_keys)] == [None]


@FORWARD
def test_a_mail_is_sent_and_does_not_expire_after_a_jump(machine: Machine, jump: int, tmp_path: Any) -> None:
    mails = Mails(machine.world)
    mails.book()
    mails.write()
    machine.step(4 * jump)
    settings = Settings(
        database_url=machine.world.database.url.render_as_string(hide_password=False),
        secret_key=SECRET,
        mail_dir=str(tmp_path),
    )
    asyncio.run(mail_job(settings, machine.world.database, machine.world.installation, machine.watch).run_once())
    assert {row["last_error"] for row in machine.world.rows(tables.mails)} == {None}
    assert {row["status"] for row in machine.world.rows(tables.mails)} == {"queued"}, (
        "written to a file, since there is no mail server"
    )


@FORWARD
def test_a_jump_disables_no_endpoint(machine: Machine, hooks: Hooks, jump: int) -> None:
    class Broken:
        async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent:
            return Sent(500, "no", AttemptError.HTTP_STATUS, 5)

        async def close(self) -> None:
            """Do nothing: there is no connection."""

    world = machine.world
    endpoint = hooks.endpoint()
    hooks.publish(times=8)
    settings = Settings(database_url=str(world.database.url), secret_key=SECRET)
    worker = Worker(settings, world.database, world.installation, Broken(), watch=machine.watch)
    machine.step(4 * jump)
    asyncio.run(worker.run_once())
    assert (hooks.row(endpoint)["status"], hooks.row(endpoint)["consecutive_failures"]) == ("enabled", 8)
    machine.pass_time(round(SETTLE_S) * SECOND)
    asyncio.run(worker.run_once())
    assert hooks.row(endpoint)["status"] == "auto_disabled"


# The watch -------------------------------------------------------------------------------------------------------

Observation = tuple[int, float, bool, bool]


@pytest.mark.parametrize(
    "observations",
    [
        [(0, 0.0, True, True), (5 * SECOND, 5.0, True, False)],
        [(0, 0.0, True, True), (65 * SECOND, 5.0, True, False)],
        [(0, 0.0, True, True), (66 * SECOND, 5.0, False, False), (DAY, 86400.0 - 61, True, False)],
        [(0, 0.0, True, True), (DAY, 5.0, False, False), (6 * SECOND, 6.0, True, True)],
        [
            (0, 0.0, True, True),
            (DAY, 5.0, False, False),
            (2 * DAY, 10.0, False, False),
            (15 * SECOND, 15.0, True, True),
        ],
        [(0, 0.0, True, True), (-2 * SECOND, 0.0, True, False), (-5 * SECOND, 0.0, True, True)],
        [(0, 0.0, True, True), (DAY, 86400.0, True, False)],
    ],
    ids=["steady", "slewed", "settles", "reverted", "twice", "set back", "a machine that slept"],
)
def test_the_watch_distinguishes_a_jump_from_time_that_passed(observations: list[Observation]) -> None:
    times = iter([elapsed for _, elapsed, _, _ in observations])
    watch = ClockWatch(elapsed_s=lambda: next(times))
    for shown, _, is_settled, must_realign in observations:
        watch.observe(1000 * DAY + shown)
        assert (watch.is_settled, watch.must_realign) == (is_settled, must_realign)
        watch.must_realign = False


def test_a_slow_database_is_no_jump_of_its_clock() -> None:
    """The clock may have been read at the start or at the end of the request."""
    times = iter([5.0, 100.0, 105.0])
    watch = ClockWatch(elapsed_s=lambda: next(times))
    watch.observe(5 * SECOND, read_at_s=5.0)
    watch.must_realign = False
    watch.observe(6 * SECOND, read_at_s=6.0)
    assert (watch.is_settled, watch.must_realign) == (True, False)
    watch.observe(105 * SECOND, read_at_s=105.0)
    assert (watch.is_settled, watch.must_realign) == (True, False)


@pytest.mark.parametrize(("behind", "is_settled"), [(0, True), (DAY, True), (DAY + 1, False), (-400 * DAY, True)])
def test_a_new_process_takes_more_than_a_day_for_a_jump(behind: int, is_settled: bool) -> None:
    watch = ClockWatch(elapsed_s=lambda: 0.0)
    watch.observe(1000 * DAY, 1000 * DAY - behind)
    assert watch.is_settled is is_settled


def test_a_failed_realignment_is_tried_again(world: World) -> None:
    calls: list[int] = []

    def fail(_: Any) -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError
        return 0

    job = ExpiryJob(world.database, world.installation, watch=ClockWatch(), realign=[fail])
    with pytest.raises(ZeroDivisionError):
        asyncio.run(job.run_once())
    for _ in range(2):
        asyncio.run(job.run_once())
    assert len(calls) == 2
