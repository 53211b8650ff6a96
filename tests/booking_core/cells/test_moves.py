"""An organization that moves to another cell, while it is used and wherever the move is interrupted."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from support.cells import OWN_DATABASE, settings_of_cells
from support.creating import create, created
from support.hooks import Hooks
from support.mails import Mails
from support.money import Till
from support.world import DAY, FixedClock, World, make_world

from booking_core import cells, doctor, organizations, retention_clock, sandboxes, stripe_accounts
from booking_core.cells import FIRST, Cell, CellError, Mover, guards, moves, rows
from booking_core.cells.comparing import Comparison
from booking_core.clock import SECOND, system_clock
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.db.paging import PageRequest
from booking_core.db.statements import Statement
from booking_core.errors import BookingError, Unavailable
from booking_core.idempotency import Answer
from booking_core.models.events import EventType
from booking_core.models.sandbox import SandboxClockAdvance
from booking_core.realign import all_kinds
from booking_core.retention_clock import Measured
from booking_core.settings import Settings
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.periodic import periodic_jobs
from booking_server.worker.jobs.retention import RetentionJob
from booking_server.worker.worker import Worker

Place = tuple[Cell, Database]

_DELETE_EVENT = Statement(text("DELETE FROM events WHERE organization_id = CAST(:o AS uuid) AND sequence = 1"))
_EVENTS = Statement(text("SELECT body FROM events WHERE organization_id = CAST(:o AS uuid) ORDER BY sequence"))
_DELETE_ATTEMPTS = Statement(text("DELETE FROM attempts WHERE organization_id = CAST(:o AS uuid)"))


@pytest.fixture(scope="module")
def settings(new_database_url: Callable[[str], str]) -> Settings:
    return settings_of_cells(new_database_url, schemas=("c2",))


@pytest.fixture(scope="module")
def places(settings: Settings) -> Iterator[dict[str, Place]]:
    """Each cell with its database."""
    with contextlib.ExitStack() as stack:
        found = {}
        for cell in cells.every(settings):
            database = stack.enter_context(contextlib.closing(Database(cell.settings.database_url)))
            found[cell.name] = cell, database
        yield found


@pytest.fixture
def world(places: dict[str, Place]) -> World:
    """An organization with bookings, endpoints, mails, cards and payments, in the first cell."""
    world = make_world(places[FIRST][1], FixedClock(system_clock()))
    world.key()
    mails = Mails(world)
    for number in range(3):
        mails.book(key=f"a-key-of-a-booking-{number}", customer=guest(number))
    mails.write(limit=2)
    hooks = Hooks(world)
    hooks.endpoint(EventType.BOOKING_CREATED)
    till = Till(world)
    till.issue(50_000)
    booking_id, now = world.rows(tables.bookings)[0]["id"], world.clock()
    account = {"api_key": "sk_test_that_moves", "webhook_secret": "whsec_that_moves"}
    world.database.write(lambda tx: stripe_accounts.configure(tx, till.actor, **account))
    intent = {"intent_id": f"pi_{booking_id}", "status": "resolved", "amount_minor": 1, "currency": "NOK"}
    times = {"created_at": now, "updated_at": now, "check_at": now}
    world.insert(tables.payment_intents, booking_id=booking_id, **intent, **times)
    event = next(row for row in world.rows(tables.events) if row["type"] == "booking.created")
    subject = {"resource_id": event["resource_id"]}
    world.insert(
        tables.deliveries,
        endpoint_id=world.rows(tables.webhook_endpoints)[0]["id"],
        event_id=event["id"],
        event_type=event["type"],
        event_sequence=event["sequence"],
        status="queued",
        trigger="event",
        max_attempts=6,
        next_attempt_at=0,
        created_at=0,
        updated_at=0,
        **subject,
    )
    return world


def guest(number: int) -> dict[str, str]:
    return {"name": "Ada Lovelace", "email": f"ada{number}@example.com", "phone": "+47 900 00 000"}


def mover(world: World, places: dict[str, Place], source: str = FIRST, target: str = "c2", **over: Any) -> Mover:
    named = {"examine": examine, "pause": lambda _: None} | over
    return Mover(world.organization.slug, places[source], places[target], **named)


def examine(tx: Any, organization_id: str) -> list[str]:
    return [each.message for each in doctor.examine(tx, organization_id)]


def contents(database: Database, organization_id: str) -> dict[str, tuple[int, str]]:
    """Return the number and the checksum of the organization's rows, by table."""
    with database.reading() as tx:
        return {table.name: rows.digest(tx, table, organization_id) for table in rows.moved_tables()}


