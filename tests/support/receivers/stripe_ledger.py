"""A fake Stripe: a real HTTP server with a ledger, which fails as often as a test tells it to.

It keeps the promises of the gateway. A charge never refunds more than it took. The response to an idempotency key is
stored before it is sent, and deleted after a day. Two simultaneous requests with one key are a conflict. Tests assert
the state of this ledger, not the state that the service assumes.
"""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.adapters.stripe import StripeGateway
from booking_server.adapters.webhook_client import WebhookSender
from booking_server.worker.jobs.payments import RefundJob
from booking_server.worker.process import Worker as RealWorker
from booking_server.worker.process import running
from support.receivers.receivers import Worker

KEY = "sk_test_of_ours"
OTHER_KEY = "sk_test_of_neighbours"
KEY_LIFETIME_S = 24 * 3600
MINIMUM = 50
"""The smallest amount that can be charged."""
_GIVE_UP_S = 20
Reply = tuple[int, dict[str, Any]]


class Fault(StrEnum):
    """The faults of a request."""

    TIMEOUT_AFTER = "timeout_after"
    """The request is executed, and never answered."""
    DROPPED_BEFORE = "dropped_before"
    DROPPED_AFTER = "dropped_after"
    ERROR_BEFORE = "error_before"
    """500, and the request was not executed."""
    ERROR_AFTER = "error_after"
    """500, and the request was executed."""
    ERROR_STORED = "error_stored"
    """500 after the execution, and again for every request with the same key."""
    CONFLICT = "conflict"
    RATE_LIMITED = "rate_limited"
    GARBAGE = "garbage"
    """200, and a body that is not JSON."""


_SILENT = {Fault.TIMEOUT_AFTER, Fault.DROPPED_BEFORE, Fault.DROPPED_AFTER}
_BEFORE = {Fault.DROPPED_BEFORE, Fault.ERROR_BEFORE, Fault.CONFLICT, Fault.RATE_LIMITED}
USUAL = tuple(fault for fault in Fault if fault is not Fault.ERROR_STORED)
"""The faults that end without intervention."""


@dataclass
class Charge:
    """A card payment and its refunds, the newest first."""

    amount: int
    refunds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def refunded(self) -> int:
        return sum(refund["amount"] for refund in self.refunds if refund["status"] in ("succeeded", "pending"))


