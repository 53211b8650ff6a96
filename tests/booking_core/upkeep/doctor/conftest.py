"""An organization with rows of every kind and status, without findings of the doctor."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from support.creating import create, created
from support.databases import unbind
from support.hooks import Hooks, queue_rows
from support.operations import Operations
from support.world import DAY, HOUR, NOON, FixedClock, World, make_world

from booking_core import bookings
from booking_core.base import gift_codes, tokens
from booking_core.base.clock import MINUTE
from booking_core.bookings import checkouts
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.models.events import EventType
from booking_core.models.webhooks import AttemptError
from booking_core.payments import stripe_accounts
from booking_core.records import events, outbox, timeline
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.records.timeline import TimelineKind
from booking_core.webhooks import upkeep as webhook_upkeep

PRICE, FACE, PART, REFUND = 89_000, 50_000, 30_000, 20_000
LINES = json.dumps(
    [{"tier_id": "adult", "tier_label": "Adult", "count": 1, "unit_price": {"amount_minor": PRICE, "currency": "NOK"}}]
)


@dataclass
class History:
    """Writes the rows of a storefront, a worker and a gateway."""

    world: World
    experience: str
    departure: str

    def publish(self, kind: EventType, resource_id: str, extra: dict[str, Any] | None = None) -> None:
        shown = json.dumps({"id": resource_id}).encode()
        if kind.startswith("booking."):
            shown = orjson.dumps(self.shown(resource_id))
        event = NewEvent(kind, resource_id, shown, extra or {})
        self.world.database.write(
            lambda tx: events.publish(tx, self.world.organization, [event], at=self.world.clock())
        )

    def shown(self, booking_id: str) -> dict[str, Any]:
        """Return the booking as its events show it."""
        return self.world.database.read(lambda tx: bookings.get(tx, self.world.caller(), booking_id)) | {
            "manage_url": None
        }

    def enqueue(self, booking_id: str, *kinds: OutboxKind) -> None:
        with self.world.database.writing() as tx:
            for kind in kinds:
                outbox.enqueue(tx, self.world.org, kind, booking_id, at=self.world.clock())

    def note(self, booking_id: str, kind: TimelineKind, **data: object) -> None:
        at = self.world.clock()
        customer_id = self.world.row(tables.bookings, booking_id)["customer_id"]
        with self.world.database.writing() as tx:
            timeline.note(tx, self.world.org, kind, at=at, customer_id=customer_id, booking_id=booking_id, **data)

    def take_seats(self, seats: int) -> None:
        taken = self.world.row(tables.departures, self.departure)["seats_taken"]
        self.world.change(tables.departures, self.departure, seats_taken=taken + seats)

    def customer(self) -> str:
        now, email = self.world.clock(), f"{tokens.new_id()}@Example.com"
        customer_id = self.world.insert(
            tables.customers,
            email=email,
            email_key=email.casefold(),
            name="A guest",
            tags="[]",
            email_subscription=False,
            created_at=now,
            updated_at=now,
        )
        self.publish(EventType.CUSTOMER_CREATED, customer_id)
        return customer_id

    def gift_card(self) -> str:
        now, card_id, keys = self.world.clock(), tokens.new_id(), self.world.installation.secret_keys
        self.world.insert(
            tables.gift_cards,
            id=card_id,
            code_hash=tokens.new_id(),
            code_sealed=gift_codes.seal_code(keys, self.world.org, card_id, "GIFT-ABCD-1234"),
            currency="NOK",
            initial_minor=FACE,
            balance_minor=FACE,
            created_at=now,
            updated_at=now,
        )
        self.publish(EventType.GIFT_CARD_ISSUED, card_id)
        return self.world.entered(card_id, "issue", FACE, FACE)

    def checked_out(self, gift_card_minor: int = 0) -> str:
        """Insert a pending booking of one seat, by card, of a new customer, and return its id."""
        world, now, customer_id = self.world, self.world.clock(), self.customer()
        numbers = world.database.write(lambda tx: events.lock_sequences(tx, {world.org: (1, 0)}))
        booking_id = world.insert(
            tables.bookings,
            booking_number=numbers[world.org][0] + 1,
            status="pending",
            source="online",
            departure_id=self.departure,
            experience_id=self.experience,
            customer_id=customer_id,
            guest_name="A guest",
            guest_email=world.row(tables.customers, customer_id)["email"],
            guests=LINES,
            add_ons="[]",
            seats=1,
            currency="NOK",
            subtotal_minor=PRICE,
            gift_card_minor=gift_card_minor,
            total_minor=PRICE - gift_card_minor,
            payment_method="card",
            payment_source="stripe",
            payment_status="pending",
            send_confirmation_email=True,
            notify_staff=True,
            manage_expires_at=world.row(tables.departures, self.departure)["starts_at"] + 150 * MINUTE,
            expires_at=now + DAY,
            created_at=now,
            updated_at=now,
        )
        self.take_seats(1)
        payment = {"amount_minor": PRICE - gift_card_minor, "currency": "NOK", "status": "pending"}
        world.insert(tables.payments, booking_id=booking_id, created_at=now, updated_at=now, **payment)
        self.publish(EventType.BOOKING_CREATED, booking_id)
        self.note(booking_id, TimelineKind.BOOKING_CREATED)
        return booking_id

    def redeemed(self, gift_card: str) -> str:
        """Insert a pending booking that a gift card pays in part, and return its id."""
        booking_id = self.checked_out(PART)
        self.world.entered(gift_card, "redeem", -PART, FACE - PART, booking_id=booking_id)
        self.world.change(tables.gift_cards, gift_card, balance_minor=FACE - PART)
        self.publish(EventType.GIFT_CARD_REDEEMED, gift_card, {"booking_id": booking_id})
        return booking_id

    def _payment(self, booking_id: str) -> str:
        (row,) = [row for row in self.world.rows(tables.payments) if row["booking_id"] == booking_id]
        return str(row["id"])

    def paid(self, booking_id: str) -> None:
        """Set a booking to paid and confirmed, and enqueue its mails."""
        world, now = self.world, self.world.clock()
        world.change(tables.bookings, booking_id, status="confirmed", confirmed_at=now, updated_at=now)
        world.change(tables.bookings, booking_id, payment_status="paid")
        world.change(tables.payments, self._payment(booking_id), status="paid", payment_intent=f"pi_{booking_id}")
        self.publish(EventType.BOOKING_CONFIRMED, booking_id)
        self.enqueue(booking_id, OutboxKind.BOOKING_CONFIRMATION_MAIL, OutboxKind.STAFF_BOOKING_MAIL)
        self.note(booking_id, TimelineKind.PAYMENT_RECEIVED)

    def paid_at_stripe(self, booking_id: str) -> None:
        """Insert the payment intent of a paid booking, and the Stripe account of the organization."""
        world, now, keys = self.world, self.world.clock(), self.world.installation.secret_keys
        world.insert(
            tables.payment_intents,
            booking_id=booking_id,
            intent_id=f"pi_{booking_id}",
            client_secret_sealed=keys.seal(checkouts.SEALED_FOR, b"secret", world.org, booking_id),
            status="succeeded",
            amount_minor=PRICE - PART,
            currency="NOK",
            expires_at=now + DAY,
            created_at=now,
            updated_at=now,
        )
        account = {"api_key": "sk_test_of_doctor", "webhook_secret": "whsec_of_doctor", "publishable_key": None}
        Operations(world).act(lambda tx, actor: stripe_accounts.configure(tx, actor, **account))

    def mailed(self, booking_id: str) -> None:
        """Insert a mail about the booking that was sent."""
        now, key = self.world.clock(), f"booking_rescheduling_mail:{booking_id}:1"
        effect = {"key": key, "kind": "booking_rescheduling_mail", "subject_id": booking_id, "payload": "{}"}
        done = {"status": "done", "due_at": now, "created_at": now, "completed_at": now}
        self.world.insert(tables.effects, **effect, **done)
        mail = {"effect_key": key, "kind": "booking_rescheduling_mail", "booking_id": booking_id, "created_at": now}
        sent = {"recipient": "guest@example.com", "message_id": f"<{key}@example.com>", "message": ""}
        self.world.insert(tables.mails, **mail, **sent, status="sent", sent_at=now, completed_at=now)

    def recorded(self, booking_id: str, amount_minor: int) -> str:
        """Record a payment by staff, and return its id."""
        amount = {"amount_minor": amount_minor, "method": "cash"}
        Operations(self.world).act(lambda tx, actor: bookings.record_payment(tx, actor, booking_id, **amount))
        found = [row for row in self.world.rows(tables.payment_records) if row["amount_minor"] == amount_minor]
        return str(found[0]["id"])

    def cancelled(self, booking_id: str, reason: str, **columns: Any) -> None:
        """Cancel a booking, and release its seat."""
        now = self.world.clock()
        cancelled = {"status": "cancelled", "cancelled_at": now, "cancel_reason": reason, "updated_at": now}
        self.world.change(tables.bookings, booking_id, **cancelled, **columns)
        self.take_seats(-1)
        self.publish(EventType.BOOKING_CANCELLED, booking_id, {"reason": reason})
        self.enqueue(booking_id, OutboxKind.BOOKING_CANCELLATION_MAIL, OutboxKind.STAFF_CANCELLATION_MAIL)
        self.note(booking_id, TimelineKind.BOOKING_CANCELLED, reason=reason, refund="auto")

    def refund(self, booking_id: str, **columns: Any) -> None:
        """Insert a refund of a part of the booking's payment."""
        now = self.world.clock()
        ids = {"booking_id": booking_id, "payment_id": self._payment(booking_id), "created_at": now, "updated_at": now}
        self.world.insert(tables.refunds, **ids, amount_minor=REFUND, currency="NOK", **columns)

    def returned(self, booking_id: str, gift_card: str) -> None:
        """Cancel a booking, restore its gift card, and refund a part of its payment."""
        world = self.world
        self.cancelled(booking_id, "admin", payment_status="partially_refunded")
        world.entered(gift_card, "restore", PART, FACE, booking_id=booking_id)
        world.change(tables.gift_cards, gift_card, balance_minor=FACE)
        payment_id = self._payment(booking_id)
        world.change(tables.payments, payment_id, refunded_minor=REFUND, status="partially_refunded")
        self.refund(booking_id, status="succeeded", provider_refund_id="re_1")
        self.note(booking_id, TimelineKind.REFUND_SETTLED)

    def to_be_returned(self, booking_id: str) -> None:
        """Cancel a booking, and request a refund of a part of its payment."""
        self.cancelled(booking_id, "admin")
        self.refund(booking_id, status="requested", next_attempt_at=self.world.clock())


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
    unbind(url, [table.name for table in tables.metadata.sorted_tables])
    history.world.database = Database(url, clock=history.world.clock)
    yield history
    history.world.database.close()


