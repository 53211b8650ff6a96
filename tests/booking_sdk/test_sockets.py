"""The SDK and the service over real sockets, with network failures and concurrent writers."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sdk_support.proxy import FAULTS, Proxy
from support.serving.servers import new_world, served_in_process
from support.serving.threads import together
from support.world.world import World

from booking_core.db import tables
from booking_sdk import APIError, AsyncBookingClient, BookingClient, BookingConfirmed, Timeout
from booking_sdk.testing import ManualClock, on_clock

CREATES = 200
AT_ONCE = 8
TRIES = 500


@pytest.fixture(scope="module")
def served(backend: str, new_database_url: Callable[[str], str]) -> Iterator[tuple[str, int]]:
    """Provide a database for this module, and the port of the service on it."""
    url = new_database_url(backend)
    with served_in_process(url) as port:
        yield url, port


@pytest.fixture
def world(served: tuple[str, int]) -> Iterator[World]:
    with new_world(served[0]) as world:
        yield world


@pytest.fixture
def direct(served: tuple[str, int], world: World) -> Iterator[BookingClient]:
    """Provide a client without a proxy."""
    with BookingClient(world.key(), base_url=f"http://127.0.0.1:{served[1]}") as client:
        yield client


def booking_of(departure: str, number: int) -> dict[str, Any]:
    return {
        "departure_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
        "payment": "external_paid",
        "note": str(number),
    }


class Ledger:
    """The result of each intention, as the SDK reported it."""

    def __init__(self) -> None:
        self.booked: dict[str, str] = {}
        self.given_up: set[str] = set()
        self.unknown: set[str] = set()

    def after(self, number: int, error: APIError) -> str | None:
        """Return the key to repeat a call with; None when it certainly was not executed."""
        assert error.idempotency_key
        if error.maybe_executed:
            self.unknown.add(str(number))
        elif number % 2 and str(number) not in self.unknown:  # an error describes its own call only
            self.given_up.add(str(number))
            return None
        return error.idempotency_key


def book_all(client: BookingClient, departure: str, count: int) -> Ledger:
    ledger = Ledger()

    def book(number: int) -> None:
        key = None
        for _ in range(TRIES):
            try:
                booking = client.bookings.create(**booking_of(departure, number), idempotency_key=key)
            except APIError as error:
                key = ledger.after(number, error)
                if key is None:
                    return
            else:
                ledger.booked[str(number)] = booking.id
                return

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(book, range(count)))
    return ledger


async def book_all_async(client: AsyncBookingClient, departure: str, count: int) -> Ledger:
    ledger, swift = Ledger(), on_clock(client, ManualClock())
    numbers = iter(range(count))

    async def book() -> None:
        for number in numbers:
            key = None
            for _ in range(TRIES):
                try:
                    booking = await swift.bookings.create(**booking_of(departure, number), idempotency_key=key)
                except APIError as error:
                    key = ledger.after(number, error)
                    if key is None:
                        break
                else:
                    ledger.booked[str(number)] = booking.id
                    break

    async with client:
        await asyncio.gather(*(book() for _ in range(AT_ONCE)))
    return ledger


@pytest.mark.exhaustive(but="postgresql")
def test_whatever_the_network_does_each_intention_is_one_booking_or_surely_none(
    served: tuple[str, int], world: World, direct: BookingClient
) -> None:
    departure = world.departure(world.experience(), seats=2 * CREATES)
    with Proxy(served[1], seed=CREATES) as proxy:
        options: dict[str, Any] = {"base_url": proxy.url, "timeout": Timeout(0.5, connect=0.5)}
        if world.database.is_sqlite:  # either database with one kind of client
            ledger = asyncio.run(book_all_async(AsyncBookingClient(world.key(), **options), departure, CREATES))
        else:
            with BookingClient(world.key(), **options) as client:
                ledger = book_all(on_clock(client, ManualClock()), departure, CREATES)
    assert set(proxy.met) == {"none", *FAULTS}
    assert len(ledger.booked) + len(ledger.given_up) == CREATES
    there = {str(booking.note): booking.id for booking in direct.bookings.iterate()}
    assert there == ledger.booked
    assert ledger.unknown
    assert ledger.unknown <= set(ledger.booked)
    assert world.row(tables.departures, departure)["seats_taken"] == len(there)


@pytest.mark.one_database
def test_paginator_during_writes_yields_exactly_the_existing_items(world: World, direct: BookingClient) -> None:
    departure = world.departure(world.experience(), seats=10_000)
    before = [direct.bookings.create(**booking_of(departure, number)).id for number in range(60)]
    booking_ids = []
    for number, booking in enumerate(direct.bookings.iterate(page_size=5)):
        booking_ids.append(booking.id)
        if number % 3 == 0:
            direct.bookings.create(**booking_of(departure, number))
    assert booking_ids == before[::-1]
    assert len(list(direct.bookings.iterate())) == 80


@pytest.mark.one_database
def test_a_stopped_and_resumed_follower_sees_every_event_once_in_order(world: World, direct: BookingClient) -> None:
    departure = world.departure(world.experience(), seats=10_000)

    def write(_: int) -> list[str]:
        return [direct.bookings.create(**booking_of(departure, number)).id for number in range(12)]

    booked: list[str] = []
    with ThreadPoolExecutor(8) as writers:
        writing = [writers.submit(write, number) for number in range(8)]
        events, checkpoint, stops = [], None, 0
        while len(events) < 1 + 2 * 8 * 12:
            feed = direct.events.follow(after=checkpoint, poll=0)
            for event in feed:
                events.append(event)
                checkpoint = feed.checkpoint
                if len(events) % 9 == 0 or len(events) == 1 + 2 * 8 * 12:
                    stops += 1
                    break
        booked = [booking for future in writing for booking in future.result()]
    assert stops >= 20
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    confirmed = Counter(event.data.object.id for event in events if isinstance(event, BookingConfirmed))
    assert confirmed == Counter(booked)


def test_threads_can_share_a_client(world: World, direct: BookingClient) -> None:
    departure = world.departure(world.experience(), seats=10_000)
    booking_ids = together(*[lambda: direct.bookings.create(**booking_of(departure, 1)).id] * AT_ONCE)
    assert len(set(booking_ids)) == AT_ONCE
