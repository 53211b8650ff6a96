"""Bookings of one organization that wait for locks do not delay the bookings of others."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.databases.databases import departure_held, numbers_held, rows_held, wait_for_lock
from support.world.creating import create
from support.world.lanes import Client, running, statuses, until
from support.world.world import World

from booking_core import bookings
from booking_core.base.errors import IdempotencyInProgress, Unavailable
from booking_core.bookings import CreateRequest, capacity
from booking_core.db import sqlite, tables
from booking_core.db.engine import Tx
from booking_core.records.idempotency import Answer
from booking_server.execution import creations
from booking_server.execution.authenticator import Credentials
from booking_server.execution.creations import BATCH, BATCH_BYTES_MAX, WAITING_THREADS_PER_ORGANIZATION, Creation
from booking_server.execution.executor import HandOver, Place

LONG_S, SHORT_S = 60.0, 0.2


@pytest.fixture
def neighbour(new_world: Callable[..., World]) -> World:
    """The organization that does nothing wrong."""
    return new_world()


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=99)


@pytest.fixture
def elsewhere(neighbour: World) -> str:
    """A departure of the neighbour."""
    return neighbour.departure(neighbour.experience(), seats=99)


@pytest.mark.usefixtures("postgresql_only")
def test_a_locked_departure_makes_no_booking_of_another_organization_wait(
    world: World, neighbour: World, departure: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creations, "LOCK_WAIT_S", LONG_S)
    locked = [world.departure(world.experience(), seats=99) for _ in range(4)]

    async def scenario() -> None:
        async with running(world) as service:
            hostile, quiet = Client(service, world), Client(service, neighbour)
            with rows_held(world.url, "SELECT 1 FROM departures WHERE id = ANY(%s::uuid[]) FOR UPDATE", locked):
                waiting = [hostile.book(locked[n % 4], f"waiting-{n:03}") for n in range(40)]
                answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(50)]
                same_shop = await hostile.book(departure, "same-shop-01")
                await until(lambda: service.creations.locked.count(world.org) == 40)
                await until(lambda: service.creations.locked.threads[world.org] >= WAITING_THREADS_PER_ORGANIZATION)
                assert service.creations.locked.threads[world.org] == WAITING_THREADS_PER_ORGANIZATION
                assert not any(task.done() for task in waiting)  # type: ignore[attr-defined]
            assert statuses([*answers, same_shop, *await asyncio.gather(*waiting)]) == [201] * 91

    asyncio.run(scenario())
    assert [world.row(tables.departures, row_id)["seats_taken"] for row_id in locked] == [10] * 4
    assert world.examine() == neighbour.examine() == []


@pytest.mark.usefixtures("postgresql_only")
def test_an_unexpected_lock_sends_a_batch_to_the_waiting_lane(
    world: World, neighbour: World, departure: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A customer's row, as a transaction that changes the address has it, is locked by the foreign key of a booking."""
    monkeypatch.setattr(creations, "LOCK_WAIT_S", LONG_S)

    async def scenario() -> None:
        async with running(world) as service:
            hostile, quiet = Client(service, world), Client(service, neighbour)
            assert statuses([await hostile.book(departure, "customer-01")]) == [201]
            with rows_held(world.url, "SELECT 1 FROM customers WHERE organization_id = %s FOR UPDATE", world.org):
                waiting = [hostile.book(departure, f"waiting-{n:03}") for n in range(20)]
                answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(50)]
                assert not any(task.done() for task in waiting)  # type: ignore[attr-defined]
            assert statuses([*answers, *await asyncio.gather(*waiting)]) == [201] * 70

    asyncio.run(scenario())
    assert world.examine() == neighbour.examine() == []