@dataclass
class Ledger:
    """The account. Every method is safe from any thread."""

    ahead_s: float = 0.0
    """The seconds that its clock is ahead of this machine's. Idempotency keys expire by its clock."""
    rate: float = 0.0
    """The share of requests that fail, from 0 to 1."""
    kinds: Sequence[Fault] = USUAL
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    charges: dict[str, Charge] = field(default_factory=dict)
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The PaymentIntents, by id, as Stripe shows them."""
    refusals: dict[str, str] = field(default_factory=dict)
    """The error code for every refund of a payment intent, by its id."""
    born: str = "succeeded"
    """The status of a new refund."""
    next_faults: list[Fault | None] = field(default_factory=list)
    """The faults of the next requests, before random ones."""
    hanging: set[str] = field(default_factory=set)
    """Requests with these values of the Authorization header are never answered."""
    in_between: tuple[int, bytes] | None = None
    """The response of a proxy in front of it to every request: status and body."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """(operation, idempotency key or look-up) of each request, in order."""
    met: Counter[Fault] = field(default_factory=Counter)
    base_url: str = ""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, dict[str, str], Reply]] = {}
        self._under_way: set[str] = set()
        self._number = 0

    # Actions of a test -----------------------------------------------------------------------------------------

    def charge(self, payment_intent: str, amount: int) -> Charge:
        """Add a card payment."""
        charge = self.charges[payment_intent] = Charge(amount)
        return charge

    def refund_at_the_dashboard(self, payment_intent: str, amount: int) -> dict[str, Any]:
        """Refund by hand at the gateway."""
        with self._lock:
            return self._book(payment_intent, amount, {}, "succeeded")

    def dispute(self, payment_intent: str, status: str = "needs_response") -> dict[str, Any]:
        """Open or close the dispute of a payment at the cardholder's bank."""
        with self._lock:
            charge = self.shown_charge(payment_intent)
            money = {name: charge[name] for name in ("payment_intent", "amount", "currency")}
            return money | {"id": f"dp_{payment_intent}", "object": "dispute", "reason": "fraudulent", "status": status}

    def pay_out(self, status: str = "succeeded") -> None:
        """Set the status of every pending refund."""
        with self._lock:
            for refund in self._all():
                if refund["status"] == "pending":
                    refund["status"] = status

    def refunds(self, payment_intent: str) -> list[dict[str, Any]]:
        return list(self.charges[payment_intent].refunds)

    def keys(self) -> list[str]:
        """Return the idempotency keys of the requests, in order."""
        return [key for what, key in self.requests if what == "create"]

    @property
    def now_s(self) -> float:
        return time.time() + self.ahead_s

    # Actions of the server -------------------------------------------------------------------------------------

    def fault(self) -> Fault | None:
        with self._lock:
            if self.next_faults:
                met = self.next_faults.pop(0)
            else:
                met = self.chance.choice(self.kinds) if self.chance.random() < self.rate else None
            if met:
                self.met[met] += 1
            return met

    def create(
        self, key: str, fields: dict[str, str], *, store_error: bool, make: Callable[[dict[str, str]], Reply]
    ) -> Reply:
        """Make a refund or an intent, or return the response stored for the key."""
        with self._lock:
            self.requests.append(("create", key))
            if key in self._under_way:
                return conflict()
            answer = self._answers.get(key)
            if answer and self.now_s - answer[0] < KEY_LIFETIME_S:
                return answer[2] if answer[1] == fields else _error(400, "idempotency_error", None, "Another request.")
            self._under_way.add(key)
        try:
            reply = make(fields)
            if reply[0] < 500 and reply[0] != 429:
                stored = _error(500, "api_error", None) if store_error else reply
                self._answers[key] = (self.now_s, fields, stored)
        finally:
            self._under_way.discard(key)
        return reply

    def refund(self, fields: dict[str, str]) -> Reply:
        intent, amount = fields["payment_intent"], int(fields["amount"])
        with self._lock:
            charge = self.charges.get(intent)
            if charge is None:
                return _refusal("resource_missing", 404)
            if intent in self.refusals:
                return _refusal(self.refusals[intent])
            if charge.refunded >= charge.amount:
                return _refusal("charge_already_refunded")
            if charge.refunded + amount > charge.amount:
                return _refusal("amount_too_large")
            metadata = {name[9:-1]: value for name, value in fields.items() if name.startswith("metadata[")}
            return 200, self._book(intent, amount, metadata, self.born)

    def _book(self, intent: str, amount: int, metadata: dict[str, str], status: str) -> dict[str, Any]:
        self._number += 1
        refund = {
            "id": f"re_{self._number:06}",
            "object": "refund",
            "payment_intent": intent,
            "amount": amount,
            "currency": "nok",
            "metadata": metadata,
            "status": status,
            "created": int(self.now_s),
        }
        self.charges[intent].refunds.insert(0, refund)
        return dict(refund)

    # PaymentIntents --------------------------------------------------------------------------------------------

    def make_intent(self, fields: dict[str, str]) -> Reply:
        with self._lock:
            if int(fields["amount"]) < MINIMUM:
                return _refusal("amount_too_small")
            self._number += 1
            metadata = {name[9:-1]: value for name, value in fields.items() if name.startswith("metadata[")}
            intent_id = f"pi_{self._number:06}"
            self.intents[intent_id] = {
                "id": intent_id,
                "object": "payment_intent",
                "amount": int(fields["amount"]),
                "amount_received": 0,
                "currency": fields["currency"],
                "status": "requires_payment_method",
                "client_secret": f"{intent_id}_secret_{self._number}",
                "metadata": metadata,
                "last_payment_error": None,
                "latest_charge": None,
            }
            return 200, dict(self.intents[intent_id])

    def look_up_intent(self, intent_id: str) -> Reply:
        with self._lock:
            self.requests.append(("intent", intent_id))
            if intent_id not in self.intents:
                return _refusal("resource_missing", 404)
            return 200, self.shown_intent(intent_id)

    def shown_intent(self, intent_id: str) -> dict[str, Any]:
        """Return an intent with its charge."""
        intent = self.intents[intent_id]
        return intent | {"latest_charge": self.shown_charge(intent_id) if intent_id in self.charges else None}

    def shown_charge(self, intent_id: str) -> dict[str, Any]:
        charge = self.charges[intent_id]
        return {
            "id": f"ch_{intent_id}",
            "object": "charge",
            "payment_intent": intent_id,
            "amount": charge.amount,
            "currency": self.intents[intent_id]["currency"] if intent_id in self.intents else "nok",
            "amount_refunded": charge.refunded,
            "refunded": charge.refunded >= charge.amount,
        }

    def cancel_intent(self, intent_id: str) -> Reply:
        with self._lock:
            self.requests.append(("cancel", intent_id))
            intent = self.intents.get(intent_id)
            if intent is None:
                return _refusal("resource_missing", 404)
            if intent["status"] in ("succeeded", "canceled"):
                return _refusal("payment_intent_unexpected_state")
            intent["status"] = "canceled"
            return 200, dict(intent)

    def pay(self, intent_id: str, amount: int | None = None) -> bool:
        """Charge the card of a guest, unless the intent was canceled; return whether it was charged."""
        with self._lock:
            intent = self.intents[intent_id]
            if intent["status"] == "canceled":
                return False
            received = intent["amount"] if amount is None else amount
            intent |= {"status": "succeeded", "amount_received": received, "last_payment_error": None}
            self.charges.setdefault(intent_id, Charge(received))
            return True

    def decline(self, intent_id: str, code: str = "insufficient_funds") -> None:
        """Decline the card of a guest."""
        with self._lock:
            self.intents[intent_id]["last_payment_error"] = {"code": "card_declined", "decline_code": code}

    def read(self, refund_id: str) -> Reply:
        with self._lock:
            self.requests.append(("read", refund_id))
            refunds = [refund for refund in self._all() if refund["id"] == refund_id]
            return (200, dict(refunds[0])) if refunds else _refusal("resource_missing", 404)

    def find(self, query: dict[str, str]) -> Reply:
        """Return refunds of a payment, the newest first."""
        with self._lock:
            intent = query["payment_intent"]
            self.requests.append(("find", intent))
            return _page("/v1/refunds", self.charges[intent].refunds if intent in self.charges else [], query)

    def _all(self) -> Iterator[dict[str, Any]]:
        return (refund for charge in self.charges.values() for refund in charge.refunds)