def make_history(url: str) -> History:
    database = Database(url, clock=(clock := FixedClock()))
    world = make_world(database, clock)
    clock.advance(HOUR)
    experience = world.experience()
    history = History(world, experience, world.departure(experience, starts_at=NOON + 300 * DAY))
    _deliveries(history)
    _api_bookings(history)
    _card_bookings(history)
    hold = {"seats": 2, "expires_at": clock() + HOUR, "ended_at": None, "created_at": clock()}
    world.insert(tables.holds, departure_id=history.departure, **hold)
    for _ in range(20):
        world.key()
    world.key(revoked_at=NOON)
    world.key(expires_at=NOON)
    queue_rows(world)
    world.database.write(lambda tx: webhook_upkeep.fail_given_up(tx, each=100, limit=100))
    return history


def _api_bookings(history: History) -> None:
    world = history.world
    payments_of = ("pay_on_site", "external_paid", "invoice")
    made = [create(world, history.departure, f"healthy-{at}", payment=mode) for at, mode in enumerate(payments_of)]
    created(world.database, made)
    world.clock.advance(HOUR)
    first, _, third = sorted(world.rows(tables.bookings), key=lambda row: row["booking_number"])
    for booking_id, amount in ((first["id"], first["total_minor"]), (third["id"], 1_000), (third["id"], 500)):
        history.recorded(booking_id, amount)
    void = history.recorded(third["id"], 200)
    Operations(world).act(lambda tx, actor: bookings.void_payment(tx, actor, void))
    history.cancelled(first["id"], "api")
    returned = {"amount_minor": first["total_minor"], "note": "Cash"}
    Operations(world).act(lambda tx, actor: bookings.record_refund(tx, actor, first["id"], **returned))


def _card_bookings(history: History) -> None:
    card = history.gift_card()
    history.checked_out()
    kept, returned = history.redeemed(history.gift_card()), history.redeemed(card)
    for booking_id in (kept, returned):
        history.world.clock.advance(HOUR)
        history.paid(booking_id)
    history.mailed(kept)
    history.paid_at_stripe(kept)
    history.world.clock.advance(HOUR)
    history.returned(returned, card)
    history.world.clock.advance(HOUR)
    history.paid(last := history.checked_out())
    history.world.clock.advance(HOUR)
    history.to_be_returned(last)


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