@pytest.mark.usefixtures("postgresql_only")
def test_a_booking_beside_a_rush_waits_for_none_of_its_batches(
    world: World, neighbour: World, departure: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch of the rush does not end before the neighbour has its answer."""
    create_many, is_answered = bookings.create_many, threading.Event()

    def slowly(tx: Tx, creates: Sequence[CreateRequest], **options: Any) -> Any:
        if creates[0].organization_id == world.org:
            assert is_answered.wait(30)
        return create_many(tx, creates, **options)

    monkeypatch.setattr(bookings, "create_many", slowly)

    async def scenario() -> None:
        async with running(world) as service:
            rush, quiet = Client(service, world), Client(service, neighbour)
            waiting = [rush.book(departure, f"rush-{n:03}") for n in range(40)]
            await until(lambda: service.creations.batches.is_rushed_by_another(neighbour.org))
            answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(5)]
            assert not any(task.done() for task in waiting)  # type: ignore[attr-defined]
            is_answered.set()
            assert statuses(answers) == [201] * 5
            assert statuses(await asyncio.gather(*waiting)) == [201] * 40

    asyncio.run(scenario())
    assert world.examine() == neighbour.examine() == []


@pytest.mark.usefixtures("postgresql_only")
@pytest.mark.parametrize("holding", [departure_held, numbers_held], ids=["departure", "numbers"])
def test_a_lock_that_is_kept_is_refused_and_the_retry_books_once(
    world: World, departure: str, monkeypatch: pytest.MonkeyPatch, holding: Any
) -> None:
    monkeypatch.setattr(creations, "LOCK_WAIT_S", SHORT_S)

    async def scenario() -> None:
        async with running(world) as service:
            client = Client(service, world)
            with holding(world.url, departure if holding is departure_held else world.org):
                refused = await asyncio.gather(*(client.book(departure, f"refused-{n:03}") for n in range(40)))
            assert [(type(result), result.retry_after_s > 0) for result in refused] == [(Unavailable, True)] * 40
            assert world.rows(tables.idempotency) == []
            retried = await asyncio.gather(*(client.book(departure, f"refused-{n:03}") for n in range(40)))
            again = await asyncio.gather(*(client.book(departure, f"refused-{n:03}") for n in range(40)))
            assert statuses(retried) == statuses(again) == [201] * 40
            assert all(result.replayed for result in again)

    asyncio.run(scenario())
    assert world.row(tables.departures, departure)["seats_taken"] == 40
    assert world.examine() == []


@pytest.mark.usefixtures("postgresql_only")
def test_a_duplicate_of_a_waiting_request_is_in_progress(
    world: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin came through another process, which does not know of the first."""
    monkeypatch.setattr(creations, "LOCK_WAIT_S", LONG_S)
    request = create(world, departure, "twin-key-1")

    async def scenario() -> None:
        async with running(world) as service:
            client = Client(service, world)
            with departure_held(world.url, departure):
                first = client.book(departure, "twin-key-1")
                await until(lambda: service.creations.locked.threads[world.org] == 1)
                await asyncio.to_thread(wait_for_lock, world.url)
                (twin,) = await asyncio.to_thread(world.database.write, lambda tx: bookings.create_many(tx, [request]))
            assert isinstance(twin, IdempotencyInProgress)
            assert statuses([await first]) == [201]

    asyncio.run(scenario())
    assert len(world.rows(tables.bookings)) == 1


class Batches:
    """Records the idempotency keys of each transaction; one with the poisoned key fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, poison: str = "") -> None:
        self.keys: list[list[str]] = []
        self._poison = poison
        self._create_many = bookings.create_many
        monkeypatch.setattr(bookings, "create_many", self)

    def __call__(self, tx: Tx, creates: Sequence[CreateRequest], **keywords: Any) -> Any:
        self.keys.append([create.once.key for create in creates])
        if self._poison in self.keys[-1]:
            raise ZeroDivisionError
        return self._create_many(tx, creates, **keywords)


def test_a_request_that_fails_its_batch_hurts_only_itself(
    world: World, neighbour: World, departure: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(monkeypatch, poison="hostile-007")

    async def scenario() -> list[Any]:
        async with running(world) as service:
            hostile, quiet = Client(service, world), Client(service, neighbour)
            results = [hostile.book(departure, f"hostile-{n:03}") for n in range(10)]
            results += [quiet.book(elsewhere, f"quiet-{n:03}") for n in range(10)]
            return await asyncio.gather(*results)

    results = asyncio.run(scenario())
    assert [type(result) for result in results[:10]] == [Answer] * 7 + [ZeroDivisionError] + [Answer] * 2
    assert statuses(results) == [201] * 19
    # With all, with the requests of its organization, and alone; another organization's are never tried alone.
    tried = Counter(key for batch in batches.keys for key in batch)
    assert max(times for key, times in tried.items() if key.startswith("hostile")) <= 3
    assert max(times for key, times in tried.items() if key.startswith("quiet")) <= 2
    assert world.examine() == neighbour.examine() == []


def test_long_notes_leave_a_neighbour_in_a_short_batch(
    world: World, neighbour: World, departure: str, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = Batches(monkeypatch)
    note = "n" * 2000
    most = 1 + BATCH_BYTES_MAX // len(note)

    async def scenario() -> list[Any]:
        async with running(world) as service:
            hostile, quiet = Client(service, world), Client(service, neighbour)
            results = [hostile.book(departure, f"hostile-{n:03}", note=note) for n in range(60)]
            return await asyncio.gather(*results, quiet.book(elsewhere, "quiet-01"))

    assert statuses(asyncio.run(scenario())) == [201] * 61
    assert max(map(len, batches.keys)) <= most < BATCH
    assert any("quiet-01" in batch for batch in batches.keys[:2])


@pytest.mark.parametrize(("for_all", "tries"), [(True, 1), (False, 5)])
def test_a_failed_batch_is_retried_by_organization_then_by_request(
    world: World, departure: str, monkeypatch: pytest.MonkeyPatch, for_all: bool, tries: int
) -> None:
    tried: list[int] = []
    outage = Unavailable(for_all=for_all)

    def fail(_: object, creates: Sequence[object], **__: object) -> None:
        tried.append(len(creates))
        raise outage

    monkeypatch.setattr(bookings, "create_many", fail)
    failing = [
        Creation(Credentials((), ""), fail, create=create(world, departure, f"fails-{n:03}"))  # type: ignore[arg-type]
        for n in range(3)
    ]

    async def scenario() -> None:
        async with running(world) as service:
            lanes = service.creations
            outcomes = await asyncio.to_thread(lanes._create_all, failing)
            if for_all:
                assert outcomes == [outage] * 3
                return
            together, alone = (
                HandOver(Place(world.org, creations._NUMBERS)),
                [HandOver(Place(world.org, id(request))) for request in failing],
            )
            assert outcomes == [together] * 3
            assert await asyncio.to_thread(lanes._create_waiting, failing) == alone
            for request in failing:
                assert await asyncio.to_thread(lanes._create_waiting, [request]) == [outage]

    asyncio.run(scenario())
    assert tried == [3, 3, 1, 1, 1][:tries]


def test_a_file_that_another_process_keeps_is_waited_for_once_by_all(
    world: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not world.database.is_sqlite:
        pytest.skip("PostgreSQL has no lock for all")
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", SHORT_S)
    begun = 0
    begin = sqlite.SqliteConnection.begin

    def counted(connection: sqlite.SqliteConnection) -> None:
        nonlocal begun
        begun += 1
        begin(connection)

    async def scenario() -> list[Any]:
        async with running(world) as service:
            client = Client(service, world)
            assert statuses([await client.book(departure, "before-001")]) == [201]
            with numbers_held(world.url, world.org):
                monkeypatch.setattr(sqlite.SqliteConnection, "begin", counted)
                booked = [client.book(departure, f"waits-{n:03}") for n in range(3 * BATCH)]
                write = service.write(lambda tx: tx.now(), organization_id=world.org, is_once=False)
                return await asyncio.gather(*booked, write, return_exceptions=True)

    results = asyncio.run(scenario())
    assert [type(result) for result in results] == [Unavailable] * (3 * BATCH + 1)
    assert begun <= 2  # those that came together, once by either lane at most
    assert len(world.rows(tables.bookings)) == 1


@pytest.mark.usefixtures("postgresql_only")
def test_a_frozen_process_that_has_locks_is_waited_for_and_not_refused(
    world: World, neighbour: World, departure: str, elsewhere: str
) -> None:
    """PostgreSQL ends a transaction that pauses before a request that waits for it would be refused."""
    ended: list[BaseException] = []
    frozen, thaw = threading.Event(), threading.Event()

    def freeze(tx: Tx) -> None:
        capacity.lock_bookable(tx, world.caller(), departure)
        if not frozen.is_set():
            frozen.set()
            assert thaw.wait(60)
            ended.append(ZeroDivisionError())
        tx.now()

    async def scenario() -> None:
        async with running(world) as service:
            client, quiet = Client(service, world), Client(service, neighbour)
            sibling = asyncio.create_task(asyncio.to_thread(world.database.write, freeze))
            await asyncio.to_thread(frozen.wait, 60)
            waiting = [client.book(departure, f"waiting-{n:03}") for n in range(5)]
            answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(20)]
            assert statuses([*answers, *await asyncio.gather(*waiting)]) == [201] * 25
            thaw.set()
            await sibling  # it was rolled back, and is run again when the process goes on

    asyncio.run(scenario())
    assert len(ended) == 1
    assert world.examine() == neighbour.examine() == []
