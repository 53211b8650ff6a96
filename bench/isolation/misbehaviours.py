"""The table of misbehaviours. Each holds something for as long as its body runs, or keeps the service busy."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from support.databases.databases import run
from support.receivers.receivers import wait_until
from support.world.operations import Operations
from support.world.world import DAY

from bench.isolation import bulk
from bench.isolation.bulk import Sql
from bench.isolation.operations import READS, USUAL, Operation
from bench.isolation.processes import FRESH
from bench.isolation.scene import Scene, held
from booking_core.base.clock import system_clock
from booking_core.db import tables

_FAR_DAY = "2039-01-01"
_FAR = 2_177_496_000_000_000
"""Noon of that day, UTC."""


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """A row of the table.

    Args:
        does: the misbehaviour in words.
        run: a context manager that misbehaves while its body runs.
        prepare: creates the rows that exist before the service starts.
        settings: settings of the service, if the usual settings do not show the misbehaviour.
        operations: the neighbour's operations.
        on_sqlite: the operations on SQLite, if they are fewer.
    """

    name: str
    does: str
    run: Callable[[Scene], AbstractContextManager[Any]]
    prepare: Callable[[Scene], None] = lambda _: None
    settings: dict[str, Any] = field(default_factory=dict)
    operations: tuple[Operation, ...] = USUAL
    on_sqlite: tuple[Operation, ...] | None = None

    def measured_on(self, backend: str) -> tuple[Operation, ...]:
        """Return the operations of the neighbour on a database."""
        return self.on_sqlite if backend == "sqlite" and self.on_sqlite is not None else self.operations


def _many_bookings(scene: Scene) -> None:
    """Make bookings of two experiences: confirmed bookings of one, and cancelled bookings of the other."""
    offender, count = scene.offender, 300_000
    over = {"status": "cancelled", "cancelled_at": system_clock()}
    other = offender.world.experience(slug="cancelled")
    departure = offender.world.departure(other, starts_at=_FAR)
    bulk.bookings(scene.url, offender.world, offender.departure, offender.experience, count // 2)
    bulk.bookings(scene.url, offender.world, departure, other, count // 2, **over)


@contextmanager
def _rare_filters(scene: Scene) -> Iterator[None]:
    """List with combined filters: many bookings match each filter, and none matches all of them."""
    cancelled = bulk.value(scene.url, "SELECT id FROM experiences WHERE slug = 'cancelled'")
    rare = [
        f"/bookings?status=confirmed&experience_id={cancelled}",
        f"/bookings?status=cancelled&experience_id={scene.offender.experience}",
        f"/bookings?status=confirmed&departure_from={_FAR_DAY}",
    ]
    with scene.crowd([scene.get(path) for path in rare], 24):
        yield


def _booking(departure: str) -> bytes:
    """Return the body of a booking without mails."""
    body = {
        "experience_date_id": departure,
        "guests": [{"tier_id": "adult", "count": 1}],
        "customer": {"name": "Ada Lovelace", "email": f"{FRESH.decode()}@example.com"},
        "payment": "pay_on_site",
        "send_confirmation_email": False,
        "notify_staff": False,
    }
    return json.dumps(body).encode()


@contextmanager
def _locked_departure(scene: Scene) -> Iterator[None]:
    """Hold the locks of a process that is frozen: a departure and the organization's numbers; and book."""
    org, departure = scene.offender.world.org, scene.offender.departure
    locked = (
        f"SELECT 1 FROM departures WHERE id = '{departure}' FOR UPDATE",
        f"SELECT 1 FROM counters WHERE organization_id = '{org}' FOR UPDATE",
    )
    with held(scene.url, *locked), scene.crowd([scene.send("POST", "/bookings", _booking(departure))], 8):
        if not scene.is_sqlite:
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            wait_until(lambda: bulk.value(scene.url, waits) > 0, "a booking waits for the lock")
        yield


def _receiver_that_hangs(scene: Scene) -> None:
    scene.open_hanging_endpoint()
    bulk.waiting(scene.url, scene.offender.world, 10_000)


@contextmanager
def _hanging_receiver(scene: Scene) -> Iterator[None]:
    wait_until(lambda: bool(scene.hanging.receipts), "the receiver was called")
    yield


@contextmanager
def _hanging_mails(scene: Scene) -> Iterator[None]:
    """Have pending mails to staff; the mail server never responds about their address."""
    world, now, subject = scene.offender.world, system_clock(), bulk.new_ids(scene.url)
    kind = "staff_webhook_failing_mail"
    row = {
        "organization_id": world.org,
        "key": Sql(f"'{kind}:' || {subject.text}"),
        "kind": kind,
        "subject_id": subject,
        "payload": json.dumps({"url": "https://receiver.example", "hours": 24, "failures": 20, "since": now}),
        "status": "queued",
        "due_at": now - DAY // 24,
        "created_at": now - DAY // 24,
    }
    run(scene.url, f"UPDATE organizations SET notify_staff = true WHERE id = '{world.org}'")
    bulk.insert(scene.url, tables.effects, 50_000, row)
    yield


def _checkouts_that_fail(scene: Scene) -> None:
    """Let checkouts expire that cannot be cancelled: their organization has an unknown timezone."""
    world, operations = scene.offender.world, Operations(scene.offender.world)
    for number in range(2):
        operations.check_out(scene.offender.departure, email=f"{number}@example.com")
    past = system_clock() - DAY
    run(scene.url, f"UPDATE bookings SET expires_at = {past} WHERE organization_id = '{world.org}'")
    run(scene.url, f"UPDATE organizations SET timezone = 'Mars/Olympus' WHERE id = '{world.org}'")


@contextmanager
def _stuck_checkouts(scene: Scene) -> Iterator[None]:
    """Lock one of the checkouts too, on PostgreSQL."""
    first = f"SELECT 1 FROM bookings WHERE organization_id = '{scene.offender.world.org}' LIMIT 1 FOR UPDATE"
    with nullcontext() if scene.is_sqlite else held(scene.url, first):
        yield


MISBEHAVIOURS = (
    Misbehaviour(
        "rare-filter",
        "24 clients list bookings by filters that none of 300,000 matches",
        _rare_filters,
        _many_bookings,
        settings={"rate_limit": None},
    ),
    Misbehaviour(
        "locked-departure",
        "a departure and the organization's numbers are locked, and eight clients book",
        _locked_departure,
        on_sqlite=READS,
    ),
    Misbehaviour("hanging-receiver", "a receiver never answers", _hanging_receiver, _receiver_that_hangs),
    Misbehaviour("hanging-mails", "50,000 mails are pending at a mail server that hangs", _hanging_mails),
    Misbehaviour(
        "stuck-checkouts",
        "expired checkouts cannot be cancelled",
        _stuck_checkouts,
        _checkouts_that_fail,
        operations=(*USUAL, Operation.EXPIRY),
    ),
)
