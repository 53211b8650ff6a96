"""The channel manager of examples/, as processes: after any of them is killed, its mirror equals the service again."""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.receivers.receivers import LOCAL, wait_until
from support.serving import forking
from support.serving.servers import Service, free_port, new_world
from support.world.hooks import Hooks
from support.world.world import World

from booking_core.models.events import EventType
from booking_core.models.scopes import Scope
from booking_sdk import Booking, BookingClient, BookingEvent, Event
from booking_sdk.testing import FakeBookingAPI, make_booking, make_event

FOLDER = Path(__file__).parents[2] / "examples" / "channel_manager"
WITH_WORKER = "booking_server.app:create_app_with_worker"
BOOKING_EVENTS = (
    EventType.BOOKING_CREATED,
    EventType.BOOKING_CONFIRMED,
    EventType.BOOKING_CANCELLED,
    EventType.BOOKING_RESCHEDULED,
)
KILLS = 4
"""The processes are killed one after the other."""
BOOKINGS_PER_KILL = 15
BOOKINGS = KILLS * BOOKINGS_PER_KILL
AT_ONCE = 4
WAITS = {"BOOKING_WEBHOOK_WAITS": "1,2,4,8,16"}
"""Seconds. A killed receiver is running again before the last of the six attempts, even with a slow start."""


