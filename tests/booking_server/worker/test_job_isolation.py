"""No organization delays the work of another: each job's every step, with a large backlog and a row that fails.

A trigger makes one row fail, as any defect of a row or of the code would. Nothing here looks at the time: a turn has a
number of transactions.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Table
from support.databases import databases
from support.databases.plans import Plan, explaining
from support.world.checkouts import configure
from support.world.rows import booking, customer, event, ids
from support.world.world import DAY, NOON, FixedClock, World, make_world

from booking_core.base.clock import END_OF_TIME, HOUR, MINUTE, SECOND
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.base.tokens import new_id
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.due_work.rows import NIL_ID
from booking_core.due_work.sweep import Sweep
from booking_core.notifications import ClaimedMail, Mailbox, MailOutcome, MailResult
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_core.records import retention_clock
from booking_core.records.outbox import OutboxKind
from booking_server.adapters.smtp import MailReport
from booking_server.worker.jobs import periodic_jobs
from booking_server.worker.jobs.mail import MailJob
from booking_server.worker.jobs.payments import CHECKS_OF_ONE_MAX, PaymentCheckJob, RefundJob
from booking_server.worker.jobs.periodic import Job, SweepJob
from booking_server.worker.jobs.retention import RetentionJob

Row = dict[str, Any]
Fill = Callable[[World, int], "Filled"]
AGES_AGO = NOON - 400 * DAY
BACKLOG = 1_000
"""Rows of the other organization: ten turns."""
BATCHES = 2
"""Transactions of a turn here."""


@dataclass(frozen=True, slots=True)
class Case:
    """A step of a job: the rows that it processes, the oldest first, and the mark of processed rows."""

    table: str
    key: str
    waiting: str
    """The condition of rows that are not processed."""
    fill: Fill


# Rows ------------------------------------------------------------------------------------------------------------

Filled = list[tuple[Table, list[Row]]]


def _rows_of(world: World, count: int, **columns: Any) -> list[tuple[int, Row]]:
    """Return numbered rows with an organization and an id."""
    row_ids = ids(hash(world.org) % 1000)
    return [(number, {"organization_id": world.org, "id": next(row_ids)} | columns) for number in range(count)]


def _without_id(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "id"}


def _departures(world: World, count: int, **columns: Any) -> list[Row]:
    experience = world.experience(min_participants=3)
    base = {"experience_id": experience, "seats_total": 9, "seats_ceiling": 9, "created_at": NOON, "updated_at": NOON}
    return [row | {"starts_at": NOON - MINUTE + n} | columns for n, row in _rows_of(world, count, **base)]


def closed(world: World, count: int) -> Filled:
    world.change(tables.organizations, world.org, cancel_under_minimum=True)
    return [(tables.departures, _departures(world, count))]


def cancelling(world: World, count: int) -> Filled:
    return [(tables.departures, _departures(world, count, status="cancelled", cancelling="admin"))]


def touched_departures(world: World, count: int) -> Filled:
    rows = _departures(world, count)
    return [(tables.departures, [row | {"announce_at": NOON - count + n} for n, row in enumerate(rows)])]


def _bookings(world: World, count: int, **columns: Any) -> list[Row]:
    experience, row_ids = world.experience(), ids(hash(world.org) % 1000)
    departure = world.departure(experience, seats=count, seats_taken=count)
    rows = (booking(world.org, next(row_ids), departure, experience, NOON) for _ in range(count))
    return [row | {"expires_at": NOON - count + number} | columns for number, row in enumerate(rows)]


def expired(world: World, count: int) -> Filled:
    return [(tables.bookings, _bookings(world, count, status="pending", payment_status="pending"))]


def expiring_keys(world: World, count: int) -> Filled:
    keys = _rows_of(world, count, name="till", prefix="svc_1", scopes="[]", created_at=NOON)
    rows = [row | {"key_hash": f"{world.org} {n}", "expires_at": NOON + DAY + n} for n, row in keys]
    return [(tables.api_keys, rows)]


KIND = OutboxKind.STAFF_KEY_EXPIRING_MAIL.value


def outbox_rows(world: World, count: int, **columns: Any) -> Filled:
    payload = json.dumps({"name": "till", "prefix": "svc_1", "expires_at": NOON + DAY})
    rows = []
    for n, row in _rows_of(world, count, kind=KIND, payload=payload, status="queued", created_at=NOON):
        effect = {"key": f"{world.org}:{n:06}", "subject_id": row["id"], "due_at": NOON - count + n}
        rows.append(_without_id(row) | effect | columns)
    return [(tables.effects, rows)]


def mail_rows(world: World, count: int, **columns: Any) -> Filled:
    keys, rows = world.installation.secret_keys, []
    for n, row in _rows_of(world, count, kind=KIND, recipient="staff@example.com", status="queued", created_at=NOON):
        message = keys.seal("mail", b"Subject: hi\r\n\r\n", world.org, row["id"])
        mail = {
            "effect_key": row["id"],
            "message_id": row["id"],
            "message": message,
            "next_attempt_at": NOON - count + n,
        }
        rows.append(row | mail | columns)
    return [(tables.mails, rows)]


def parked_mails(world: World, count: int) -> Filled:
    return mail_rows(world, count, next_attempt_at=END_OF_TIME)


MONEY = {"currency": "NOK", "created_at": NOON, "updated_at": NOON, "amount_minor": 1}


def due_refunds(world: World, count: int) -> Filled:
    bookings = _bookings(world, count, status="cancelled", cancelled_at=NOON, expires_at=None)
    row_ids = ids(hash(world.org) % 1000 + 1)
    payments, refunds = [], []
    for number, row in enumerate(bookings):
        payment_id, refund_id = next(row_ids), next(row_ids)
        of = MONEY | {"organization_id": world.org, "booking_id": row["id"]}
        payments.append(of | {"id": payment_id, "payment_intent": f"pi_{number}", "status": "paid"})
        due_at = {"status": "requested", "next_attempt_at": NOON - count + number}
        refunds.append(of | {"id": refund_id, "payment_id": payment_id} | due_at)
    return [(tables.bookings, bookings), (tables.payments, payments), (tables.refunds, refunds)]


def due_checks(world: World, count: int) -> Filled:
    bookings = _bookings(world, count, status="pending", payment_status="pending")
    common, intents = MONEY | {"organization_id": world.org, "status": "open"}, []
    for number, row in enumerate(bookings):
        check_at = NOON - count + number
        intents.append(common | {"booking_id": row["id"], "intent_id": f"pi_{number}", "check_at": check_at})
    return [(tables.bookings, bookings), (tables.payment_intents, intents)]


def ended_mails(world: World, count: int) -> Filled:
    return mail_rows(world, count, status="sent", next_attempt_at=None, completed_at=AGES_AGO, created_at=AGES_AGO)


def unmailed(world: World, count: int) -> Filled:
    return outbox_rows(world, count, status="done", completed_at=AGES_AGO, last_error="no_address")


def old_holds(world: World, count: int) -> Filled:
    departure, times = world.departure(world.experience()), {"created_at": AGES_AGO, "expires_at": AGES_AGO}
    return [(tables.holds, [row for _, row in _rows_of(world, count, departure_id=departure, seats=1, **times)])]


def old_answers(world: World, count: int) -> Filled:
    numbered = _rows_of(world, count, fingerprint="f", status=201, body_sealed="x", created_at=AGES_AGO)
    return [(tables.idempotency, [_without_id(row) | {"key": f"{world.org}:{n:06}"} for n, row in numbered])]


def old_reservations(world: World, count: int) -> Filled:
    numbered = _rows_of(world, count, fingerprint="f", hold_id=new_id(), created_at=AGES_AGO, updated_at=AGES_AGO)
    return [(tables.reservations, [row for _, row in numbered])]


def old_events(world: World, count: int) -> Filled:
    return [(tables.events, [event(world.org, row["id"], n + 1, AGES_AGO) for n, row in _rows_of(world, count)])]


def unfinished_erasures(world: World, count: int) -> Filled:
    base = {"addresses": "[]", "position": "[]", "requested_at": AGES_AGO, "progressed_at": AGES_AGO}
    numbered = _rows_of(world, count, step="bookings", **base)
    return [(tables.erasures, [_without_id(row) | {"customer_id": row["id"]} for _, row in numbered])]


def old_customers(world: World, count: int) -> Filled:
    world.database.write(lambda tx: retention_clock.advance(tx, None, 0.0))
    return [(tables.customers, [customer(world.org, row["id"], AGES_AGO + n) for n, row in _rows_of(world, count)])]


SWEEPS = {
    "announce_departures": Case("departures", "id", "announce_at IS NOT NULL", touched_departures),
    "abandon_checkouts": Case("bookings", "id", "status = 'pending'", expired),
    "check_minimum": Case("departures", "id", "status = 'open' AND starts_at < created_at", closed),
    "cancel_bookings": Case("departures", "id", "cancelling IS NOT NULL", cancelling),
    "warn_of_keys": Case("api_keys", "id", "warned_at IS NULL", expiring_keys),
    "write_mails": Case("effects", "key", "status = 'queued'", outbox_rows),
    "send_mails": Case("mails", "id", f"status = 'queued' AND next_attempt_at <= {NOON}", mail_rows),
    "unpark_mails": Case("mails", "id", f"next_attempt_at = {END_OF_TIME}", parked_mails),
    "send_refunds": Case("refunds", "id", "status = 'requested'", due_refunds),
    "check_payments": Case("payment_intents", "booking_id", f"check_at <= {NOON}", due_checks),
    "erase_guests": Case("erasures", "customer_id", "finished_at IS NULL", unfinished_erasures),
    "expire_guests": Case("customers", "id", "anonymized_at IS NULL", old_customers),
}
PURGES = {
    "mails": Case("mails", "id", "true", ended_mails),
    "effects": Case("effects", "key", "true", unmailed),
    "holds": Case("holds", "id", "true", old_holds),
    "stored_answers": Case("idempotency", "key", "true", old_answers),
    "events": Case("events", "id", "true", old_events),
    "reservations": Case("reservations", "id", "true", old_reservations),
}


# Two organizations -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Neighbours:
    """An organization with a backlog, and its neighbour."""

    url: str
    database: Database
    clock: FixedClock
    large: World
    small: World

    def fill(self, case: Case, backlog: int) -> None:
        for world, count in ((self.large, backlog), (self.small, 1)):
            for table, rows in case.fill(world, count):
                databases.fill(self.url, table, rows)

    def waiting(self, case: Case, world: World) -> list[str]:
        """Return the keys of the rows that are not processed."""
        query = f"SELECT {case.key} FROM {case.table} WHERE organization_id = '{world.org}' AND {case.waiting}"
        with databases.connect(self.url) as connection:
            return sorted(str(row[0]) for row in connection.execute(query).fetchall())

    def parked(self) -> list[tuple[str, str]]:
        return [(row["job"], row["subject_id"]) for row in self.large.rows(tables.parked_work)]

    def break_row(self, case: Case, key: str, verb: str = "UPDATE") -> None:
        """Make every write of the row fail."""
        when = f"WHEN (OLD.{case.key} = '{key}')"
        if databases.is_sqlite(self.url):
            raising = "BEGIN SELECT RAISE(ABORT, 'a broken row'); END"
            databases.run(self.url, f"CREATE TRIGGER broken BEFORE {verb} ON {case.table} {when} {raising}")
            return
        function = "CREATE FUNCTION fail() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'a broken row'; END $$"
        trigger = f"CREATE TRIGGER broken BEFORE {verb} ON {case.table} FOR EACH ROW {when} EXECUTE FUNCTION fail()"
        databases.run(self.url, f"{function} LANGUAGE plpgsql", trigger)

    def repair_row(self, case: Case) -> None:
        on = "" if databases.is_sqlite(self.url) else f" ON {case.table}"
        databases.run(self.url, f"DROP TRIGGER broken{on}")


@pytest.fixture
def neighbours(fresh_database_url: str, fresh_database: Database, clock: FixedClock) -> Neighbours:
    first, second = sorted((make_world(fresh_database, clock) for _ in range(2)), key=lambda world: world.org)
    return Neighbours(fresh_database_url, fresh_database, clock, first, second)


def jobs_of(neighbours: Neighbours) -> list[Job]:
    settings = Settings(database_url=neighbours.url, smtp_url="smtp://127.0.0.1:1", guest_retention_days=30)
    return periodic_jobs(settings, neighbours.database, neighbours.small.installation)


def sweeps_of(jobs: Sequence[Job]) -> dict[str, Sweep[Any]]:
    """Return every sweep that a job holds, by name."""
    values = [value for job in jobs for value in vars(job).values()]
    for job in jobs:
        if isinstance(job, SweepJob):
            values += [task.sweep for task in job.tasks]
    return {sweep.name: sweep for sweep in values if isinstance(sweep, Sweep)}


def with_backlog(neighbours: Neighbours, name: str, count: int) -> tuple[Case, Sweep[Any]]:
    """Fill the rows of a step, and return the step with a sweep of a new job."""
    neighbours.fill(SWEEPS[name], count)
    return SWEEPS[name], sweeps_of(jobs_of(neighbours))[name]


def turn(sweep: Sweep[Any], batches: int = BATCHES) -> int:
    return asyncio.run(sweep.run_turn(asyncio.Event(), batches=batches))


# Every step ------------------------------------------------------------------------------------------------------


def test_every_step_of_every_job_has_an_entry(neighbours: Neighbours) -> None:
    jobs = jobs_of(neighbours)
    assert set(sweeps_of(jobs)) == set(SWEEPS), "a new job: add its steps here"
    (retention,) = [job for job in jobs if isinstance(job, RetentionJob)]
    assert {kind.name for kind in retention.kinds} == set(PURGES)


@pytest.mark.one_database
@pytest.mark.exhaustive(but="postgresql")
@pytest.mark.parametrize("name", SWEEPS)
def test_the_first_turn_processes_a_row_behind_another_organizations_backlog(neighbours: Neighbours, name: str) -> None:
    case, sweep = with_backlog(neighbours, name, BACKLOG)
    assert turn(sweep) > 1
    assert neighbours.waiting(case, neighbours.small) == []
    assert len(neighbours.waiting(case, neighbours.large)) >= BACKLOG - BATCHES * 50
    assert sweep.has_more


@pytest.mark.one_database
@pytest.mark.exhaustive(but="sqlite")
@pytest.mark.parametrize("name", SWEEPS)
def test_a_failing_row_is_parked_until_it_is_repaired(
    neighbours: Neighbours, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    case, sweep = with_backlog(neighbours, name, 20)
    bad = neighbours.waiting(case, neighbours.large)[0]
    neighbours.break_row(case, bad)
    for _ in range(3):
        turn(sweep, batches=40)
    assert neighbours.waiting(case, neighbours.small) == []
    assert neighbours.waiting(case, neighbours.large) == [bad]
    assert neighbours.parked() == [(name, bad)]
    neighbours.clock.advance(MINUTE)
    turn(sweep)
    parked = [record.message for record in caplog.records if f": {bad} of organization" in record.message]
    assert parked == [f"{name}: {bad} of organization {neighbours.large.org} cannot be processed and is parked"]
    neighbours.repair_row(case)
    assert turn(sweep) == 0, "the second attempt is two minutes after the first"
    neighbours.clock.advance(2 * MINUTE)
    turn(sweep)
    assert neighbours.waiting(case, neighbours.large) == []
    assert sweep._is_lease or neighbours.parked() == [], "a leased row stays parked until its result"


@pytest.mark.exhaustive(but=("postgresql-abandon_checkouts", "postgresql-send_mails"))
@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize("name", SWEEPS)
def test_a_locked_row_is_passed_over_and_not_parked(neighbours: Neighbours, name: str) -> None:
    case, sweep = with_backlog(neighbours, name, 20)
    locked = neighbours.waiting(case, neighbours.large)[0]
    locking = f"SELECT 1 FROM {case.table} WHERE {case.key} = %s FOR UPDATE"
    with databases.rows_held(neighbours.url, locking, locked):
        for _ in range(2):
            turn(sweep, batches=40)
        assert neighbours.waiting(case, neighbours.small) == []
        assert neighbours.waiting(case, neighbours.large) == [locked]
    turn(sweep)
    assert neighbours.waiting(case, neighbours.large) == []
    assert neighbours.parked() == []


@pytest.mark.usefixtures("postgresql_only")
def test_checkouts_of_a_locked_departure_are_passed_over(neighbours: Neighbours) -> None:
    case, sweep = with_backlog(neighbours, "abandon_checkouts", 3)
    (departure,) = {row["departure_id"] for row in neighbours.large.rows(tables.bookings)}
    with databases.departure_held(neighbours.url, departure):
        turn(sweep)
        assert neighbours.waiting(case, neighbours.small) == []
        assert len(neighbours.waiting(case, neighbours.large)) == 3
    turn(sweep)
    assert neighbours.waiting(case, neighbours.large) == []


def test_a_pending_booking_without_an_expiry_hides_no_other(neighbours: Neighbours) -> None:
    case, sweep = with_backlog(neighbours, "abandon_checkouts", 3)
    first = neighbours.waiting(case, neighbours.large)[0]
    neighbours.large.change(tables.bookings, first, expires_at=None)
    turn(sweep)
    assert neighbours.waiting(case, neighbours.large) == [first]


@pytest.mark.exhaustive(but="sqlite")
@pytest.mark.parametrize("name", ["abandon_checkouts", "check_minimum", "write_mails"])
def test_an_organization_whose_rows_all_fail_is_parked_as_a_whole(neighbours: Neighbours, name: str) -> None:
    """Its time zone is unknown: none of its rows can be rendered."""
    case, sweep = with_backlog(neighbours, name, 100)
    neighbours.large.change(tables.organizations, neighbours.large.org, timezone="Mars/Olympus")
    for _ in range(3):
        turn(sweep)
    assert neighbours.waiting(case, neighbours.small) == []
    assert len(neighbours.parked()) < 10
    neighbours.large.change(tables.organizations, neighbours.large.org, timezone="Europe/Oslo")
    neighbours.clock.advance(30 * MINUTE)
    for _ in range(3):
        turn(sweep, batches=200)
    assert neighbours.waiting(case, neighbours.large) == []


# Purges ----------------------------------------------------------------------------------------------------------


def retention(neighbours: Neighbours) -> RetentionJob:
    return RetentionJob(Settings(database_url=neighbours.url), neighbours.database, limit=1)


@pytest.mark.one_database
@pytest.mark.parametrize("name", PURGES)
def test_the_first_turn_deletes_rows_behind_another_organizations_backlog(neighbours: Neighbours, name: str) -> None:
    case = PURGES[name]
    neighbours.fill(case, BACKLOG)
    job = begun(neighbours)
    assert 1 < asyncio.run(job.run_turn(asyncio.Event())) <= 20
    assert neighbours.waiting(case, neighbours.small) == []
    assert len(neighbours.waiting(case, neighbours.large)) >= BACKLOG - 20


def begun(neighbours: Neighbours) -> RetentionJob:
    """Return a job whose retention clock agrees with the clock."""
    job = retention(neighbours)
    databases.run(neighbours.url, f"INSERT INTO retention_clock (id, at, moved_at) VALUES (1, {NOON}, {NOON})")
    return job


@pytest.mark.one_database
@pytest.mark.parametrize("name", PURGES)
def test_a_purge_that_fails_for_one_organization_is_parked(
    neighbours: Neighbours, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = PURGES[name]
    neighbours.fill(case, 3)
    neighbours.break_row(case, neighbours.waiting(case, neighbours.large)[0], "DELETE")
    job = begun(neighbours)
    for _ in range(2):
        asyncio.run(job.run_turn(asyncio.Event()))
        neighbours.clock.advance(SECOND)
    assert neighbours.waiting(case, neighbours.small) == []
    assert neighbours.parked() == [(f"purge_{name}", neighbours.large.org)]
    assert sum("cannot be processed" in record.message for record in caplog.records) == 1
    neighbours.repair_row(case)
    neighbours.clock.advance(HOUR)
    asyncio.run(job.run_turn(asyncio.Event()))
    assert neighbours.waiting(case, neighbours.large) == []
    assert neighbours.parked() == []


def test_the_writer_is_free_between_two_batches_of_a_purge(neighbours: Neighbours) -> None:
    """Another transaction is committed after each batch, while the turn goes on."""
    neighbours.fill(PURGES["stored_answers"], 100)
    job, counts = begun(neighbours), []
    write = neighbours.database.write

    def interleaved(fn: Callable[[Any], Any]) -> Any:
        result = write(fn)
        with databases.connect(neighbours.url) as connection:
            connection.execute("UPDATE retention_clock SET moved_at = moved_at")
        counts.append(len(neighbours.waiting(PURGES["stored_answers"], neighbours.large)))
        return result

    neighbours.database.write = interleaved  # type: ignore[method-assign]
    asyncio.run(job.run_turn(asyncio.Event()))
    assert set(counts) == set(range(81, 101)), "twenty batches of a row, with a commit of another connection after each"


def test_a_stopping_purge_ends_after_its_current_batch(neighbours: Neighbours) -> None:
    case = PURGES["stored_answers"]
    neighbours.fill(case, 100)
    stop = asyncio.Event()
    stop.set()
    asyncio.run(begun(neighbours).run_turn(stop))
    assert len(neighbours.waiting(case, neighbours.large)) == 100


def test_a_stopping_sweep_ends_after_its_current_batch(neighbours: Neighbours) -> None:
    _, sweep = with_backlog(neighbours, "warn_of_keys", 200)
    stop = asyncio.Event()
    process = sweep._process

    def stopping(*arguments: Any) -> Any:
        stop.set()
        return process(*arguments)

    sweep._process = stopping
    assert asyncio.run(sweep.run_turn(stop)) == 50
    assert sweep.has_more


def test_a_row_due_during_a_turn_waits_for_one_backlog_batch(neighbours: Neighbours) -> None:
    case = SWEEPS["warn_of_keys"]
    for table, rows in case.fill(neighbours.large, 300):
        databases.fill(neighbours.url, table, rows)
    sweep, served = sweeps_of(jobs_of(neighbours))["warn_of_keys"], list[str]()
    process = sweep._process

    def arriving(tx: Tx, organization_id: str, keys: Sequence[str]) -> Any:
        served.append(organization_id)
        return process(tx, organization_id, keys)

    def observed(_: Sequence[Any]) -> None:
        if len(served) == 1:
            for table, rows in case.fill(neighbours.small, 1):
                databases.fill(neighbours.url, table, rows)

    sweep._process, sweep._observe = arriving, observed
    turn(sweep)
    assert served[1] == neighbours.small.org
    assert neighbours.waiting(case, neighbours.small) == []


def test_due_mails_wait_for_a_few_batches_of_written_mails(neighbours: Neighbours) -> None:
    """While mails of a backlog are written the connections are idle."""
    for table, rows in SWEEPS["write_mails"].fill(neighbours.large, 500):
        databases.fill(neighbours.url, table, rows)
    (job,) = [job for job in jobs_of(neighbours) if isinstance(job, MailJob)]
    looks = list[int]()

    async def look(_: int) -> list[str]:
        looks.append(500 - len(neighbours.waiting(SWEEPS["write_mails"], neighbours.large)))
        return []

    job.claims.organizations = look  # type: ignore[method-assign]
    asyncio.run(job.start_due(asyncio.Event()))
    assert looks == [40]


# Plans -----------------------------------------------------------------------------------------------------------


def affordable(plans: Sequence[Plan], url: str) -> None:
    """Check that no statement reads the backlog."""
    assert plans
    for plan in plans:
        assert plan.cost < (2_000 if databases.is_sqlite(url) else 100), str(plan)


@pytest.mark.exhaustive(but=("postgresql-abandon_checkouts", "postgresql-send_mails"))
@pytest.mark.parametrize("name", SWEEPS)
def test_finding_a_row_costs_nothing_for_the_backlog_of_another_organization(neighbours: Neighbours, name: str) -> None:
    neighbours.fill(SWEEPS[name], 5_000)
    databases.analyze(neighbours.url)
    work = sweeps_of(jobs_of(neighbours))[name]._work
    with explaining(neighbours.url) as explained:
        affordable(explained(lambda tx: work.organizations(tx, after=NIL_ID, limit=500)), neighbours.url)
        affordable(explained(lambda tx: work.find(tx, neighbours.small.org, after=None, limit=50)), neighbours.url)


@pytest.mark.exhaustive(but=("sqlite-events", "postgresql-events"))
@pytest.mark.parametrize("name", PURGES)
def test_a_purge_costs_nothing_for_the_rows_of_another_organization(neighbours: Neighbours, name: str) -> None:
    neighbours.fill(PURGES[name], 5_000)
    databases.analyze(neighbours.url)
    job = retention(neighbours)
    job.at, kinds = NOON, [kind for kind in job.kinds if kind.name == name]
    with explaining(neighbours.url) as explained:
        for kind in kinds:
            affordable(explained(lambda tx, kind=kind: kind.organizations(tx, after=NIL_ID, limit=500)), neighbours.url)
            if databases.is_sqlite(neighbours.url):  # a DELETE cannot be explained on PostgreSQL without its rows
                affordable(explained(lambda tx, kind=kind: kind.delete(tx, neighbours.small.org, 20)), neighbours.url)


# Calls that hang -------------------------------------------------------------------------------------------------


async def until_stopped(job: Job, stop: asyncio.Event) -> None:
    while not stop.is_set():
        await job.run_turn(stop)


def run_until(job: Job, is_served: Callable[[], Awaitable[object]], release: Callable[[], None]) -> None:
    """Run a job whose calls for one organization hang, until the other one is served."""

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.create_task(until_stopped(job, stop))
        async with asyncio.timeout(30):
            assert await is_served()
        release()
        stop.set()
        await loop
        await job.close()

    asyncio.run(work())


def mailing(neighbours: Neighbours, mailer: Any) -> MailJob:
    return MailJob(neighbours.database, neighbours.small.installation, mailer, Mailbox("Office", "a@b.example"))


def test_mails_that_hang_for_one_organization_leave_a_connection_for_another(neighbours: Neighbours) -> None:
    case = SWEEPS["send_mails"]
    neighbours.fill(case, 100)
    sent, released = asyncio.Event(), asyncio.Event()

    class HangingMailer:
        delivers = True

        async def send(self, mails: Sequence[ClaimedMail], report: MailReport) -> None:
            if mails[0].organization_id == neighbours.large.org:
                await released.wait()
            else:
                sent.set()
            await report([MailResult(mail, MailOutcome.SENT) for mail in mails])

    run_until(mailing(neighbours, HangingMailer()), sent.wait, released.set)
    assert neighbours.waiting(case, neighbours.small) == []


def test_refunds_that_hang_for_one_organization_leave_calls_for_another(neighbours: Neighbours) -> None:
    case = SWEEPS["send_refunds"]
    neighbours.fill(case, 100)
    sent, released = threading.Event(), threading.Event()

    class HangingGateway:
        def refund(self, claimed: ClaimedRefund) -> RefundResult:
            if claimed.organization_id == neighbours.large.org:
                assert released.wait(60)
            else:
                sent.set()
            return RefundResult(claimed, RefundOutcome.REFUNDED, f"re_{claimed.id}")

    job = RefundJob(neighbours.database, HangingGateway())
    run_until(job, lambda: asyncio.to_thread(sent.wait, 30), released.set)
    assert neighbours.waiting(case, neighbours.small) == []
    assert {row["status"] for row in neighbours.small.rows(tables.refunds)} == {"succeeded"}


def _api_key(world: World) -> str:
    return f"sk_test_{world.org.replace('-', '')}"


def test_hanging_look_ups_at_stripe_leave_calls_for_another_organization(neighbours: Neighbours) -> None:
    neighbours.fill(SWEEPS["check_payments"], 20)
    for world in (neighbours.large, neighbours.small):
        configure(world, api_key=_api_key(world))
    arrival, released, hangs = asyncio.Event(), asyncio.Event(), list[str]()

    class HangingStripe:
        async def look_up(self, api_key: str, *_: object) -> Any:
            if api_key == _api_key(neighbours.large):
                hangs.append(api_key)
                await released.wait()
            else:
                counts.append(len(hangs))
                arrival.set()
            raise Unavailable

        cancel = look_up

        async def aclose(self) -> None:
            """Do nothing."""

    counts = list[int]()
    job = PaymentCheckJob(neighbours.database, neighbours.small.installation, HangingStripe())
    run_until(job, arrival.wait, released.set)
    assert counts[0] <= CHECKS_OF_ONE_MAX


def test_an_unrecordable_refund_is_parked_and_all_others_are_recorded(
    neighbours: Neighbours, caplog: pytest.LogCaptureFixture
) -> None:
    case = SWEEPS["send_refunds"]
    neighbours.fill(case, 5)
    (bad, *_) = neighbours.waiting(case, neighbours.large)

    class Gateway:
        def refund(self, claimed: ClaimedRefund) -> RefundResult:
            return RefundResult(claimed, RefundOutcome.REFUNDED, f"re_{claimed.id}")

    class BreakingJob(RefundJob):
        async def settle(self, finished: Any) -> None:
            if not broken:
                broken.append(bad)
                neighbours.break_row(case, bad)
            await super().settle(finished)

    broken: list[str] = []
    job = BreakingJob(neighbours.database, Gateway())
    asyncio.run(job.run_once())
    status = {row["id"]: row["status"] for row in neighbours.large.rows(tables.refunds)}
    assert status.pop(bad) == "sending"
    assert set(status.values()) == {"succeeded"}
    assert neighbours.parked() == [("send_refunds", bad)]
    neighbours.repair_row(case)
    neighbours.clock.advance(HOUR)
    asyncio.run(job.run_once())
    assert {row["status"] for row in neighbours.large.rows(tables.refunds)} == {"succeeded"}
    assert neighbours.parked() == []
    assert sum(bad in record.message for record in caplog.records) == 1