def _page(url: str, entries: Sequence[dict[str, Any]], query: dict[str, str]) -> Reply:
    """Return a page of a list, as Stripe shows it."""
    copies = [dict(entry) for entry in entries]
    after, limit = query.get("starting_after"), int(query["limit"])
    start = 1 + [entry["id"] for entry in copies].index(after) if after else 0
    page, more = copies[start : start + limit], len(copies) > start + limit
    return 200, {"object": "list", "url": url, "data": page, "has_more": more}


def _error(status: int, kind: str, code: str | None, message: str = "As ordered.") -> Reply:
    codes = {"code": code} if code else {}
    return status, {"error": {"type": kind, "message": message, **codes}}


def _refusal(code: str, status: int = 400) -> Reply:
    return _error(status, "invalid_request_error", code)


def conflict() -> Reply:
    return _error(409, "idempotency_error", "idempotency_key_in_use")


_REPLIES: dict[Fault, Callable[[], Reply]] = {
    Fault.CONFLICT: conflict,
    Fault.RATE_LIMITED: lambda: _error(429, "invalid_request_error", "rate_limit"),
    Fault.ERROR_BEFORE: lambda: _error(500, "api_error", None),
    Fault.ERROR_AFTER: lambda: _error(500, "api_error", None),
    Fault.ERROR_STORED: lambda: _error(500, "api_error", None),
}


