"""A booking that comes alone is made by the event loop, with two round trips, and is what a batch would have made."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.creating import create
from support.databases import connect, departure_held, numbers_held
from support.lanes import Client, running, statuses, until, url_of
from support.world import World

from booking_core import bookings
from booking_core.db import tables
from booking_core.db.postgres import PostgresConnection
from booking_core.errors import ApiKeyRevoked, AppNotEnabled, IdempotencyKeyReused, RateLimited
from booking_core.idempotency import Answer
from booking_core.settings import RateLimit
from booking_server.execution import creations
from booking_server.execution.authenticator import Credentials
from booking_server.execution.service import Service

LOOP, BATCH = "MainThread", "book-0"
LONG_S = 60.0
Scenario = Callable[[Service, Client], Awaitable[None]]


@pytest.fixture
def neighbour(new_world: Callable[..., World]) -> World:
    return new_world()


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=99)


@pytest.fixture(autouse=True)
def no_sqlite(world: World) -> None:
    if world.database.is_sqlite:
        pytest.skip("SQLite has no server to wait for: the thread of the bookings makes all")


def play(world: World, departure: str, scenario: Scenario, rate_limit: RateLimit | None = None) -> None:
    """Run a scenario with a client whose first booking is made, so that its next one can be made by the loop."""

    async def run() -> None:
        async with running(world, rate_limit) as service:
            client = Client(service, world)
            assert statuses([await client.book(departure, "the-first-one")]) == [201]
            client.prepared.clear()
            await scenario(service, client)

    asyncio.run(run())
    assert world.examine() == []


def sold(world: World) -> int:
    return len(world.rows(tables.bookings))


def test_it_takes_two_round_trips(world: World, departure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = PostgresConnection._send_at_once

    def counted(connection: PostgresConnection, *steps: Any) -> None:
        sent.append(len(steps))
        send(connection, *steps)

    async def scenario(service: Service, client: Client) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(PostgresConnection, "_send_at_once", counted)
            patched.setattr(PostgresConnection, "_pipeline", None)  # nothing else is sent
            patched.setattr(PostgresConnection, "execute", None)
            assert statuses([await client.book(departure, "alone-001")]) == [201]
        assert client.prepared == [LOOP]
        assert service.creations.batches.busy_threads == 0

    play(world, departure, scenario)
    assert sent == [6, 2]  # BEGIN, the key, four to lock and read; all that is written, COMMIT
    assert [row["booking_number"] for row in world.rows(tables.bookings)] == [1, 2]


def test_its_answer_is_stored_and_replayed_like_any_other(world: World, departure: str) -> None:
    full = world.departure(world.experience(), seats=1)

    async def scenario(_: Service, client: Client) -> None:
        await client.book(full, "the-last-seat")
        for wanted, expected in ((departure, 201), (full, 409)):
            first, again = [await client.book(wanted, f"stored-{expected}") for _ in range(2)]
            assert (first.status, first.replayed) == (expected, False)
            assert (again.status, again.body, again.replayed) == (expected, first.body, True)
        assert set(client.prepared) == {LOOP}

    play(world, departure, scenario)
    assert sold(world) == 3


def test_what_comes_meanwhile_is_the_next_batch(world: World, departure: str) -> None:
    sizes: list[int] = []

    async def scenario(service: Service, client: Client) -> None:
        service.creations.batches.observe = lambda size, _: sizes.append(size)
        answers = await asyncio.gather(*(client.book(departure, f"together-{n:02}") for n in range(9)))
        assert statuses(answers) == [201] * 9

    play(world, departure, scenario)
    assert sizes[0] == 1
    assert sum(sizes) == 9
    assert len(sizes) < 9
    assert sorted(row["booking_number"] for row in world.rows(tables.bookings)) == list(range(1, 11))


def test_after_many_that_came_together_none_is_taken_for_one_that_comes_alone(world: World, departure: str) -> None:
    async def scenario(_: Service, client: Client) -> None:
        await asyncio.gather(*(client.book(departure, f"together-{n:02}") for n in range(9)))
        client.prepared.clear()
        await client.book(departure, "behind-them")
        assert client.prepared == [BATCH]
        for number in range(20):
            await client.book(departure, f"alone-{number:03}")
        assert client.prepared[-1] == LOOP

    play(world, departure, scenario)


def test_a_key_that_was_revoked_meanwhile_books_nothing(world: World, departure: str) -> None:
    async def scenario(_: Service, client: Client) -> None:
        with connect(url_of(world)) as connection:
            connection.execute("UPDATE api_keys SET revoked_at = %s", [world.clock()])
        assert isinstance(await client.book(departure, "revoked-01"), ApiKeyRevoked)

    play(world, departure, scenario)
    assert sold(world) == 1


@pytest.mark.parametrize(
    ("change", "thread"),
    [("UPDATE organizations SET name = 'Another name'", BATCH), ("UPDATE organizations SET api_app = false", LOOP)],
)
def test_an_organization_that_has_changed_is_seen_as_it_is(
    world: World, departure: str, change: Any, thread: str
) -> None:
    async def scenario(_: Service, client: Client) -> None:
        with connect(url_of(world)) as connection:
            connection.execute(change)
        found = await client.book(departure, "changed-01")
        assert client.prepared[-1] == thread
        assert isinstance(found, AppNotEnabled if thread == LOOP else Answer)

    play(world, departure, scenario)


def test_each_request_counts_once_wherever_it_is_decided(world: World, departure: str) -> None:
    """The second of these is begun on the loop and decided by the batch."""

    async def scenario(_: Service, client: Client) -> None:
        assert statuses([await client.book(departure, "counted-01")]) == [201]
        with connect(url_of(world)) as connection:
            connection.execute("UPDATE organizations SET name = 'Another name'")
        assert statuses([await client.book(departure, "counted-02")]) == [201]
        assert client.prepared == [LOOP, LOOP, BATCH]
        assert isinstance(await client.book(departure, "counted-03"), RateLimited)
        assert client.prepared[-1] == BATCH

    play(world, departure, scenario, RateLimit(3, 3600))


@pytest.mark.parametrize("holding", [departure_held, numbers_held], ids=["departure", "numbers"])
def test_one_that_needs_a_lock_goes_where_it_may_wait(
    world: World, neighbour: World, departure: str, monkeypatch: pytest.MonkeyPatch, holding: Any
) -> None:
    monkeypatch.setattr(creations, "LOCK_WAIT_S", LONG_S)
    elsewhere = neighbour.departure(neighbour.experience(), seats=99)

    async def scenario(service: Service, client: Client) -> None:
        quiet = Client(service, neighbour)
        with holding(url_of(world), departure if holding is departure_held else world.org):
            waiting = client.book(departure, "waiting-001")
            await until(lambda: service.creations.locked.threads_of(world.org) == 1)
            answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(20)]
            assert statuses(answers) == [201] * 20
            assert quiet.prepared[-1] == LOOP
            assert not waiting.done()  # type: ignore[attr-defined]
        assert statuses([await waiting]) == [201]

    play(world, departure, scenario)
    assert neighbour.examine() == []


class Held:
    """Holds the batches of bookings in their thread until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.free = threading.Event()
        self._create_many = bookings.create_many
        monkeypatch.setattr(bookings, "create_many", self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.begun.set()
        assert self.free.wait(timeout=60)
        return self._create_many(*given, **named)


@contextlib.asynccontextmanager
async def rush(service: Service, client: Client, departure: str, held: Held) -> AsyncIterator[None]:
    """Let an organization book with many requests at once, whose batch does not end before the body."""
    rushing = [client.book(departure, f"rushing-{n:03}") for n in range(20)]
    await asyncio.to_thread(held.begun.wait, timeout=60)
    try:
        yield
    finally:
        held.free.set()
    assert statuses(await asyncio.gather(*rushing)) == [201] * 20


def test_the_requests_of_another_organization_overtake_a_rush(
    world: World, neighbour: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = neighbour.departure(neighbour.experience(), seats=99)

    async def scenario(service: Service, client: Client) -> None:
        quiet = Client(service, neighbour)
        assert statuses([await quiet.book(elsewhere, "quiet-first")]) == [201]
        held = Held(monkeypatch)
        async with rush(service, client, departure, held):
            await until(lambda: service.creations._lone._opening is not None)
            await service.creations._lone._opening  # type: ignore[misc]
            answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(20)]
            assert statuses(answers) == [201] * 20
            assert quiet.prepared[1:] == [LOOP] * 20
            refused = await quiet.book(elsewhere, "quiet-001", note="another body")
            assert isinstance(refused, IdempotencyKeyReused)

    play(world, departure, scenario)
    assert neighbour.examine() == []


def test_a_request_that_finds_no_connection_beside_a_rush_joins_the_batch(
    world: World, neighbour: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = neighbour.departure(neighbour.experience(), seats=99)

    async def scenario(service: Service, client: Client) -> None:
        quiet, lane = Client(service, neighbour), service.creations._batch_lane
        assert statuses([await quiet.book(elsewhere, "quiet-first")]) == [201]
        async with rush(service, client, departure, Held(monkeypatch)):
            with lane.connection():
                booked = quiet.book(elsewhere, "quiet-second")
                await until(lambda: service.creations.batches.waiting_jobs == 1)
        assert statuses([await booked]) == [201]
        assert quiet.prepared[1:] == [LOOP, BATCH]

    play(world, departure, scenario)


def test_a_row_that_is_locked_unseen_delays_another_organization_by_one_short_wait(
    world: World, neighbour: World, departure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of a customer, which the foreign key of a booking locks: the loop waits as long as a batch does."""
    monkeypatch.setattr(creations, "LOCK_WAIT_S", LONG_S)
    elsewhere = neighbour.departure(neighbour.experience(), seats=99)

    async def scenario(service: Service, client: Client) -> None:
        quiet = Client(service, neighbour)
        with connect(url_of(world)) as connection:
            connection.autocommit = False
            connection.execute("SELECT 1 FROM customers WHERE organization_id = %s FOR UPDATE", [world.org])
            waiting = [client.book(departure, "waiting-001")]
            answers = [await quiet.book(elsewhere, f"quiet-{n:03}") for n in range(20)]
            waiting.append(client.book(departure, "waiting-002"))
            assert statuses(answers) == [201] * 20
            await until(lambda: service.creations.locked.threads_of(world.org) > 0)
            assert not any(each.done() for each in waiting)  # type: ignore[attr-defined]
            connection.execute("ROLLBACK")
        assert statuses(await asyncio.gather(*waiting)) == [201] * 2

    play(world, departure, scenario)


def test_a_client_that_hangs_up_stops_no_transaction(world: World, departure: str) -> None:
    async def scenario(service: Service, client: Client) -> None:
        booking = client.book(departure, "hangs-up-01")
        await until(lambda: service.creations.batches.busy_threads == 1)
        booking.cancel()  # type: ignore[attr-defined]
        await until(lambda: service.creations.batches.busy_threads == 0)
        again = await client.book(departure, "hangs-up-01")
        assert (again.status, again.replayed) == (201, True)

    play(world, departure, scenario)
    assert sold(world) == 2


def test_a_service_that_closes_waits_for_it(world: World, departure: str) -> None:
    async def scenario(service: Service, client: Client) -> None:
        booking = client.book(departure, "at-the-end")
        await until(lambda: service.creations.batches.busy_threads == 1)
        await asyncio.to_thread(service.creations.close)
        assert statuses([await booking]) == [201]

    play(world, departure, scenario)
    assert sold(world) == 2


def test_a_connection_that_is_lost_is_replaced_and_books_once(world: World, departure: str) -> None:
    async def scenario(_: Service, client: Client) -> None:
        for number in range(3):
            with connect(url_of(world)) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
            assert statuses([await client.book(departure, f"lost-{number:04}")]) == [201]

    play(world, departure, scenario)
    assert sold(world) == 4


def test_an_error_is_that_of_its_request_alone(world: World, departure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def scenario(_: Service, client: Client) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(bookings, "decide_many", fail)
            assert isinstance(await client.book(departure, "fails-0001"), ZeroDivisionError)
        assert statuses([await client.book(departure, "fails-0001")]) == [201]

    play(world, departure, scenario)


def test_a_hold_and_a_key_that_is_new_to_the_process_are_left_to_the_batch(world: World, departure: str) -> None:
    async def scenario(service: Service, client: Client) -> None:
        hold_id = "0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55"
        assert (await client.book(departure, "with-a-hold", hold_id=hold_id)).status == 404
        assert client.prepared == [LOOP, BATCH]
        fresh = Client(service, world)
        assert statuses([await fresh.book(departure, "a-new-key-1")]) == [201]
        assert fresh.prepared == [BATCH]

    play(world, departure, scenario)


def test_a_caller_that_was_looked_up_before_is_not_looked_up_again(world: World, departure: str) -> None:
    async def scenario(service: Service, client: Client) -> None:
        request = create(world, departure, "looked-up-1")
        answer = await service.creations.create(
            Credentials((), "192.0.2.1"), lambda _: request, size=9, organization_id=world.org, caller=world.caller()
        )
        assert (answer.status, client.prepared) == (201, [])

    play(world, departure, scenario)