def is_empty(database: Database, organization_id: str) -> bool:
    return all(count == 0 for count, _ in contents(database, organization_id).values())


@pytest.mark.parametrize("target", ["c2", OWN_DATABASE])
def test_every_row_of_an_organization_moves_and_only_those(world: World, places: dict[str, Place], target: str) -> None:
    neighbour = make_world(places[FIRST][1], world.clock)
    Mails(neighbour).book()
    departure, at = world.rows(tables.departures)[0]["id"], world.clock()
    world.insert(tables.departure_touches, departure_id=departure, due_at=at)
    world.insert(tables.departure_followers, followed_sequence=1)
    world.insert(tables.holds, departure_id=departure, seats=1, created_at=at, expires_at=at + SECOND, ended_at=at)
    before, others = contents(world.database, world.org), contents(world.database, neighbour.org)
    held = {"mails", "deliveries", "gift_cards", "api_keys", "holds", "departure_touches", "departure_followers"}
    assert {name for name, (count, _) in before.items() if count} >= held | {"payment_intents", "stripe_accounts"}
    mover(world, places, target=target).run()
    assert contents(places[target][1], world.org) == before
    assert is_empty(world.database, world.org)
    assert contents(world.database, neighbour.org) == others
    assert world.database.read(moves.under_way) == []
    key = cells.forwarded_to
    assert world.database.read(lambda tx: key(tx, world.org)) == target
    assert World(places[target][1], world.clock, world.organization).examine() == []


