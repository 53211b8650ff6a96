"""The operations of an organization while another one misbehaves, at full size.

Tests count turns (`tests/isolation/README.md`); here are the latencies, which depend on the machine. The reasons are in
decisions/0027.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from support.databases.databases import fill, rows_held, run
from support.receivers.receivers import hang
from support.world import rows
from support.world.hooks import Hooks
from support.world.operations import Operations
from support.world.world import DAY, HOUR

from bench import postgres
from bench.delivering import QUIET
from bench.measure import Entry, Reading, Sides, Timing, entry
from bench.neighbours import Scene
from bench.stage import Stage
from booking_core.base.clock import MINUTE, system_clock
from booking_core.base.tokens import new_id
from booking_core.db import tables

FAR_DAY, FAR_START, FAR = "2039-01-01", "2039-01-01T12:00:00Z", 2_177_496_000_000_000
"""A day, and its noon, UTC."""


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """A row of the table: the misbehaviour in words, and a block during which an organization misbehaves."""

    name: str
    does: str
    run: Callable[[Scene], AbstractContextManager[None]]
    holds_writer: bool = False
    """The writer of SQLite is taken during the block, so the neighbour only reads there."""


def isolation(misbehaviour: Misbehaviour, backend: str) -> Entry:
    """Make the entry of a misbehaviour on one database."""
    name, is_sqlite = f"isolation-{misbehaviour.name}-{backend}", backend == "sqlite"

    @entry(name, f"an organization on {backend} while {misbehaviour.does}", rounds=1)
    def build(stage: Stage, stack: ExitStack) -> Sides:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-isolation-"))
        url = f"sqlite:///{folder}/booking.db" if is_sqlite else stage.postgres.create_database(name)
        scene = Scene(url, stack)

        def quiet(_: Timing) -> Reading:
            return scene.measure(writes=not (is_sqlite and misbehaviour.holds_writer))

        def offended(timing: Timing) -> Reading:
            with misbehaviour.run(scene):
                return quiet(timing)

        return {"quiet": quiet, "beside it": offended}

    return build


@contextmanager
def rare_filters(scene: Scene) -> Iterator[None]:
    """List with combined filters: many bookings match each filter, and none matches all of them."""
    confirmed = _many_bookings(scene, "confirmed", system_clock() + DAY)
    cancelled = _many_bookings(scene, "cancelled", FAR, cancelled_at=system_clock())
    if not scene.is_sqlite:
        postgres.settle(scene.url)  # as autovacuum does after a while
    filters = (
        f"status=confirmed&experience_id={cancelled}",
        f"status=cancelled&experience_id={confirmed}",
        f"status=confirmed&departure_from={FAR_DAY}",
    )
    with scene.crowd([scene.shop.get(f"/api/v1/bookings?{rare}") for rare in filters], 24):
        yield


def _many_bookings(scene: Scene, status: str, starts_at: int, **columns: Any) -> str:
    """Insert half of the bookings, a second apart, and return their experience."""
    world, now = scene.offender, system_clock()
    experience = world.experience()
    place = world.departure(experience, starts_at=starts_at), experience
    bookings = (
        rows.booking(world.org, new_id(), *place, now - number * 1_000_000, status=status, **columns)
        for number in range(150_000)
    )
    fill(scene.url, tables.bookings, bookings)
    return experience


@contextmanager
def locked_departure(scene: Scene) -> Iterator[None]:
    """Hold the locks of a process that is frozen, and book."""
    locking = "SELECT 1 FROM departures d JOIN counters c USING (organization_id) WHERE d.id = %s FOR UPDATE"
    with rows_held(scene.url, locking, *scene.shop.departures), scene.crowd(scene.shop.bookings(**QUIET), 8):
        yield


@contextmanager
def hanging_receiver(scene: Scene) -> Iterator[None]:
    receiver = scene.receivers.open(lambda _: hang)
    Hooks(scene.offender).endpoint(url=receiver.url, events=10_000)
    receiver.wait_for(1)
    yield


@contextmanager
def hanging_mails(scene: Scene) -> Iterator[None]:
    """Have mails to staff; the mail server never answers about their address."""
    due_at, kind = system_clock() - HOUR, "staff_webhook_failing_mail"
    payload = json.dumps({"url": "https://receiver.example", "hours": 24, "failures": 20, "since": due_at})
    row = {"organization_id": scene.offender.org, "kind": kind, "payload": payload, "status": "queued"}
    times = {"due_at": due_at, "created_at": due_at}
    subjects = (new_id() for _ in range(50_000))
    fill(
        scene.url,
        tables.effects,
        (row | times | {"key": f"{kind}:{subject}", "subject_id": subject} for subject in subjects),
    )
    yield


@contextmanager
def stuck_checkouts(scene: Scene) -> Iterator[None]:
    """Let checkouts expire that cannot be cancelled: their organization has an unknown timezone. On PostgreSQL, one of
    them is locked too."""
    world, org = scene.offender, scene.offender.org
    for number in range(2):
        Operations(world).check_out(scene.shop.departures[0], email=f"{number}@example.com")
    run(
        scene.url,
        f"UPDATE bookings SET expires_at = {system_clock() - DAY} WHERE organization_id = '{org}'",
        f"UPDATE organizations SET timezone = 'Mars/Olympus' WHERE id = '{org}'",
    )
    locking = "SELECT 1 FROM bookings WHERE organization_id = %s LIMIT 1 FOR UPDATE"
    with nullcontext() if scene.is_sqlite else rows_held(scene.url, locking, org):
        yield


@contextmanager
def octo_reservations(scene: Scene) -> Iterator[None]:
    """Reserve seats by OCTO until the organization has the most holds that it may have, and be refused from then on."""
    order = {"availabilityId": FAR_START, "unitItems": [{"unitId": "adult"}]}
    with scene.crowd([scene.shop.post("/octo/bookings", _octo_product(scene, 1) | order)], 24):
        yield


@contextmanager
def octo_availability(scene: Scene) -> Iterator[None]:
    """List 5,000 departures by OCTO."""
    window = {"localDateStart": FAR_DAY, "localDateEnd": "2039-01-05"}
    with scene.crowd([scene.shop.post("/octo/availability", _octo_product(scene, 5_000) | window)], 8):
        yield


def _octo_product(scene: Scene, departures: int) -> dict[str, object]:
    """Insert a product with departures a minute apart, and return its ids in the standard."""
    world = scene.offender
    experience = world.experience()
    starts = (FAR + number * MINUTE for number in range(departures))
    fill(scene.url, tables.departures, (rows.departure(world.org, new_id(), experience, start) for start in starts))
    return {"productId": experience, "optionId": "DEFAULT"}


MISBEHAVIOURS = (
    Misbehaviour("rare-filter", "24 clients list bookings by filters that none of 300,000 matches", rare_filters),
    Misbehaviour(
        "locked-departure",
        "a departure and the organization's numbers are locked, and eight clients book",
        locked_departure,
        holds_writer=True,
    ),
    Misbehaviour("hanging-receiver", "a receiver never answers", hanging_receiver),
    Misbehaviour("hanging-mails", "50,000 mails are pending at a mail server that hangs", hanging_mails),
    Misbehaviour("stuck-checkouts", "expired checkouts cannot be cancelled", stuck_checkouts),
    Misbehaviour("octo-reservations", "24 clients reserve seats by OCTO", octo_reservations),
    Misbehaviour("octo-availability", "eight clients list 5,000 departures by OCTO", octo_availability),
)
ENTRIES = tuple(
    isolation(misbehaviour, backend) for misbehaviour in MISBEHAVIOURS for backend in ("postgresql", "sqlite")
)
