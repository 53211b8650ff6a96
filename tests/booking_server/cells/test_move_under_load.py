"""An organization moves to another cell while its clients book and cancel over HTTP."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient
from support.api import Api, booking_body
from support.cells import settings_of_cells, world_in
from support.receivers import wait_until
from support.world import FixedClock, World

from booking_core import cells, doctor
from booking_core.cells import Mover, moves
from booking_core.clock import system_clock
from booking_core.db import tables
from booking_core.settings import Settings
from booking_server.cells import create_app

CLIENTS = 4
BOOKINGS = 12
"""Bookings before the move, after the switch, and after its end."""
_TRIES = 2000


@pytest.fixture(scope="module")
def settings(new_database_url: Callable[[str], str]) -> Settings:
    return settings_of_cells(new_database_url, schemas=())


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as running:
        yield running


class Guests:
    """Clients that book until they are told to stop, and cancel one booking in three."""

    def __init__(self, api: Api, departure: str) -> None:
        self._api, self._body = api, booking_body(departure)
        self.booked: dict[str, str] = {}
        """The id of each booking by its Idempotency-Key."""
        self.cancelled: set[str] = set()
        self.refusals: Counter[tuple[int, bool]] = Counter()
        """Refusals by status and whether they had a Retry-After."""
        self._answers: Counter[int] = Counter()
        """Answers by the thread of the client."""
        self.is_over = threading.Event()

    def book(self) -> None:
        while not self.is_over.is_set():
            key = str(uuid.uuid4())
            booking_id = self._accepted("/bookings", self._body, key)
            self.booked[key] = booking_id
            if len(self.booked) % 3 == 0:
                self.cancelled.add(self._accepted(f"/bookings/{booking_id}/cancel", {}, str(uuid.uuid4())))

    def _accepted(self, path: str, body: object, key: str) -> str:
        """Send a request with its key until it is carried out, and return the id of the booking."""
        for _ in range(_TRIES):
            answer = self._api.post(path, body, key=key)
            self._answers[threading.get_ident()] += 1
            if answer.status_code in (200, 201):
                return str(answer.json()["id"])
            self.refusals[answer.status_code, "retry-after" in answer.headers] += 1
            self.is_over.wait(0.01)
        raise AssertionError(f"{path} was refused {_TRIES} times: {self.refusals}")

    def wait_for_answers(self) -> None:
        """Wait until each client has the answer to what it has asked."""
        before = dict(self._answers)
        wait_until(lambda: all(self._answers[client] > count for client, count in before.items()), "an answer to each")

    def wait_for(self, more: int) -> None:
        wanted = len(self.booked) + more
        wait_until(lambda: len(self.booked) >= wanted, f"{more} more bookings: {self.refusals}")


def test_a_move_under_load_loses_and_doubles_nothing(settings: Settings, client: TestClient) -> None:
    clock, (first, second) = FixedClock(system_clock()), cells.every(settings)
    with world_in(first, clock) as here, world_in(second, clock) as other:
        api = Api(client, here)
        guests = Guests(api, here.departure(here.experience(), seats=100_000))
        with ThreadPoolExecutor(CLIENTS) as threads:
            going_on = [threads.submit(guests.book) for _ in range(CLIENTS)]
            try:
                guests.wait_for(BOOKINGS)
                move(here, other, settings, guests)
                guests.wait_for(BOOKINGS)
            finally:
                guests.is_over.set()
            for each in going_on:
                each.result()
        moved = World(other.database, clock, here.organization)
        assert set(guests.refusals) <= {(503, True)}
        found = {row["id"]: row for row in moved.rows(tables.bookings)}
        assert set(found) == set(guests.booked.values())
        assert {each for each, row in found.items() if row["status"] == "cancelled"} == guests.cancelled
        assert sorted(row["booking_number"] for row in found.values()) == list(range(1, len(found) + 1))
        told = Counter(row["type"] for row in moved.rows(tables.events))
        assert (told["booking.created"], told["booking.cancelled"]) == (len(found), len(guests.cancelled))
        assert moved.examine() == here.examine() == here.rows(tables.bookings) == []
        for key, booking_id in list(guests.booked.items())[:: max(1, len(found) // 10)]:
            again = api.post("/bookings", guests._body, key=key)
            assert (again.status_code, again.json()["id"]) == (201, booking_id)
            assert again.headers["idempotent-replayed"] == "true"


def move(here: World, other: World, settings: Settings, guests: Guests) -> None:
    """Move the organization, and clean up when no request is left that the first cell had admitted."""

    def pause(seconds: float) -> None:
        if seconds == moves.LATE_S:
            guests.wait_for_answers()
            guests.wait_for(BOOKINGS)

    def examine(tx: object, organization_id: str) -> list[str]:
        return [each.message for each in doctor.examine(tx, organization_id)]  # type: ignore[arg-type]

    first, second = cells.every(settings)
    places = (first, here.database), (second, other.database)
    moved = Mover(here.organization.slug, *places, examine=examine, pause=pause).run()
    assert moved.broken == []
