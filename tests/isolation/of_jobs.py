"""Misbehaviours that affect the periodic jobs: mails, refunds, expired checkouts, old rows."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.databases import run
from support.operations import Operations
from support.world import DAY

from booking_core.base.clock import system_clock
from booking_core.db import tables
from isolation import bulk
from isolation.bulk import Sql
from isolation.measuring import Misbehaviour
from isolation.operations import USUAL, Operation
from isolation.world import Scene, held


@contextmanager
def _mails_that_hang(scene: Scene) -> Iterator[None]:
    """Have pending mails to staff; the mail server never responds about their address."""
    world, now, ids = scene.offender.world, system_clock(), bulk.new_ids()
    kind = "staff_webhook_failing_mail"
    subject = ids.of(scene.url)
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
    bulk.insert(scene.url, tables.effects, scene.size(50_000, 2_000), row)
    yield


@contextmanager
def _refunds_that_hang(scene: Scene) -> Iterator[None]:
    """Have pending refunds; the gateway never responds to them."""
    offender, url, now = scene.offender, scene.url, system_clock()
    count = scene.size(5_000, 500)
    cancelled = {"status": "cancelled", "cancelled_at": now}
    booked = bulk.bookings(url, offender.world, offender.departure, offender.experience, count, **cancelled)
    payments, refunds = bulk.new_ids(), bulk.new_ids()
    money = {"organization_id": offender.world.org, "amount_minor": 89000, "currency": "NOK"}
    times = {"created_at": now, "updated_at": now}
    of_booking = {"booking_id": booked.of(url)}
    paid = {"id": payments.of(url), "status": "paid", "payment_intent": Sql(f"'pi_{payments.tag}_' || n")}
    bulk.insert(url, tables.payments, count, money | times | of_booking | paid)
    owed = {"id": refunds.of(url), "payment_id": payments.of(url), "status": "requested", "next_attempt_at": now}
    bulk.insert(url, tables.refunds, count, money | times | of_booking | owed)
    yield


@contextmanager
def _stuck_checkouts(scene: Scene) -> Iterator[None]:
    """Let checkouts expire that cannot be cancelled: one is locked, and one has an unknown timezone."""
    world, operations = scene.offender.world, Operations(scene.offender.world)
    stuck = [operations.check_out(scene.offender.departures[n], email=f"{n}@example.com")["id"] for n in range(2)]
    past = system_clock() - DAY
    listed = ", ".join(f"'{booking_id}'" for booking_id in stuck)
    run(scene.url, f"UPDATE bookings SET expires_at = {past} WHERE id IN ({listed})")
    run(scene.url, f"UPDATE organizations SET timezone = 'Mars/Olympus' WHERE id = '{world.org}'")
    with ExitStack() as stack:
        if not scene.is_sqlite:
            stack.enter_context(held(scene.url, f"SELECT 1 FROM bookings WHERE id = '{stuck[0]}' FOR UPDATE"))
        yield
    run(scene.url, f"UPDATE organizations SET timezone = 'Europe/Oslo' WHERE id = '{world.org}'")


@contextmanager
def _purge(scene: Scene) -> Iterator[None]:
    """Insert rows that are long past their retention, and start the service with them: its job begins at once."""
    count, long_ago = scene.size(1_000_000, 20_000), system_clock() - 400 * DAY
    bulk.events(scene.url, scene.offender.world, count, created_at=long_ago)
    ids = bulk.new_ids()
    answer = {
        "organization_id": scene.offender.world.org,
        "key": Sql(f"'old-{ids.tag}-' || n"),
        "fingerprint": "f" * 64,
        "status": 201,
        "body_sealed": "x" * 1500,
        "created_at": long_ago,
    }
    bulk.insert(scene.url, tables.idempotency, count, answer)
    scene.restart()
    yield


@contextmanager
def _cancelled_departure(scene: Scene) -> Iterator[None]:
    """Cancel a departure with thousands of bookings as staff; a job cancels the bookings batch by batch."""
    offender, url = scene.offender, scene.url
    departure = offender.world.departure(offender.experience, seats=100_000, starts_at=system_clock() + 40 * DAY)
    count = scene.size(20_000, 1_000)
    bulk.bookings(url, offender.world, departure, offender.experience, count, seats=1)
    run(
        url,
        f"UPDATE departures SET seats_taken = {count}, status = 'cancelled', cancelling = 'admin'"
        f" WHERE id = '{departure}'",
    )
    yield


MISBEHAVIOURS = (
    Misbehaviour("hanging-mails", "50,000 mails are pending at a mail server that hangs", _mails_that_hang),
    Misbehaviour("hanging-refunds", "5,000 refunds are pending at a gateway that hangs", _refunds_that_hang),
    Misbehaviour(
        "stuck-checkouts",
        "expired checkouts cannot be cancelled",
        _stuck_checkouts,
        operations=(*USUAL, Operation.EXPIRY),
    ),
    Misbehaviour("purge", "two million old rows are purged", _purge),
    Misbehaviour("cancelled-departure", "a departure with 20,000 bookings is cancelled", _cancelled_departure),
)
