"""An organization with rows of every kind and status, without findings of the doctor."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support.databases import due
from support.databases.databases import unbind
from support.world.creating import create, created
from support.world.hooks import Hooks, queue_rows
from support.world.operations import Operations
from support.world.world import DAY, HOUR, NOON, FixedClock, World, make_world

from booking_core import bookings
from booking_core.base import tokens
from booking_core.bookings import checkouts
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.bookings import CancelReason, RefundMode
from booking_core.models.events import EventType
from booking_core.models.webhooks import AttemptError
from booking_core.payments import RefundOutcome, RefundResult, stripe_accounts
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.webhooks import upkeep as webhook_upkeep

FACE = 50_000
"""The amount of each gift card."""


@dataclass
class History:
    """The changes by staff, a storefront, a worker and a gateway for an organization."""

    world: World
    departure: str

    @property
    def ops(self) -> Operations:
        return Operations(self.world)

    def publish(self, kind: EventType, resource_id: str) -> None:
        event = NewEvent(kind, resource_id, json.dumps({"id": resource_id}).encode())
        self.world.database.write(
            lambda tx: events.publish(tx, self.world.organization, [event], at=self.world.clock())
        )

    def customer(self) -> str:
        """Insert a customer without bookings."""
        email = f"{tokens.new_id()}@Example.com"
        about = {"email": email, "email_key": email.casefold(), "name": "A guest", "tags": "[]"}
        times = dict.fromkeys(("created_at", "updated_at"), self.world.clock())
        customer_id = self.world.insert(tables.customers, **about, **times, email_subscription=False)
        self.publish(EventType.CUSTOMER_CREATED, customer_id)
        return customer_id

    def checked_out(self, **over: object) -> str:
        """Return the id of a booking of a new customer that waits for its card."""
        return str(self.ops.check_out(self.departure, email=f"{tokens.new_id()}@Example.com", **over)["id"])

    def paid(self, **over: object) -> str:
        """Return the id of a booking that was paid by card an hour after its checkout."""
        booking_id = self.checked_out(**over)
        self.world.clock.advance(HOUR)
        self.ops.pay(booking_id)
        return booking_id

    def recorded(self, booking_id: str, amount_minor: int) -> str:
        """Record a payment by staff, and return its id."""
        amount = {"amount_minor": amount_minor, "method": "cash"}
        self.ops.act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, **amount))
        return next(row["id"] for row in self.world.rows(tables.payment_records) if row["amount_minor"] == amount_minor)


@pytest.fixture
def history(fresh_database_url: str) -> Iterator[History]:
    """A history with bookings and deliveries of every status, payments and refunds, all consistent."""
    history = make_history(fresh_database_url)
    yield history
    history.world.database.close()


@pytest.fixture(scope="module")
def consistent_world(backend: str, new_database_url: Callable[[str], str]) -> Iterator[World]:
    """The organization of the same history, for all tests of a module that only read it."""
    world = make_history(new_database_url(backend)).world
    yield world
    world.database.close()


@pytest.fixture(scope="module")
def unconstrained(backend: str, new_database_url: Callable[[str], str]) -> Iterator[History]:
    """The same history in tables without constraints: tests can corrupt rows. A test rolls its changes back."""
    history = make_history(url := new_database_url(backend))
    history.world.database.close()
    unbind(url)
    history.world.database = Database(url, clock=history.world.clock)
    yield history
    history.world.database.close()


def make_history(url: str) -> History:
    database = Database(url, clock=(clock := FixedClock()))
    # Always too late for a full refund: then a part of a payment is returned.
    world = make_world(database, clock, refund_full_until_hours=8_784, refund_late_percent=50)
    clock.advance(HOUR)
    history = History(world, world.departure(world.experience(), starts_at=NOON + 300 * DAY))
    _deliveries(history)
    _api_bookings(history)
    _card_bookings(history)
    history.ops.hold(history.departure, 2, for_s=3_600)
    for _ in range(20):
        world.key()
    world.key(revoked_at=NOON)
    world.key(expires_at=NOON)
    queue_rows(world)
    database.write(lambda tx: webhook_upkeep.fail_given_up(tx, per_endpoint=100, limit=100))
    return history


def _api_bookings(history: History) -> None:
    world = history.world
    payments_of = ("pay_on_site", "external_paid", "invoice")
    creates = [create(world, history.departure, f"healthy-{at}", payment=mode) for at, mode in enumerate(payments_of)]
    created(world.database, creates)
    world.clock.advance(HOUR)
    first, _, third = sorted(world.rows(tables.bookings), key=lambda row: row["booking_number"])
    for booking_id, amount in ((first["id"], first["total_minor"]), (third["id"], 1_000), (third["id"], 500)):
        history.recorded(booking_id, amount)
    void = history.recorded(third["id"], 200)
    history.ops.act(lambda tx, actor: bookings.void_payment(tx, actor, void))
    history.ops.cancel(first["id"], CancelReason.API, refund=RefundMode.NONE)
    returned = {"amount_minor": first["total_minor"], "note": "Cash"}
    history.ops.act(lambda tx, actor: bookings.record_refund(tx, actor, first["id"], **returned))


def _card_bookings(history: History) -> None:
    history.checked_out()
    paid, returned = (history.paid(gift_card_code=history.ops.issue(FACE)[1]) for _ in range(2))
    _mail(history.world, paid)
    _pay_at_stripe(history, paid)
    history.world.clock.advance(HOUR)
    history.ops.cancel(returned)
    (claimed,) = due.claim_refunds(history.world)
    result = RefundResult(claimed, RefundOutcome.REFUNDED, "re_1")
    history.world.database.write(lambda tx: bookings.settle_refunds(tx, [result]))
    history.world.clock.advance(HOUR)
    history.ops.cancel(history.paid())


def _pay_at_stripe(history: History, booking_id: str) -> None:
    """Insert the payment intent of a paid booking, and the Stripe account of the organization."""
    world, now, keys = history.world, history.world.clock(), history.world.installation.secret_keys
    world.insert(
        tables.payment_intents,
        booking_id=booking_id,
        intent_id=f"pi_{booking_id}",
        client_secret_sealed=keys.seal(checkouts.SEALED_FOR, b"secret", world.org, booking_id),
        status="succeeded",
        amount_minor=history.ops.booking(booking_id)["total_minor"],
        currency="NOK",
        expires_at=now + DAY,
        created_at=now,
        updated_at=now,
    )
    account = {"api_key": "sk_test_of_doctor", "webhook_secret": "whsec_of_doctor", "publishable_key": None}
    history.ops.act(lambda tx, actor: stripe_accounts.configure(tx, actor, **account))


def _mail(world: World, booking_id: str) -> None:
    """Insert a mail about the booking that was sent."""
    now, kind = world.clock(), "booking_rescheduling_mail"
    key = f"{kind}:{booking_id}:1"
    effect = {"key": key, "kind": kind, "subject_id": booking_id, "payload": "{}", "status": "done", "due_at": now}
    world.insert(tables.effects, **effect, created_at=now, completed_at=now)
    mail = {"effect_key": key, "kind": kind, "booking_id": booking_id, "created_at": now, "status": "sent"}
    sent = {"recipient": "guest@example.com", "message_id": f"<{key}@example.com>", "message": ""}
    world.insert(tables.mails, **mail, **sent, sent_at=now, completed_at=now)


def _deliveries(history: History) -> None:
    """Make deliveries: one succeeds at its second attempt, one is dead, one fails with its endpoint, and later ones."""
    hooks, clock = Hooks(history.world), history.world.clock
    hooks.endpoint(EventType.CUSTOMER_CREATED, EventType.BOOKING_CREATED, EventType.BOOKING_CANCELLED)
    clock.advance(HOUR)
    one = history.customer()
    history.customer()
    dead, retried = hooks.claim()
    hooks.fail(dead, retried, error=AttemptError.TIMEOUT)
    for _ in range(5):
        clock.advance(9 * HOUR)
        for claimed in hooks.claim():
            if claimed.delivery_id == dead.delivery_id:
                hooks.fail(claimed)
            else:
                hooks.succeed(claimed)
    off = hooks.endpoint(EventType.CUSTOMER_UPDATED)
    clock.advance(HOUR)
    for _ in range(2):
        history.publish(EventType.CUSTOMER_UPDATED, one)
        for _ in range(2):
            hooks.fail(*hooks.claim())
            clock.advance(9 * HOUR)
    clock.advance(80 * HOUR)
    hooks.fail(*hooks.claim(per_endpoint=1))
    assert hooks.row(off)["status"] == "auto_disabled"
    clock.advance(HOUR)