def test_a_sandbox_moves_with_its_clock_its_captured_mails_and_its_events(places: dict[str, Place]) -> None:
    """Its clock goes on where it was, and what was due by it is due in the other cell."""
    source, target, clock = places[FIRST][1], places["c2"][1], FixedClock(system_clock())
    world = make_world(source, clock, clock_offset=0)
    booking_id = Mails(world).book(departure_id=world.departure(world.experience(), starts_at=clock() + 30 * DAY))
    Mails(world).write()
    for row in world.rows(tables.mails):
        ended = {"status": "sent", "sent_at": clock(), "completed_at": clock(), "next_attempt_at": None}
        world.change(tables.mails, row["id"], **ended)
    source.write(lambda tx: sandboxes.advance(tx, world.caller(), SandboxClockAdvance(seconds=DAY // SECOND)))
    before = contents(source, world.org)
    shown = seen(source, world)
    mover(world, places).run()
    assert contents(target, world.org) == before
    assert seen(target, world) == shown
    assert shown["clock"]["offset_seconds"] == DAY // SECOND
    assert {mail["booking_id"] for mail in shown["mails"]} == {booking_id}
    assert source.read(sandboxes.moves).get(world.org) is None, "no clock is left behind"
    caller = replace(world.caller(), organization=replace(world.organization, clock_offset=DAY))
    further = target.write(lambda tx: sandboxes.advance(tx, caller, SandboxClockAdvance(seconds=60)))
    assert further["offset_seconds"] == DAY // SECOND + 60
    assert World(target, clock, world.organization).examine() == []


def seen(database: Database, world: World) -> dict[str, Any]:
    """Return the clock, the captured mails and the events of a sandbox as its keys see them."""
    own = replace(world.organization, clock_offset=DAY)
    caller = replace(world.caller(), organization=own, at=own.instant(world.clock()))

    def read(tx: Any) -> dict[str, Any]:
        tx.instant = caller.at
        mails = sandboxes.find_mails(tx, caller, PageRequest(9))["data"]
        listed = [row[0] for row in tx.all(_EVENTS, o=world.org)]
        return {"clock": sandboxes.clock(tx, caller), "mails": mails, "events": listed}

    found = database.read(read)
    del found["clock"]["now"]  # the real time goes on
    return found


def test_an_organization_that_comes_back_is_forwarded_to_where_it_is(world: World, places: dict[str, Place]) -> None:
    before = contents(world.database, world.org)
    mover(world, places).run()
    mover(world, places, source="c2", target=FIRST).run()
    assert contents(world.database, world.org) == before
    assert world.database.read(lambda tx: cells.forwarded_to(tx, world.org)) is None
    assert places["c2"][1].read(lambda tx: cells.forwarded_to(tx, world.org)) == FIRST


def test_what_is_written_during_the_copy_moves_too(world: World, places: dict[str, Place]) -> None:
    """Each table that is copied sees a booking, a cancelled row and a deleted one."""
    departure = world.departure(world.experience(), seats=100)
    written: list[str] = []

    def write(table: str, count: int) -> None:
        key = f"while-{table}-is-copied-{len(written)}"
        (answer,) = created(world.database, [create(world, departure, key)])
        assert isinstance(answer, Answer)
        assert answer.status == 201
        written.append(key)
        with world.database.writing() as tx:
            tx.run(_DELETE_ATTEMPTS, o=world.org)

    world.insert(tables.attempts, delivery_id=world.org, number=1, trigger="event", started_at=1)
    mover(world, places, report=write).run()
    moved = World(places["c2"][1], world.clock, world.organization)
    assert len(moved.rows(tables.bookings)) == 3 + len(written)
    numbers = sorted(row["booking_number"] for row in moved.rows(tables.bookings))
    assert numbers == list(range(1, len(numbers) + 1))
    sequences = sorted(row["sequence"] for row in moved.rows(tables.events))
    assert sequences == list(range(1, len(sequences) + 1))
    assert moved.rows(tables.attempts) == []
    assert moved.examine() == []
    (again,) = created(moved.database, [create(moved, departure, written[0])])
    assert isinstance(again, Answer)
    assert again.replayed


def test_nothing_is_due_in_the_other_cell_before_the_organization_lives_there(
    world: World, places: dict[str, Place]
) -> None:
    world.change(tables.bookings, world.rows(tables.bookings)[0]["id"], status="pending", expires_at=5)
    due: list[dict[str, int]] = []
    target = places["c2"][1]

    def look(table: str, count: int) -> None:
        copied = World(target, world.clock, world.organization)
        due.append(
            {
                "keys": len(copied.rows(tables.api_keys)),
                "endpoints": len(copied.rows(tables.webhook_endpoints)),
                "deliveries": sum(row["completed_at"] is None for row in copied.rows(tables.deliveries)),
                "mails": sum(row["status"] == "queued" for row in copied.rows(tables.mails)),
                "effects": sum(row["status"] == "queued" for row in copied.rows(tables.effects)),
                "checkouts": sum(row["expires_at"] is not None for row in copied.rows(tables.bookings)),
                "departures": sum(row["minimum_checked_at"] is None for row in copied.rows(tables.departures)),
            }
        )

    mover(world, places, report=look).run()
    assert [each for each in due if any(each.values())] == []
    assert World(target, world.clock, world.organization).rows(tables.deliveries) != []


class Killed(BaseException):
    """Ends a move as the end of its process does."""


STEPS = (
    ("_install", guards),
    ("_copy_page", Mover),
    ("_catch_up", Mover),
    ("_stage", Mover),
    ("_require_same", Mover),
    ("_let_go", Mover),
    ("_leave_once", Mover),
    ("_arrive", moves),
    ("_delete_all", moves),
    ("_forget", Mover),
)
"""The steps at which a move is killed, in their order: before each, or just after it."""


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_move_that_is_killed_at_any_step_goes_on(
    world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    before = contents(world.database, world.org)
    target = places["c2"][1]
    killed: list[str] = []
    for name, owner in STEPS:
        with monkeypatch.context() as patched:
            _kill_at(patched, owner, name, is_after=is_after)
            try:
                mover(world, places).run()
            except Killed:
                killed.append(name)
        lives = [
            contents(database, world.org)["api_keys"][0] + contents(database, world.org)["counters"][0]
            for database in (world.database, target)
        ]
        assert sorted(lives) in ([0, 2], [0, 0]), name  # never in both cells
    assert killed == [name for name, _ in STEPS]
    with contextlib.suppress(BookingError):
        mover(world, places).run()
    assert contents(target, world.org) == before
    assert is_empty(world.database, world.org)


def _kill_at(patched: pytest.MonkeyPatch, owner: Any, name: str, *, is_after: bool) -> None:
    real = getattr(owner, name)

    def killed(*arguments: Any, **named: Any) -> Any:
        if is_after:
            real(*arguments, **named)
        raise Killed

    patched.setattr(owner, name, killed)


YEARS = 3 * 366 * DAY
OLD = ("attempts", "customers", "deliveries", "effects", "events", "holds", "idempotency", "mails")
"""The tables whose rows the jobs delete or change after years."""


def test_no_job_and_no_command_sees_an_organization_before_it_lives_in_the_cell(
    world: World, places: dict[str, Place], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All jobs run in the target when everything is copied: years later, when all of it is past its retention, and
    with a clock that was set back by years. The same jobs act on it as soon as it has arrived."""
    _end_everything(world)
    _stop_before_it_leaves(world, places, monkeypatch)
    cell, target = places["c2"]
    copied = contents(target, world.org)
    assert [name for name in OLD if not copied[name][0]] == []
    assert world.org not in _run_every_job(settings, cell, world)
    assert contents(target, world.org) == copied
    assert [each.slug for each in target.read(organizations.find) if each.id == world.org] == []
    with pytest.raises(BookingError):
        target.read(lambda tx: organizations.get(tx, slug=world.organization.slug))
    assert [each for each in target.read(doctor.examine) if each.organization_id == world.org] == []
    mover(world, places).run()
    _run_every_job(settings, cell, world)
    arrived = contents(target, world.org)
    assert [name for name in OLD if arrived[name] == copied[name]] == []


def _end_everything(world: World) -> None:
    """Let a delivery and a mail have ended, and a guest have none that is to come."""
    mails = Mails(world)
    mails.book(key="a-booking-of-another-guest", customer=guest(9))
    mails.write()
    (delivery,) = world.rows(tables.deliveries)
    ended = {"status": "succeeded", "completed_at": world.clock(), "next_attempt_at": None}
    world.change(tables.deliveries, delivery["id"], **ended)
    world.insert(tables.attempts, delivery_id=delivery["id"], number=1, trigger="event", started_at=1)
    for mail in world.rows(tables.mails):
        world.change(tables.mails, mail["id"], status="sent", completed_at=world.clock(), next_attempt_at=None)
    departure = world.rows(tables.departures)[0]["id"]
    at = {"created_at": world.clock(), "expires_at": world.clock() + SECOND}
    world.insert(tables.holds, departure_id=departure, seats=1, **at)


def _stop_before_it_leaves(world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        _kill_at(patched, Mover, "_leave_once", is_after=False)
        with pytest.raises(Killed):
            mover(world, places).run()


def _run_every_job(settings: Settings, cell: Cell, world: World) -> set[str]:
    """Run each job of a cell once, and what follows a clock that was set back; return whose deliveries are claimed."""
    nowhere = "http://127.0.0.1:9"  # of Stripe: no test asks the real one
    own = replace(cell.settings, guest_retention_days=30, event_retention_days=90, stripe_base_url=nowhere)
    with contextlib.closing(Database(own.database_url, clock=FixedClock(world.clock() + YEARS))) as database:
        jobs = periodic_jobs(own, database, world.installation)
        assert {job.name for job in jobs} >= {"expiry", "refunds", "mail", "retention", "erasure"}
        served = asyncio.run(_run_jobs(own, database, world, jobs))
    with contextlib.closing(Database(own.database_url, clock=FixedClock(world.clock() - YEARS))) as database:
        for realign in all_kinds(world.installation, waits_s=(60,), lease_s=60):
            database.write(realign)
    return served


async def _run_jobs(settings: Settings, database: Database, world: World, jobs: list[Job]) -> set[str]:
    for job in jobs:
        if isinstance(job, RetentionJob):
            _trust_the_clock(job, database)
        await job.run_turn(asyncio.Event())
    queue = Worker(settings, database, world.installation, WebhookSender(settings)).queue
    return {each.organization_id for each in await queue.claim()}


def _trust_the_clock(job: RetentionJob, database: Database) -> None:
    """Let the job be that of a worker that has run for a long time, so that its retention clock agrees."""
    at = database.clock()
    long_ago = Measured(at, at / SECOND - 1e9)
    for _ in range(2):
        reading = database.write(lambda tx: retention_clock.advance(tx, long_ago, at / SECOND))
    job._measured, job._elapsed_s = reading.measured, lambda: at / SECOND


def test_a_copy_whose_move_was_forgotten_is_made_again(
    world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restoration of the source from a backup of before the move."""
    _stop_before_it_leaves(world, places, monkeypatch)
    world.database.write(lambda tx: tx.run(moves._DELETE, o=world.org))
    before = contents(world.database, world.org)
    compared: list[tuple[int, int]] = []
    require_same = Comparison.require_same

    def look(comparison: Comparison, leaving: Any, arriving: Any, at_once: Any) -> None:
        compared.append((comparison.open_count, sum(map(len, at_once.values()))))
        require_same(comparison, leaving, arriving, at_once)

    monkeypatch.setattr(Comparison, "require_same", look)
    mover(world, places).run()
    assert contents(places["c2"][1], world.org) == before
    ((still_open, at_once),) = compared  # what is compared while changes are refused
    assert (still_open, at_once < sum(count for count, _ in before.values()) / 2) == (0, True)


def test_a_move_that_would_refuse_changes_for_too_long_is_refused(
    world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(world.database, world.org)
    with monkeypatch.context() as patched:
        patched.setattr(moves, "AT_ONCE_MAX", 2)
        with pytest.raises(CellError, match="wait for a worker or an endpoint"):
            mover(world, places).run()
    hours = itertools.count(0, 3600)
    with pytest.raises(CellError, match="more than 10 seconds"):
        mover(world, places, clock=lambda: next(hours)).run()
    assert contents(world.database, world.org) == before
    Mails(world).book(key="it-is-served-as-before")
    mover(world, places).abort()
    assert is_empty(places["c2"][1], world.org)


def test_a_move_that_is_undone_leaves_nothing_behind(world: World, places: dict[str, Place]) -> None:
    before = contents(world.database, world.org)

    def stop(table: str, count: int) -> None:
        if table == "bookings":
            raise Killed

    with pytest.raises(Killed):
        mover(world, places, report=stop).run()
    with pytest.raises(CellError, match="on its way to the cell c2"):
        mover(world, places, target=OWN_DATABASE).run()
    mover(world, places).abort()
    assert is_empty(places["c2"][1], world.org)
    assert contents(world.database, world.org) == before
    mover(world, places, target=OWN_DATABASE).run()
    with pytest.raises(BookingError):
        mover(world, places).run()


def test_writers_are_refused_while_it_leaves_and_no_other_organization_is(
    world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbour = make_world(places[FIRST][1], world.clock)
    theirs, mine = neighbour.departure(neighbour.experience()), world.departure(world.experience())
    compare, seen = Mover._require_same, []

    def look(*arguments: Any) -> None:
        seen.append(created(world.database, [create(neighbour, theirs, "of-the-neighbour")])[0])
        seen.append(created(world.database, [create(world, mine, "while-it-leaves")])[0])
        with pytest.raises(Unavailable):
            world.change(tables.organizations, world.org, name="changed")
        compare(*arguments)

    monkeypatch.setattr(Mover, "_require_same", look)
    mover(world, places).run()
    neighbours, own = seen
    assert isinstance(neighbours, Answer)
    assert neighbours.status == 201
    assert type(own).__name__ == "Deferred"


def test_a_copy_that_differs_does_not_become_the_organization(
    world: World, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive = moves._arrive

    def lose_an_event(tx: Any, organization_id: str, of: Any) -> None:
        arrive(tx, organization_id, of)
        tx.run(_DELETE_EVENT, o=organization_id)

    before = contents(world.database, world.org)
    monkeypatch.setattr(moves, "_arrive", lose_an_event)
    with pytest.raises(CellError, match="events are not the same"):
        mover(world, places).run()
    assert contents(world.database, world.org) == before
    assert contents(places["c2"][1], world.org)["api_keys"] == (0, "0")
    mover(world, places).abort()


def test_a_row_that_changes_in_the_other_cell_is_found(world: World, places: dict[str, Place]) -> None:
    copy = World(places["c2"][1], world.clock, world.organization)
    experience = world.rows(tables.experiences)[0]["id"]

    def change(table: str, count: int) -> None:
        if table == "bookings":
            copy.change(tables.experiences, experience, title="Another tour")

    before = contents(world.database, world.org)
    with pytest.raises(CellError, match="experiences are not the same"):
        mover(world, places, report=change).run()
    assert contents(world.database, world.org) == before
    mover(world, places).abort()


def test_a_move_under_load_loses_and_doubles_nothing(world: World, places: dict[str, Place]) -> None:
    departure = world.departure(world.experience(), seats=1000)
    answered: list[str] = []
    has_left = threading.Event()

    def book() -> None:
        for number in range(400):
            if has_left.is_set():
                return
            try:
                (answer,) = created(world.database, [create(world, departure, f"under-load-{number:04}")])
            except BookingError:
                continue
            if isinstance(answer, Answer) and answer.status == 201:
                answered.append(f"under-load-{number:04}")

    def pause(seconds: float) -> None:
        if seconds == moves.LATE_S:  # from now on no request is admitted here
            has_left.set()
            writer.join()

    writer = threading.Thread(target=book)
    writer.start()
    try:
        mover(world, places, pause=pause).run()
    finally:
        has_left.set()
        writer.join()
    moved = World(places["c2"][1], world.clock, world.organization)
    assert len(moved.rows(tables.bookings)) == 3 + len(answered)
    assert sorted(row["booking_number"] for row in moved.rows(tables.bookings)) == list(range(1, 4 + len(answered)))
    for key in answered[:: max(1, len(answered) // 10)]:
        (again,) = created(moved.database, [create(moved, departure, key)])
        assert isinstance(again, Answer)
        assert again.replayed
    assert moved.examine() == []
    assert is_empty(world.database, world.org)
