"""Checkouts over HTTP against the fake Stripe of `stripe_ledger`, and its webhooks."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

import webhook_verify
from booking_core.base.context import Actor
from booking_core.bookings import checkouts
from booking_core.db import tables
from booking_core.db.engine import Database
from booking_core.payments import stripe_accounts
from booking_server.adapters.stripe import StripeGateway
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.execution.service import PaymentCalls, Service
from booking_server.worker.jobs.payments import PaymentCheckJob, RefundJob
from support.receivers.stripe_ledger import KEY, Ledger
from support.world.world import World

SECRET = "whsec_of_a_test_endpoint"
PUBLISHABLE_KEY = "pk_test_of_ours"
Event = dict[str, Any]


def configure(world: World, *, api_key: str = KEY) -> None:
    """Give the organization an account at the fake Stripe."""
    world.database.write(
        lambda tx: stripe_accounts.configure(
            tx, actor_of(world), api_key=api_key, webhook_secret=SECRET, publishable_key=PUBLISHABLE_KEY
        )
    )


def actor_of(world: World) -> Actor:
    return Actor(installation=world.installation, organization=world.organization, at=world.clock())


def checkout_body(departure_id: str, count: int = 2, **over: Any) -> dict[str, Any]:
    return {
        "experience_date_id": departure_id,
        "guests": [{"tier_id": "adult", "count": count}],
        "customer": {"name": "Ada Lovelace", "email": "ada@example.com"},
    } | over


@dataclass
class Webhooks:
    """The events that the fake Stripe sends about changes in its ledger."""

    ledger: Ledger
    organization_id: str
    secret: str = SECRET
    numbers: Any = field(default_factory=itertools.count)
    cell: str = ""
    """Of the organization; empty: the first one."""

    def of(self, kind: str, stripe_object: dict[str, Any]) -> Event:
        number = next(self.numbers)
        return {"id": f"evt_{number:06}", "object": "event", "type": kind, "data": {"object": stripe_object}}

    def succeeded(self, intent_id: str) -> Event:
        return self.of("payment_intent.succeeded", dict(self.ledger.intents[intent_id]))

    def failed(self, intent_id: str) -> Event:
        return self.of("payment_intent.payment_failed", dict(self.ledger.intents[intent_id]))

    def refunded(self, intent_id: str) -> Event:
        return self.of("charge.refunded", self.ledger.shown_charge(intent_id))

    def disputed(self, intent_id: str, status: str = "needs_response") -> Event:
        charge = self.ledger.shown_charge(intent_id)
        dispute = {
            "id": f"dp_{intent_id}",
            "object": "dispute",
            "payment_intent": intent_id,
            "amount": charge["amount"],
            "currency": charge["currency"],
            "reason": "fraudulent",
            "status": status,
        }
        is_closed = status in ("won", "lost")
        return self.of(f"charge.dispute.{'closed' if is_closed else 'created'}", dispute)

    @staticmethod
    def signed(event: Event, *, now_s: float, secret: str = SECRET) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of an event."""
        body = json.dumps(event).encode()
        signature = webhook_verify.sign(body, secret, timestamp=int(now_s))
        return body, {"Stripe-Signature": signature, "Content-Type": "application/json"}

    def send(self, client: TestClient, event: Event, *, now_s: float, **over: Any) -> Any:
        """Send an event as Stripe does, signed, and return the response."""
        body, headers = self.signed(event, now_s=now_s, secret=over.pop("secret", self.secret))
        headers |= over.pop("headers", {})
        path = over.pop("path", f"/stripe/webhooks/{self.organization_id}{f'-{self.cell}' if self.cell else ''}")
        return client.post(path, content=over.pop("content", body), headers=headers)


def intent_row(world: World, booking_id: str) -> dict[str, Any]:
    (row,) = [row for row in world.rows(tables.payment_intents) if row["booking_id"] == booking_id]
    return row


def applied(database: Database, world: World, update: checkouts.StripeUpdate) -> checkouts.Applied:
    """Apply an update as the receiver of webhooks does."""
    return database.write(lambda tx: checkouts.apply(tx, actor_of(world), update))


def app_of(client: TestClient) -> Any:
    """Return the application of a client: of the cell whose state the client has, or of the first cell."""
    app: Any = client.app
    if hasattr(app.state, "service"):
        return app
    return next(slot.opened.app for slot in app.slots.values() if slot.opened and slot.opened.app)


def service_of(client: TestClient) -> Service:
    """Return the service of a client, also with several cells."""
    service: Service = app_of(client).state.service
    return service


@contextmanager
def calling(client: TestClient, ledger: Ledger, *, timeout_s: float = 8.0, **options: Any) -> Iterator[None]:
    """Let the service call the fake Stripe while the body runs."""
    service = service_of(client)
    before = service.payment_calls
    service.payment_calls = PaymentCalls(StripeIntents(ledger.base_url, timeout_s=timeout_s), **options)
    try:
        yield
    finally:
        client.portal.call(service.payment_calls.intents.aclose)  # type: ignore[union-attr]
        service.payment_calls = before


def check_payments(world: World, ledger: Ledger) -> None:
    """Run the worker's due look-ups of payments, of all organizations in the database."""

    async def run() -> None:
        job = PaymentCheckJob(world.database, world.installation, StripeIntents(ledger.base_url))
        try:
            await job.run_once()
        finally:
            await job.close()

    asyncio.run(run())


def refund(world: World, ledger: Ledger) -> None:
    """Run the worker's refunds for organizations that have an account at the fake Stripe."""

    async def run() -> None:
        gateway = StripeGateway(KEY, ledger.base_url)
        job = RefundJob(world.database, gateway, serves=stripe_accounts.exists)
        try:
            await job.run_once()
        finally:
            await job.close()

    asyncio.run(run())


def align(ledger: Ledger, world: World) -> None:
    """Set the clock of the ledger to the time of the service."""
    ledger.ahead_s = world.clock() / 1e6 - time.time()
