"""An organization with one of each resource, and working arguments for each command of `booking`."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from booking_core.base import tokens
from booking_core.base.clock import system_clock
from booking_core.db import tables
from booking_core.models.bookings import PaymentMode, RefundMode
from support.world.operations import Operations
from support.world.world import DAY, World

Booking = Callable[..., Any]
Words = tuple[str, ...]

ENDLESS = {("serve",), ("worker",), ("demo",), ("mcp",), ("sandbox", "serve"), ("webhooks", "listen")}
"""They run until they are stopped; their own tests read their output."""
CATALOGUE = '{"experiences": [{"slug": "sauna", "title": "Sauna", "is_published": true}]}'
HOOK = ("--url", "https://127.0.0.1:8443/hook", "--event", "booking.created")


class Everything:
    """An organization with one of each resource, and the arguments for each command."""

    def __init__(self, shop: World, booking: Booking, folder: Path) -> None:
        self.shop, self.slug = shop, shop.organization.slug
        self.booking = booking
        self.operations = Operations(shop)
        self.departure = shop.departure(shop.experience())
        self.later = shop.departure(shop.experience(), starts_at=shop.clock() + 3 * DAY)
        self.catalogue, self.secret = folder / "catalogue.json", folder / "secret"
        self.catalogue.write_text(CATALOGUE)
        self.secret.write_text("whsec_" + "QUJD" * 11)
        self.body = folder / "body.json"
        self.body.write_text('{"id": "1", "type": "ping"}')
        self.folder = folder

    def create(self, *argv: str) -> str:
        """Return the id of a new resource."""
        result = self.booking(*argv, "-o", "json")
        assert result.code == 0, result.err
        return str(result.json["id"])

    def fresh(self) -> str:
        """Return a name that nothing has, also in a database that several tests share."""
        return f"fresh-{tokens.new_id()[-12:]}"

    def key(self) -> str:
        return self.create("keys", "create", "--org", self.slug, "--name", self.fresh())

    def card(self) -> str:
        return self.create("gift-cards", "issue", "--org", self.slug, "--amount", "500")

    def customer(self) -> str:
        return self.create("customers", "create", "--name", "Ada", "--email", f"{self.fresh()}@example.com")

    def pending(self) -> str:
        return str(self.operations.check_out(self.departure)["id"])

    def hook(self) -> str:
        return self.create("webhooks", "create", *HOOK)

    def restorable(self) -> Path:
        """Return a backup, and set the environment to the SQLite database that it was made from, which is empty."""
        os.environ["BOOKING_DATABASE_URL"] = f"sqlite:///{self.folder / self.fresh()}.db"  # the fixture resets it
        file = self.folder / f"{self.fresh()}.backup"
        assert self.booking("db", "upgrade").code == self.booking("backup", str(file)).code == 0
        return file

    def delivery(self, status: str = "dead") -> Words:
        """Return an endpoint and a failed delivery of it."""
        hook = self.hook()
        delivery_id = self.booking("webhooks", "test", hook, "-o", "json").json["id"]
        self.shop.change(tables.deliveries, delivery_id, status=status)
        return hook, delivery_id

    def event(self) -> str:
        self.customer()
        return str(self.booking("events", "list", "-n", "1", "--fields", "id").out.strip())

    def leaving(self) -> str:
        """Return a departure with a booking."""
        departure = self.shop.departure(self.shop.experience())
        self.operations.book(departure)
        return departure

    def hold(self) -> str:
        return self.operations.hold(self.departure, 1)

    def mail(self) -> str:
        """Return the outbox key of a mail that could not be written."""
        kind, subject_id, now = "staff_key_expiring_mail", tokens.new_id(), system_clock()
        row = {"key": f"{kind}:{subject_id}", "kind": kind, "subject_id": subject_id, "due_at": now, "created_at": now}
        payload = json.dumps({"name": "x", "prefix": "svc", "expires_at": now})
        given_up = {"status": "failed", "last_error": "ValueError", "completed_at": now}
        self.shop.insert(tables.effects, **row, **given_up, payload=payload)
        return row["key"]

    def cancelled(self) -> str:
        """Return a cancelled booking that was paid by card, without a refund."""
        booking_id = self.pending()
        self.operations.pay(booking_id)
        self.operations.cancel(booking_id, refund=RefundMode.NONE)
        return booking_id

    def refund(self) -> str:
        """Return a refund that waits for a person."""
        booking_id = self.pending()
        self.operations.pay(booking_id)
        self.operations.cancel(booking_id)
        (refund,) = [row for row in self.shop.rows(tables.refunds) if row["booking_id"] == booking_id]
        self.shop.change(tables.refunds, refund["id"], status="needs_review", last_error="no_gateway")
        return str(refund["id"])

    def stripe(self) -> Words:
        """Return the organization, which has an account at Stripe."""
        assert self.booking("stripe", "set", *self.stripe_keys(), "-o", "json").code == 0
        return ("--org", self.slug)

    def stripe_keys(self) -> Words:
        """Return the options of an account at Stripe."""
        api_key, secret = self.folder / "stripe.key", self.folder / "whsec.key"
        api_key.write_text("sk_test_of_a_command\n")
        secret.write_text("whsec_of_a_command\n")
        return ("--org", self.slug, "--api-key-file", str(api_key), "--webhook-secret-file", str(secret))

    def payment_to_review(self) -> str:
        """Return a booking whose payment at Stripe waits for a person."""
        booking_id, now = self.pending(), system_clock()
        state = {"status": "needs_review", "last_error": "amount_differs", "intent_id": f"pi_{booking_id}"}
        times = {"created_at": now, "updated_at": now}
        money = {"amount_minor": 1, "currency": "NOK"}
        self.shop.insert(tables.payment_intents, booking_id=booking_id, **state, **money, **times)
        return booking_id

    def on_site(self) -> str:
        return str(self.operations.book(self.later, payment=PaymentMode.PAY_ON_SITE)["id"])

    def record(self) -> str:
        """Return a payment that staff recorded."""
        booking_id = self.on_site()
        assert self.booking("payments", "record", booking_id, "--amount", "1.00", "-o", "json").code == 0
        (record,) = [row for row in self.shop.rows(tables.payment_records) if row["booking_id"] == booking_id]
        return str(record["id"])


PERSON = ("--name", "Ada", "--email", "ada@example.com")

HOW: dict[Words, Callable[[Everything], Words]] = {
    ("login",): lambda it: ("--api-key-stdin", "--secret-file", str(it.folder / it.fresh())),
    ("config", "get"): lambda it: ("profile",),
    ("config", "set"): lambda it: ("base_url=http://127.0.0.1:1", "--profile", "default"),
    ("experiences", "get"): lambda it: (it.shop.experience(),),
    ("bookings", "get"): lambda it: (it.pending(),),
    ("bookings", "create"): lambda it: (
        *("--departure", it.departure, "--guest", "adult=1", "--payment", "invoice"),
        *PERSON,
    ),
    ("checkouts", "create"): lambda it: (
        *("--departure", it.departure, "--guest", "adult=1", "--gift-card", it.operations.issue(500_000)[1]),
        *PERSON,
    ),
    ("checkouts", "get"): lambda it: (it.pending(),),
    ("bookings", "quote"): lambda it: ("--departure", it.departure, "--guest", "adult=1"),
    ("bookings", "cancel"): lambda it: (it.pending(), "--yes"),
    ("bookings", "check-in"): lambda it: (it.on_site(),),
    ("bookings", "set-guest"): lambda it: (it.on_site(), "--name", "Grace"),
    ("bookings", "no-show"): lambda it: (it.on_site(),),
    ("bookings", "change-party"): lambda it: (it.on_site(), "--guest", "adult=1"),
    ("bookings", "confirm"): lambda it: (it.pending(),),
    ("bookings", "reschedule"): lambda it: (it.pending(), "--departure", it.later),
    ("holds", "create"): lambda it: ("--departure", it.departure, "--seats", "1"),
    ("holds", "get"): lambda it: (it.hold(),),
    ("holds", "extend"): lambda it: (it.hold(),),
    ("holds", "delete"): lambda it: (it.hold(),),
    ("customers", "get"): lambda it: (it.customer(),),
    ("customers", "export"): lambda it: (it.customer(),),
    ("customers", "anonymize"): lambda it: (it.customer(), "--yes"),
    ("audit", "list"): lambda it: ("--org", it.slug),
    ("customers", "create"): lambda it: PERSON,
    ("customers", "update"): lambda it: (it.customer(), "--name", "Grace"),
    ("gift-cards", "get"): lambda it: (it.card(),),
    ("gift-cards", "transactions"): lambda it: (it.card(),),
    ("gift-cards", "issue"): lambda it: ("--org", it.slug, "--amount", "500"),
    ("gift-cards", "deactivate"): lambda it: (it.card(),),
    ("gift-cards", "reactivate"): lambda it: (it.card(),),
    ("events", "get"): lambda it: (it.event(),),
    ("webhooks", "create"): lambda it: HOOK,
    ("webhooks", "show"): lambda it: (it.hook(),),
    ("webhooks", "update"): lambda it: (it.hook(), "--description", "The calendar"),
    ("webhooks", "delete"): lambda it: (it.hook(), "--yes"),
    ("webhooks", "enable"): lambda it: (it.hook(),),
    ("webhooks", "rotate-secret"): lambda it: (it.hook(),),
    ("webhooks", "test"): lambda it: (it.hook(),),
    ("webhooks", "recover"): lambda it: (it.hook(), "--since", "2h"),
    ("webhooks", "trigger"): lambda it: ("booking.created", "--secret-file", str(it.secret)),
    ("webhooks", "sign"): lambda it: (str(it.body), "--secret-file", str(it.secret)),
    ("webhooks", "verify"): lambda it: ("--secret-file", str(it.secret), "--delivery", str(_signed(it))),
    ("webhooks", "deliveries", "list"): lambda it: it.delivery()[:1],
    ("webhooks", "deliveries", "show"): lambda it: it.delivery(),
    ("webhooks", "deliveries", "retry"): lambda it: it.delivery(),
    ("webhooks", "redeliver"): lambda it: (it.hook(), it.event()),
    ("api",): lambda it: ("GET", "me"),
    ("orgs", "create"): lambda it: ("--slug", it.fresh(), "--name", "x", "--timezone", "UTC", "--currency", "EUR"),
    ("orgs", "show"): lambda it: (it.slug,),
    ("orgs", "notify-email"): lambda it: (it.slug,),
    ("orgs", "set"): lambda it: (it.slug, "pending_minutes=20"),
    ("keys", "create"): lambda it: ("--org", it.slug, "--name", "x"),
    ("keys", "list"): lambda it: ("--org", it.slug),
    ("keys", "show"): lambda it: (it.key(),),
    ("keys", "revoke"): lambda it: (it.key(), "--yes"),
    ("keys", "update"): lambda it: (it.key(), "--name", "Shop"),
    ("keys", "rotate"): lambda it: (it.key(),),
    ("keys", "expire"): lambda it: (it.key(), "--at", "2999-01-01"),
    ("catalog", "import"): lambda it: ("--org", it.slug, str(it.catalogue)),
    ("catalog", "export"): lambda it: ("--org", it.slug),
    ("catalog", "validate"): lambda it: (str(it.catalogue),),
    ("departures", "list"): lambda it: ("--org", it.slug, "--date", "tomorrow"),
    ("departures", "get"): lambda it: (it.leaving(),),
    ("departures", "show"): lambda it: (it.leaving(),),
    ("departures", "manifest"): lambda it: (it.leaving(),),
    ("departures", "close"): lambda it: (it.leaving(),),
    ("departures", "reopen"): lambda it: (it.leaving(),),
    ("departures", "seats"): lambda it: (it.leaving(), "16"),
    ("departures", "cancel"): lambda it: (it.leaving(), "--yes"),
    ("report",): lambda it: ("--org", it.slug),
    ("storefront", "hold"): lambda it: ("--org", it.slug, "--departure", it.departure, "--seats", "1"),
    ("storefront", "release"): lambda it: (it.hold(),),
    ("storefront", "checkout"): lambda it: (
        *("--org", it.slug, "--departure", it.departure, "--guest", "adult=1"),
        *PERSON,
    ),
    ("storefront", "pay"): lambda it: (it.pending(),),
    ("stripe", "set"): lambda it: it.stripe_keys(),
    ("stripe", "show"): lambda it: it.stripe(),
    ("stripe", "remove"): lambda it: (*it.stripe(), "--yes"),
    ("stripe", "payments"): lambda it: ("--org", it.slug),
    ("stripe", "resolve"): lambda it: (it.payment_to_review(), "--note", "Refunded at Stripe"),
    ("payments", "record"): lambda it: (it.on_site(), "--amount", "890.00", "--method", "cash"),
    ("payments", "list"): lambda it: (it.on_site(),),
    ("payments", "void"): lambda it: (it.record(),),
    ("payments", "due"): lambda it: ("--org", it.slug),
    ("refunds", "show"): lambda it: (it.refund(),),
    ("refunds", "retry"): lambda it: (it.refund(),),
    ("refunds", "settle"): lambda it: (it.refund(), "--note", "Cash"),
    ("refunds", "record"): lambda it: (it.cancelled(), "--amount", "1.00", "--note", "Cash"),
    ("mails", "show"): lambda it: (it.mail(),),
    ("mails", "retry"): lambda it: (it.mail(),),
    ("backup",): lambda it: (str(it.folder / it.fresh()),),
    ("restore",): lambda it: (str(it.restorable()),),
    ("doctor",): lambda it: ("--org", it.slug),
    ("completion",): lambda it: ("bash",),
    ("help",): lambda it: ("webhooks",),
}
"""The expected value after each command; a command that is not here has none."""


def _signed(it: Everything) -> Path:
    file = it.folder / "delivery.json"
    signed = it.booking("webhooks", "sign", str(it.body), "--secret-file", str(it.secret), "-o", "json")
    file.write_text(signed.out)
    return file