class Part:
    """A script of the example, as a process."""

    def __init__(self, script: str, *arguments: str, log: Path, **environment: str) -> None:
        self._words = [forking.SCRIPT, str(FOLDER / script), *arguments]
        self._environment = {**os.environ, **environment}
        self._log = log
        self._process: forking.Process | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = forking.start(self._words, env=self._environment, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the process, as a power cut would. It must have been running."""
        assert self._process is not None
        self._process.kill()
        assert self._process.wait(60) == -signal.SIGKILL, self._log.read_text()

    def kill_and_start(self) -> None:
        self.kill()
        self.start()


@dataclass(frozen=True)
class Stage:
    """A running service with one organization."""

    url: str
    world: World

    def client(self, *scopes: Scope) -> BookingClient:
        return BookingClient(self.world.key(*scopes), base_url=self.url)

    def bookings(self) -> dict[str, Any]:
        """Return every booking as events show it, by its id."""
        with self.client(Scope.BOOKINGS_READ) as client:
            return {booking.id: in_events(booking) for booking in client.bookings.iterate()}

    def event_ids(self) -> set[str]:
        with self.client(Scope.BOOKINGS_READ) as client:
            return {event.id for event in client.events.follow(types=["booking.*"], poll=None)}


@pytest.fixture
def stage(fresh_database_url: str, tmp_path: Path) -> Iterator[Stage]:
    service = Service(fresh_database_url, tmp_path / "service.log", **(LOCAL | WAITS)).start(WITH_WORKER)
    try:
        with new_world(fresh_database_url) as world:
            yield Stage(f"http://127.0.0.1:{service.ports[0]}", world)
    finally:
        service.kill()


@contextmanager
def parts(stage: Stage, names: tuple[str, ...], folder: Path) -> Iterator[list[Part]]:
    """Run the follower, the receiver, or both on one mirror, and kill those still running at the end."""
    mirror = str(folder / "mirror.db")
    key = stage.world.key(Scope.BOOKINGS_READ)
    port = free_port()
    hooks = Hooks(stage.world)
    parts: list[Part] = []
    if "follow" in names:
        settings = {"BOOKING_API_KEY": key, "BOOKING_BASE_URL": stage.url}
        parts.append(Part("follow.py", mirror, log=folder / "follow.log", **settings))
    if "receive" in names:
        endpoint = hooks.endpoint(*BOOKING_EVENTS, url=f"http://127.0.0.1:{port}/hook")
        secret = {"BOOKING_WEBHOOK_SECRET": hooks.secrets[endpoint]}
        parts.append(Part("receive.py", mirror, str(port), log=folder / "receive.log", **secret))
    for part in parts:
        part.start()
    try:
        wait_until(lambda: rows(folder, "SELECT * FROM sqlite_master WHERE name = 'position'"), "there is a mirror")
        yield parts
    finally:
        for part in parts:
            part.kill()


def book_and_cancel(client: BookingClient, departure: str, number: int) -> None:
    """Book a seat, and cancel one of three bookings."""
    booking = client.bookings.create(
        departure_id=departure,
        guests=[{"tier_id": "adult", "count": 1}],
        customer={"name": "Ada Lovelace", "email": f"ada{number % 7}@example.com"},
        payment="pay_on_site",
    )
    if number % 3 == 0:
        client.bookings.cancel(booking.id)


def mirrored(folder: Path) -> dict[str, Any]:
    return {id_: json.loads(body) for id_, body in rows(folder, "SELECT id, body FROM bookings")}


def noticed(folder: Path) -> set[str]:
    return {event_id for (event_id,) in rows(folder, "SELECT event_id FROM notices")}


def rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "mirror.db", timeout=60)) as database:
        return database.execute(query).fetchall()


@pytest.mark.exhaustive(but="follow]")
@pytest.mark.parametrize(
    ("backend", "names"),
    [("sqlite", ("follow",)), ("sqlite", ("receive",)), ("postgresql", ("follow", "receive"))],
    ids=["follow", "receive", "follow+receive"],
    indirect=["backend"],
)
def test_the_mirror_is_exact_whoever_is_killed_while_guests_book_and_cancel(
    stage: Stage, names: tuple[str, ...], tmp_path: Path
) -> None:
    departure = stage.world.departure(stage.world.experience(), seats=BOOKINGS)
    with parts(stage, names, tmp_path) as running, stage.client() as client:
        for kill in range(KILLS):
            count = len(noticed(tmp_path))
            with ThreadPoolExecutor(AT_ONCE) as guests:
                numbers = range(kill * BOOKINGS_PER_KILL, (kill + 1) * BOOKINGS_PER_KILL)
                futures = [guests.submit(book_and_cancel, client, departure, number) for number in numbers]
                wait_until(lambda count=count: len(noticed(tmp_path)) > count, "the mirror grows")  # type: ignore[misc]
                running[kill % len(running)].kill_and_start()
            for booked in futures:
                booked.result()
        bookings, events = stage.bookings(), stage.event_ids()
        wait_until(lambda: noticed(tmp_path) >= events, "every event has arrived")
        assert mirrored(tmp_path) == bookings
        assert noticed(tmp_path) == events
    assert len(bookings) == BOOKINGS
    assert sum(booking["status"] == "cancelled" for booking in bookings.values()) == BOOKINGS // 3
    assert stage.world.examine() == []


# The mirror without processes ------------------------------------------------------------------------------------


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Any]]:
    """The modules of the example, as its scripts import them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import follow
    import mirror

    yield {"follow": follow.follow, "Mirror": mirror.Mirror}
    for name in ("follow", "mirror"):
        del sys.modules[name]


def event_of(kind: str, booking: Booking, status: str, sequence: int) -> Event:
    """Make an event that shows the booking in that state."""
    event = make_event(kind, about=booking.model_copy(update={"status": status}))
    return event.model_copy(update={"sequence": sequence})


def test_what_happened_before_the_feed_began_is_mirrored_too(example: Mapping[str, Any], tmp_path: Path) -> None:
    old, cancelled = make_booking(status="confirmed"), make_booking(status="confirmed")
    mirror = example["Mirror"](tmp_path / "mirror.db")
    mirror.handle(event_of("booking.cancelled", cancelled, "cancelled", 3))
    mirror.fill([old, cancelled])
    mirror.close()
    states = dict(rows(tmp_path, "SELECT id, status FROM bookings"))
    assert states == {old.id: "confirmed", cancelled.id: "cancelled"}


def test_an_event_that_comes_late_or_twice_changes_nothing(example: Mapping[str, Any], tmp_path: Path) -> None:
    booking = make_booking()
    created = event_of("booking.created", booking, "confirmed", 1)
    cancelled = event_of("booking.cancelled", booking, "cancelled", 3)
    mirror = example["Mirror"](tmp_path / "mirror.db")
    for event in (cancelled, created, cancelled, created):
        mirror.handle(event)
    mirror.close()
    assert rows(tmp_path, "SELECT status FROM bookings") == [("cancelled",)]
    assert noticed(tmp_path) == {created.id, cancelled.id}


def in_events(booking: Booking) -> dict[str, Any]:
    """Return a booking from a read in the form of events."""
    return booking.to_json() | {"manage_url": None}


def test_the_follower_goes_on_where_the_mirror_stands(example: Mapping[str, Any], tmp_path: Path) -> None:
    fake = FakeBookingAPI()
    departure = fake.add_departure()
    mirror = example["Mirror"](tmp_path / "mirror.db")
    with fake.client() as client:
        book_and_cancel(client, departure.id, 0)
        example["follow"](client, mirror, None)
        stood_at = mirror.checkpoint
        book_and_cancel(client, departure.id, 1)
        example["follow"](client, mirror, None)
    assert mirror.checkpoint not in (None, stood_at)
    mirror.close()
    assert noticed(tmp_path) == {event.id for event in fake.events if isinstance(event, BookingEvent)}
    assert mirrored(tmp_path) == {booking.id: in_events(booking) for booking in fake.bookings}