class _Handler(BaseHTTPRequestHandler):
    """A keep-alive connection."""

    protocol_version = "HTTP/1.1"
    timeout = _GIVE_UP_S
    ledger: Ledger

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) == int(self.headers["Content-Length"]):
            self._serve(body.decode())
        else:
            self.close_connection = True  # the sender was killed in the middle of a request

    def do_GET(self) -> None:
        self._serve("")

    def _serve(self, body: str) -> None:
        if self.headers["Authorization"] in self.ledger.hanging:
            self._wait_until_the_client_has_gone()
            self.close_connection = True
            return
        if self.ledger.in_between:
            self._send(*self.ledger.in_between)
            return
        fault = self.ledger.fault()
        reply = None if fault in _BEFORE else self._reply(body, store_error=fault is Fault.ERROR_STORED)
        if fault is Fault.TIMEOUT_AFTER:
            self._wait_until_the_client_has_gone()
        if fault in _SILENT:
            self.close_connection = True
            return
        if fault is Fault.GARBAGE:
            self._send(200, b"<html>")
            return
        status, document = _REPLIES[fault]() if fault in _REPLIES else reply or (500, {})
        self._send(status, json.dumps(document).encode())

    def _reply(self, body: str, *, store_error: bool) -> Reply:
        if self.headers["Authorization"] not in (f"Bearer {KEY}", f"Bearer {OTHER_KEY}"):
            return _error(401, "invalid_request_error", None)
        address = urlsplit(self.path)
        if self.command == "POST" and address.path == "/v1/refunds":
            fields = {name: values[0] for name, values in parse_qs(body).items()}
            key = self.headers["Idempotency-Key"]
            return self.ledger.create(key, fields, store_error=store_error, make=self.ledger.refund)
        if address.path.startswith("/v1/payment_intents"):
            return self._intent(address.path, body, store_error=store_error)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/v1/refunds":
            return self.ledger.find(query)
        return self.ledger.read(address.path.rpartition("/")[2])

    def _intent(self, path: str, body: str, *, store_error: bool) -> Reply:
        _, _, _, intent_id, verb, *_ = f"{path}//".split("/")
        if verb == "cancel":
            return self.ledger.cancel_intent(intent_id)
        if intent_id:
            return self.ledger.look_up_intent(intent_id)
        fields = {name: values[0] for name, values in parse_qs(body).items()}
        key = self.headers["Idempotency-Key"]
        return self.ledger.create(key, fields, store_error=store_error, make=self.ledger.make_intent)

    def _wait_until_the_client_has_gone(self) -> None:
        try:
            self.connection.recv(1)
        except OSError:
            return

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: tests read the ledger."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """Ignore errors of clients that were killed."""


@contextmanager
def stripe(**of_ledger: Any) -> Iterator[Ledger]:
    """Run a server, and yield its ledger. `base_url` is the server's."""
    ledger = Ledger(**of_ledger)
    handler = type("Handler", (_Handler,), {"ledger": ledger})
    server = _Server(("127.0.0.1", 0), handler)
    ledger.base_url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield ledger
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# A fast worker ---------------------------------------------------------------------------------------------------

LEASE_S, READ_S, FIRST_RETRY_DELAY_S = 3.0, 0.5, 0.2


class Refunder(Worker):
    """A worker process that only sends refunds, with shorter times than the real worker: a test that kills it waits for
    its leases."""

    _WORDS = ("support.receivers.stripe_ledger:refund",)

    def __init__(self, url: str, log: Path, ledger: Ledger) -> None:
        super().__init__(url, log, BOOKING_STRIPE_API_KEY=KEY, BOOKING_STRIPE_BASE_URL=ledger.base_url)


def refund() -> None:
    """Send refunds until the process is killed."""
    settings = Settings.from_environment()
    database = Database(settings.database_url)
    assert settings.stripe_api_key
    gateway = StripeGateway(settings.stripe_api_key, settings.stripe_base_url, connect_s=2, read_s=READ_S)
    job = RefundJob(database, gateway, lease_s=LEASE_S, first_delay_s=FIRST_RETRY_DELAY_S)
    asyncio.run(_work(settings, database, job))


async def _work(settings: Settings, database: Database, job: RefundJob) -> None:
    sender = WebhookSender(settings)
    async with running(RealWorker(settings, database, settings.installation(), sender, [job]), sender):
        print("the worker runs", flush=True)
        await asyncio.Event().wait()
