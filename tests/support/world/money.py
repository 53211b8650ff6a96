"""Card bookings, gift cards and refunds of an organization; each function runs in its own transaction."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from booking_core import bookings, payments
from booking_core.base import tokens
from booking_core.base.context import Actor
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult, RefundTerms, gift_cards
from booking_core.payments.gift_cards import GiftCardIssue, Redeemed
from booking_core.records import events
from support.databases import due
from support.world import rows
from support.world.world import DAY, World

T = TypeVar("T")

LEASE_S = 30
TOTAL = 89_000


@dataclass
class Till:
    """The payments and refunds of an organization."""

    world: World
    departure_id: str = field(init=False)
    customer_id: str = field(init=False)
    starts_at: int = field(init=False)

    def __post_init__(self) -> None:
        world = self.world
        self.starts_at = world.clock() + 10 * DAY
        self.experience_id = world.experience()
        self.departure_id = world.departure(self.experience_id, seats=100_000, starts_at=self.starts_at)
        row = rows.customer(world.org, tokens.new_id(), world.clock())
        del row["organization_id"]
        self.customer_id = world.insert(tables.customers, **row)

    @property
    def actor(self) -> Actor:
        world = self.world
        return Actor(installation=world.installation, organization=world.organization, at=world.clock())

    def write(self, act: Callable[[Tx], T]) -> T:
        """Run a function in its own transaction, and return its result."""
        return self.world.database.write(act)

    # Bookings ----------------------------------------------------------------------------------------------------

    def booking_row(self, booking_id: str, **over: Any) -> dict[str, Any]:
        now, world = self.world.clock(), self.world
        columns = {"customer_id": self.customer_id, "seats": 0, "status": "cancelled", "cancelled_at": now} | over
        return rows.booking(world.org, booking_id, self.departure_id, self.experience_id, now, **columns)

    def booking(self, **over: Any) -> str:
        """Insert a booking, by default cancelled and paid by card."""
        row = self.booking_row(tokens.new_id(), **over)
        del row["organization_id"]
        return self.world.insert(tables.bookings, **row)

    def expect(self, booking_id: str, amount_minor: int = TOTAL) -> None:
        def act(tx: Tx) -> None:
            payments.expect(
                tx,
                self.world.org,
                booking_id=booking_id,
                amount_minor=amount_minor,
                currency="NOK",
                at=self.world.clock(),
            )

        self.write(act)

    def receive(self, booking_id: str, payment_intent: str | None = None) -> None:
        self.write(
            lambda tx: payments.receive(
                tx, self.actor, booking_id=booking_id, payment_intent=payment_intent, customer_id=self.customer_id
            )
        )

    def drop(self, booking_id: str) -> None:
        self.write(lambda tx: payments.drop(tx, self.world.org, booking_id=booking_id, at=self.world.clock()))

    def paid(self, amount_minor: int = TOTAL, *, intent: str | None = "", **over: Any) -> str:
        """Insert a paid booking, and return its id."""
        booking_id = self.booking(subtotal_minor=amount_minor, total_minor=amount_minor, **over)
        self.expect(booking_id, amount_minor)
        self.receive(booking_id, f"pi_{booking_id}" if intent == "" else intent)
        return booking_id

    def request_refund(self, booking_id: str) -> int:
        def act(tx: Tx) -> int:
            payment = payments.lock(tx, self.actor, booking_id)
            if payment is None:
                return 0
            terms = RefundTerms(self.actor.organization, self.starts_at, self.actor.at)
            booking = {"booking_id": booking_id, "customer_id": self.customer_id}
            return payments.request_refund(tx, self.actor, payment, terms, **booking)

        return self.write(act)

    def with_refund(self, amount_minor: int = TOTAL, **over: Any) -> str:
        """Insert a booking with a full refund to send, and return its id."""
        booking_id = self.paid(amount_minor, **over)
        assert self.request_refund(booking_id) == amount_minor
        return booking_id

    # The worker --------------------------------------------------------------------------------------------------

    def claim(self, *, limit: int = 100, lease_s: float = LEASE_S) -> list[ClaimedRefund]:
        """Claim the due refunds of the organization."""
        return due.claim_refunds(self.world, limit=limit, lease_s=lease_s)

    def one(self) -> ClaimedRefund:
        (claimed,) = self.claim()
        return claimed

    def settle(self, *answers: RefundResult, jitter: float = 0.0) -> int:
        return self.world.database.write(lambda tx: bookings.settle_refunds(tx, answers, jitter=lambda: jitter))

    def answer(self, claimed: ClaimedRefund, outcome: RefundOutcome, **over: Any) -> int:
        outcomes_with_id = {RefundOutcome.REFUNDED, RefundOutcome.ACCEPTED}
        provider_refund_id = f"re_{claimed.id}" if outcome in outcomes_with_id else None
        return self.settle(RefundResult(claimed, outcome, **{"provider_refund_id": provider_refund_id} | over))

    # Contents ----------------------------------------------------------------------------------------------------

    def payment(self, booking_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.world.rows(tables.payments) if row["booking_id"] == booking_id]
        return row

    def refund(self, booking_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.world.rows(tables.refunds) if row["booking_id"] == booking_id]
        return row

    def timeline(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the kind and the data of every timeline entry of the customer by time, at one instant in no order."""
        entries = [row for row in self.world.rows(tables.timeline) if row["customer_id"] == self.customer_id]
        entries.sort(key=lambda row: (row["created_at"], row["id"]))
        return [(row["kind"], orjson.loads(row["data"])) for row in entries]

    def staff_mails(self) -> dict[str, dict[str, Any]]:
        """Return the mails to staff in the outbox, by booking."""
        effects = [row for row in self.world.rows(tables.effects) if row["kind"].startswith("staff_refund")]
        return {row["subject_id"]: orjson.loads(row["payload"]) for row in effects}

    def staff_mail_kinds(self, booking_id: str) -> list[str]:
        """Return the kinds of mails to staff about a booking."""
        effects = [row for row in self.world.rows(tables.effects) if row["subject_id"] == booking_id]
        return sorted(row["kind"] for row in effects)

    # Gift cards --------------------------------------------------------------------------------------------------

    def issue(self, amount_minor: int = 50_000, **over: Any) -> tuple[dict[str, Any], str]:
        """Issue a gift card, and return it with its code."""
        card, code = self.write(
            lambda tx: gift_cards.issue(tx, self.actor, GiftCardIssue(amount_minor=amount_minor, **over))
        )
        return orjson.loads(card), code

    def redeem(
        self, code: str, wanted_minor: int = 1_000, *, currency: str = "NOK", booking_id: str | None = None
    ) -> Redeemed:
        """Pay for a new booking, which is inserted after its gift card, and publish the event."""
        booking_id = booking_id or tokens.new_id()

        def act(tx: Tx) -> Redeemed:
            redeemed = gift_cards.redeem(
                tx,
                self.actor,
                code=code,
                booking_id=booking_id,
                currency=currency,
                wanted_minor=wanted_minor,
                customer_id=self.customer_id,
            )
            amount = redeemed.amount_minor
            over = {"status": "confirmed", "cancelled_at": None, "subtotal_minor": wanted_minor}
            row = self.booking_row(booking_id, **over, gift_card_minor=amount, total_minor=wanted_minor - amount)
            tx.insert(tables.bookings, **row)
            events.publish(tx, self.world.organization, [redeemed.event], at=self.world.clock())
            return redeemed

        return self.write(act)

    def restore(self, booking_id: str) -> int:
        def act(tx: Tx) -> int:
            redemption = gift_cards.lock_redemption(tx, self.actor, booking_id)
            if redemption is None:
                return 0
            event = gift_cards.restore(tx, self.actor, redemption, customer_id=self.customer_id)
            events.publish(tx, self.world.organization, [event], at=self.world.clock())
            return redemption.amount_minor

        return self.write(act)

    def deactivate(self, gift_card_id: str) -> dict[str, Any]:
        card: dict[str, Any] = orjson.loads(self.write(lambda tx: gift_cards.deactivate(tx, self.actor, gift_card_id)))
        return card

    def reactivate(self, gift_card_id: str) -> dict[str, Any]:
        card: dict[str, Any] = orjson.loads(self.write(lambda tx: gift_cards.reactivate(tx, self.actor, gift_card_id)))
        return card

    def card(self, gift_card_id: str) -> dict[str, Any]:
        """Return the gift card as the API shows it."""
        return self.world.database.read(lambda tx: gift_cards.get(tx, self.actor, gift_card_id))

    def ledger(self, gift_card_id: str) -> list[tuple[str, str, int]]:
        """Return (kind, booking, amount) of each line after the issue by time; at one instant, amounts taken come
        first."""
        lines = self.world.rows(tables.gift_card_entries)
        entries = [row for row in lines if row["gift_card_id"] == gift_card_id and row["kind"] != "issue"]
        entries.sort(key=lambda row: (row["created_at"], row["amount_minor"]))
        return [(row["kind"], row["booking_id"], row["amount_minor"]) for row in entries]

    def events(self) -> list[dict[str, Any]]:
        """Return the envelope of every event, in order."""
        rows = sorted(self.world.rows(tables.events), key=lambda row: row["sequence"])
        return [orjson.loads(row["body"]) for row in rows]
