"""Everything that guests, staff, Stripe, the clock and the worker do with money, in random order and from several
threads: in the end charges, refunds, gift cards, events and bookings agree, and the doctor finds nothing.

Webhooks are lost, doubled, late and reordered, and workers die. What concerns seats alone is in `test_state_machine`.

Each run draws its steps from a seed. BOOKING_TEST_MONEY draws from more seeds than a run of every day,
BOOKING_TEST_MONEY_FROM begins at another one, and BOOKING_TEST_MONEY_STEPS takes more steps: 200 find what 40 leave.
"""

import asyncio
import itertools
import os
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.api.api import Api
from support.receivers.stripe_ledger import Fault, Ledger, stripe
from support.world import checkouts
from support.world.checkouts import Event, Webhooks, checkout_body, intent_row
from support.world.operations import Operations, add_ons
from support.world.world import DAY

from booking_core import bookings, payments
from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.errors import BookingError, Unavailable
from booking_core.db import tables
from booking_core.models.bookings import CancelReason, PaymentMode, RefundMode
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.worker.jobs.payments import PaymentCheckJob

FIRST = int(os.environ.get("BOOKING_TEST_MONEY_FROM", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("BOOKING_TEST_MONEY", "2")))
STEPS = int(os.environ.get("BOOKING_TEST_MONEY_STEPS", "40"))
SEATS = (5, 8)
FACE = 150_000
THREADS = {0: 1, 1: 3}
"""Threads by the last bit of the seed: every second run is repeatable."""
API_FAULTS = (Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.DROPPED_AFTER, *[None] * 6)
ANSWERED = {201, 404, 409, 422}
REASONS = (CancelReason.ADMIN, CancelReason.CUSTOMER, CancelReason.AGENT, CancelReason.API)
Row = dict[str, Any]
Step = Callable[["Market", random.Random], None]


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with stripe() as running:
        yield running


class Market:
    """Guests and staff of one organization with two departures, and the events of Stripe on their way."""

    def __init__(self, api: Api, ledger: Ledger, seed: int) -> None:
        self.api, self.ledger, self.world = api, ledger, api.world
        self.ops, self.webhooks = Operations(api.world), Webhooks(ledger, api.world.org)
        self.seed, self.guests = seed, itertools.count()
        self.experience = api.world.experience()
        self.starts = itertools.count(api.world.clock() + 2 * DAY, HOUR)
        self.departures = [self.open_departure(seats) for seats in SEATS]
        self.cards = [self.ops.issue(FACE) for _ in range(2)]
        self.bookings: list[str] = []
        self.on_the_way: list[Event] = []
        self.intents: dict[str, str] = {}
        """The intent of each checkout, by booking."""
        self.disputed: dict[str, str] = {}
        """The last status of the dispute of an intent."""
        self.by_hand: Counter[str] = Counter()
        """Amounts that staff returned at no gateway, by booking."""
        self.counts: Counter[str] = Counter()
        """Steps by their result."""
        self._lock = threading.Lock()

    def open_departure(self, seats: int) -> str:
        return self.world.departure(self.experience, seats=seats, starts_at=next(self.starts))

    # Steps -----------------------------------------------------------------------------------------------------

    def run(self, weights: Mapping[Step, int]) -> None:
        """Take steps, which are drawn by their weights."""
        threads = THREADS[self.seed % 2]
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(self._steps, weights, number, STEPS // threads) for number in range(threads)]:
                future.result()

    def _steps(self, weights: Mapping[Step, int], number: int, count: int) -> None:
        chance = random.Random(f"{self.seed}/{number}")
        for step in chance.choices(list(weights), list(weights.values()), k=count):
            step(self, chance)

    def staff(self, step: str, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the result of a verb of the core; None when it is refused."""
        try:
            answer = verb(*arguments, **options)
        except BookingError as refused:
            if isinstance(refused, Unavailable) and not self.seed % 2:
                raise  # nobody else holds a lock
            self.counts[f"{step} {refused.code}"] += 1
            return None
        self.counts[f"{step} done"] += 1
        return answer

    def any_booking(self, chance: random.Random) -> str:
        return chance.choice(self.bookings[-8:])

    def _order(self, chance: random.Random) -> tuple[str, int, int]:
        """Return a departure, a number of guests and a number of suits."""
        suits = chance.choice([1, 2]) if chance.random() < 0.3 else 0
        return chance.choice(self.departures), chance.choice([1, 1, 2, 3]), suits

    # Guests and staff ------------------------------------------------------------------------------------------

    def book(self, chance: random.Random) -> None:
        departure, count, suits = self._order(chance)
        payment = chance.choice([PaymentMode.PAY_ON_SITE, PaymentMode.INVOICE, PaymentMode.EXTERNAL_PAID])
        booked = self.staff("book", self.ops.book, departure, count, suits=suits, payment=payment)
        self.bookings += [booked["id"]] if booked else []

    def check_out(self, chance: random.Random) -> None:
        """Check out, and try again with the same key while Stripe fails."""
        departure, count, suits = self._order(chance)
        body = checkout_body(departure, count, add_ons=[{"id": "drysuit", "count": suits}] if suits else [])
        key = f"guest-{next(self.guests):06}-of-{self.world.org}"
        if self.cards and chance.random() < 0.4:
            body["gift_card_code"] = chance.choice(self.cards)[1]
        self.ledger.next_faults[:] = [fault for fault in [chance.choice(API_FAULTS)] if fault]
        for _ in range(3):
            response = self.api.post("/checkouts", body, key=key)
            self.counts[f"check out {response.status_code} {response.json().get('code', '')}"] += 1
            if response.status_code != 503:
                break
        faults_of_others = {503} if self.seed % 2 else set()
        assert response.status_code in ANSWERED | faults_of_others, response.text
        if response.status_code == 201:
            checkout = response.json()
            self.bookings.append(checkout["id"])
            if checkout["payment"]:
                self.intents[checkout["id"]] = checkout["payment"]["intent_id"]

    def change_party(self, chance: random.Random) -> None:
        party: Row = {"refund": chance.choice([RefundMode.AUTO, RefundMode.AUTO, RefundMode.NONE])}
        if chance.random() < 0.3:
            party["add_ons"] = add_ons(chance.choice([0, 1]))
        count = chance.choice([1, 1, 2, 3, 4])
        self.staff("party", self.ops.change_party, self.any_booking(chance), count, **party)

    def move(self, chance: random.Random) -> None:
        self.staff("move", self.ops.reschedule, self.any_booking(chance), chance.choice(self.departures))

    def cancel(self, chance: random.Random) -> None:
        terms: Row = chance.choice([{}, {}, {"in_full": True}, {"refund": RefundMode.NONE}])
        booking_id, reason = self.any_booking(chance), chance.choice(REASONS)
        self.staff("cancel", self.ops.act, lambda tx, actor: bookings.cancel(
            tx, actor, booking_id, reason=reason, **terms))  # fmt: skip

    def confirm(self, chance: random.Random) -> None:
        self.staff("confirm", self.ops.confirm, self.any_booking(chance))

    def cancel_departure(self, chance: random.Random) -> None:
        """Cancel a departure, and open another one for guests to come."""
        number = chance.randrange(len(self.departures))
        self.staff("cancel departure", self.ops.cancel_departure, self.departures[number])
        self.departures[number] = self.open_departure(chance.choice(SEATS))

    def record_payment(self, chance: random.Random) -> None:
        booking_id, amount = self.any_booking(chance), chance.choice([89_000, 178_000, 50_000])
        self.staff("record", self.ops.act, lambda tx, actor: bookings.record_payment(
            tx, actor, booking_id, amount_minor=amount))  # fmt: skip

    def void_payment(self, chance: random.Random) -> None:
        if records := self.world.rows(tables.payment_records):
            record = chance.choice(records)["id"]
            self.staff("void", self.ops.act, lambda tx, actor: bookings.void_payment(tx, actor, record))

    def settle_refund(self, chance: random.Random) -> None:
        """Settle a refund by hand, in full or in part, or close it without a payment."""
        if refunds := [row for row in self.world.rows(tables.refunds) if row["status"] in ("failed", "needs_review")]:
            refund = chance.choice(refunds)
            amount = chance.choice([None, None, refund["amount_minor"] // 2, 0])
            self._returned_by_hand("settle", refund["booking_id"], amount, refund["amount_minor"], lambda tx, actor: (
                bookings.settle_refund(tx, actor, refund["id"], note="in cash", amount_minor=amount)))  # fmt: skip

    def record_refund(self, chance: random.Random) -> None:
        booking_id, amount = self.any_booking(chance), chance.choice([10_000, 89_000])
        self._returned_by_hand("record refund", booking_id, amount, 0, lambda tx, actor: bookings.record_refund(
            tx, actor, booking_id, amount_minor=amount, note="in cash"))  # fmt: skip

    def _returned_by_hand(self, step: str, booking_id: str, amount: int | None, owed: int, verb: Any) -> None:
        if self.staff(step, self.ops.act, verb) is not None:
            with self._lock:
                self.by_hand[booking_id] += owed if amount is None else amount

    def reopen_refund(self, chance: random.Random) -> None:
        if refunds := [row for row in self.world.rows(tables.refunds) if row["status"] in ("failed", "needs_review")]:
            refund = chance.choice(refunds)["id"]
            self.staff("reopen", self.ops.act, lambda tx, actor: payments.reopen_refund(tx, actor, refund))

    # Stripe ----------------------------------------------------------------------------------------------------

    def pay(self, chance: random.Random) -> None:
        for booking_id in self._some_intents(chance):
            intent_id = self.intents[booking_id]
            state = self.ledger.intents[intent_id]["status"]
            if state == "requires_payment_method" and chance.random() < 0.2:
                self.ledger.decline(intent_id)
                self.send(chance, self.webhooks.failed(intent_id))
            elif state == "requires_payment_method" and self.ledger.pay(intent_id):
                self.send(chance, self.webhooks.succeeded(intent_id))

    def refund_at_the_dashboard(self, chance: random.Random) -> None:
        for booking_id in self._some_intents(chance):
            intent_id = self.intents[booking_id]
            charge = self.ledger.charges.get(intent_id)
            rest = charge.amount - charge.refunded if charge else 0
            if rest:
                checkouts.align(self.ledger, self.world)
                self.ledger.refund_at_the_dashboard(intent_id, min(rest, chance.choice([10_000, 89_000, rest])))
                self.send(chance, self.webhooks.refunded(intent_id), may_be_lost=False)

    def dispute(self, chance: random.Random) -> None:
        for booking_id in self._some_intents(chance):
            intent_id = self.intents[booking_id]
            if intent_id in self.ledger.charges and intent_id not in self.disputed:
                for status in ("needs_response", chance.choice(["won", "lost"])):
                    self.ledger.dispute(intent_id, status)
                    self.disputed[intent_id] = status
                    self.send(chance, self.webhooks.disputed(intent_id, status), may_be_lost=False)

    def refuse_refunds(self, chance: random.Random) -> None:
        """Let Stripe refuse each refund of a payment, or take that back."""
        for booking_id in self._some_intents(chance):
            intent_id = self.intents[booking_id]
            if self.ledger.refusals.pop(intent_id, None) is None:
                self.ledger.refusals[intent_id] = "balance_insufficient"

    def _some_intents(self, chance: random.Random) -> Sequence[str]:
        return [chance.choice(list(self.intents)[-6:])] if self.intents else ()

    def send(self, chance: random.Random, event: Event, *, may_be_lost: bool = True) -> None:
        copies = chance.choice([0, 1, 1, 2] if may_be_lost else [1, 1, 2])
        with self._lock:
            self.on_the_way += [event] * copies

    def deliver(self, chance: random.Random, count: int = 2) -> None:
        """Let some events arrive, in any order; an event that is not answered with 200 comes again."""
        for _ in range(count):
            with self._lock:
                if not self.on_the_way:
                    return
                event = self.on_the_way.pop(chance.randrange(len(self.on_the_way)))
            response = self.webhooks.send(self.api.client, event, now_s=self.world.clock() / 1e6)
            is_late = self.seed % 2 and "timestamp_too_old" in response.text  # another thread moved the clock
            assert response.status_code in (200, 503) or is_late, response.text
            self.counts[f"webhook {response.status_code}"] += 1
            if response.status_code != 200:
                with self._lock:
                    self.on_the_way.append(event)

    # The clock and the worker ----------------------------------------------------------------------------------

    def wait(self, chance: random.Random) -> None:
        self.world.clock.advance(chance.choice([1, 2, 5, 31]) * MINUTE)

    def wait_long(self, chance: random.Random) -> None:
        """Let the policy refund nothing more, or the departures begin."""
        self.world.clock.advance(chance.choice([5, 11, 26]) * HOUR)

    def work(self, _: random.Random) -> None:
        checkouts.align(self.ledger, self.world)
        for job in (self._check_payments, self.ops.abandon_due, self.ops.cancel_next_batch, self._refund):
            try:
                job()
            except Unavailable:
                if not self.seed % 2:
                    raise
                self.counts["work unavailable"] += 1

    def ask_and_die(self, _: random.Random) -> None:
        """Let a worker call Stripe for payments, and record nothing."""

        async def run() -> None:
            intents = StripeIntents(self.ledger.base_url)
            job = PaymentCheckJob(self.world.database, self.world.installation, intents)
            await job.start_due(asyncio.Event())
            await asyncio.gather(*job._in_flight)
            await intents.aclose()

        checkouts.align(self.ledger, self.world)
        asyncio.run(run())

    def _check_payments(self) -> None:
        checkouts.check_payments(self.world, self.ledger)

    def _refund(self) -> None:
        checkouts.refund(self.world, self.ledger)

    def settle(self) -> None:
        """Let everything arrive that was not lost, and the worker catch up."""
        chance = random.Random(self.seed)
        for _ in range(8):
            self.deliver(chance, len(self.on_the_way))
            self.world.clock.advance(16 * MINUTE)
            self.work(chance)


WEIGHTS = {
    Market.book: 6, Market.check_out: 10, Market.change_party: 8, Market.move: 4, Market.cancel: 6,
    Market.confirm: 1, Market.cancel_departure: 1,
    Market.record_payment: 4, Market.void_payment: 1, Market.settle_refund: 2, Market.record_refund: 1,
    Market.reopen_refund: 2, Market.pay: 12, Market.refund_at_the_dashboard: 4, Market.dispute: 1,
    Market.refuse_refunds: 2, Market.deliver: 8, Market.wait: 6, Market.wait_long: 1, Market.work: 6,
    Market.ask_and_die: 1,
}  # fmt: skip
OF_CHECKOUTS = {
    Market.check_out: 12, Market.pay: 10, Market.refund_at_the_dashboard: 3, Market.dispute: 3, Market.deliver: 8,
    Market.wait: 8, Market.work: 4, Market.ask_and_die: 3,
}  # fmt: skip
"""Steps of guests who pay by card only, of Stripe and of the worker."""


@pytest.fixture
def calls(api: Api, ledger: Ledger) -> Iterator[None]:
    """The service calls the fake Stripe."""
    checkouts.configure(api.world)
    ledger.next_faults.clear()
    ledger.refusals.clear()
    with checkouts.calling(api.client, ledger):
        yield


@pytest.mark.exhaustive(but=("sqlite-0]", "postgresql-1]"))
@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("seed", SEEDS)
def test_money_seats_cards_and_events_agree_whatever_happens(api: Api, ledger: Ledger, seed: int) -> None:
    market = Market(api, ledger, seed)
    market.book(random.Random(seed))  # the others are about some booking
    market.run(WEIGHTS)
    market.settle()
    agrees(market)
    print(sorted(market.counts.items()))


@pytest.mark.exhaustive(but=("sqlite-0]", "postgresql-2]"))
@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("seed", [2 * seed for seed in SEEDS])
def test_each_checkout_ends_with_its_money_whatever_webhooks_and_workers_do(
    api: Api, ledger: Ledger, seed: int
) -> None:
    market = Market(api, ledger, seed)
    market.cards.clear()
    market.run(OF_CHECKOUTS)
    market.settle()
    agrees(market)
    checkouts_agree(market)
    print(sorted(market.counts.items()))


# What must be true -------------------------------------------------------------------------------------------------


def agrees(market: Market) -> None:
    money_agrees(market)
    events_agree(market)


def money_agrees(market: Market) -> None:
    """Compare the charges at Stripe with their records here."""
    rows = {row["booking_id"]: row for row in market.world.rows(tables.payments)}
    parts: Counter[str] = Counter()
    refunds = defaultdict(list)
    for refund in market.world.rows(tables.refunds):
        refunds[refund["booking_id"]].append(refund)
        if refund["number"] and refund["status"] in ("succeeded", "settled"):
            parts[refund["booking_id"]] += refund["settled_minor"] or refund["amount_minor"] * (
                refund["status"] == "succeeded"
            )
    for booking_id, intent_id in market.intents.items():
        charge, payment = market.ledger.charges.get(intent_id), rows[booking_id]
        if charge is None:
            assert payment["status"] in ("pending", "failed")
            continue
        assert payment["amount_minor"] + payment["released_minor"] == charge.amount
        refund_ids = [refund["metadata"]["refund_id"] for refund in charge.refunds if refund["metadata"]]
        assert len(refund_ids) == len(set(refund_ids)), "no refund is made twice"
        assert charge.refunded <= charge.amount
        recorded = payment["refunded_minor"] + parts[booking_id]
        at_the_gateway = recorded - market.by_hand[booking_id]
        # What staff settled by hand may have been refunded at the dashboard: it is not counted twice (`elsewhere`).
        assert at_the_gateway <= charge.refunded, (booking_id, recorded, dict(market.by_hand), charge)
        if recorded < charge.refunded:
            assert payment["refunded_minor"] == payment["amount_minor"], (booking_id, recorded, charge, payment)


def checkouts_agree(market: Market) -> None:
    """Compare each checkout with its intent at Stripe, where nobody but guests and the dashboard did anything."""
    payments = {row["booking_id"]: row for row in market.world.rows(tables.payments)}
    confirmed = [row["resource_id"] for row in market.world.rows(tables.events) if row["type"] == "booking.confirmed"]
    rows = market.world.rows(tables.bookings)
    assert sorted(confirmed) == sorted(row["id"] for row in rows if row["status"] == "confirmed")
    assert {row["id"] for row in rows} == set(market.intents)
    for booking in rows:
        intent_id, row = market.intents[booking["id"]], intent_row(market.world, booking["id"])
        intents = market.ledger.intents.values()
        intent_ids = [intent["id"] for intent in intents if intent["metadata"]["booking_id"] == booking["id"]]
        assert intent_ids == [intent_id], "one intent for a booking"
        charge, intent = market.ledger.charges.get(intent_id), market.ledger.intents[intent_id]
        if charge is None:
            assert (booking["status"], intent["status"], row["status"]) == ("cancelled", "canceled", "canceled")
        else:
            payment = payments[booking["id"]]
            assert (row["status"], payment["payment_intent"]) == ("succeeded", intent_id)
            assert payment["refunded_minor"] == charge.refunded
            is_returned = charge.refunded == charge.amount
            assert booking["status"] == "confirmed" or is_returned or waits_for_a_person(market, booking["id"])
        dispute = market.disputed.get(intent_id)
        assert (row["dispute_id"] is not None, row["dispute_status"]) == (dispute is not None, dispute)


def waits_for_a_person(market: Market, booking_id: str) -> bool:
    """Return whether the refund was refused since the dashboard has returned a part of the payment before
    (decisions/0013)."""
    (refund,) = [row for row in market.world.rows(tables.refunds) if row["booking_id"] == booking_id]
    by_dashboard = [refund for refund in market.ledger.refunds(market.intents[booking_id]) if not refund["metadata"]]
    return bool(by_dashboard) and (refund["status"], refund["last_error"]) == ("failed", "amount_too_large")


def events_agree(market: Market) -> None:
    """Fold the feed, and compare each state with the resource; each event has the former values of its changes."""
    events, states = list(feed(market)), dict[tuple[str, str], Row]()
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    for event in events:
        kind, after = event["resource_type"], event["data"]["object"]
        if (kind, after["id"]) in states and "changes" in event["data"]:
            before = compared(kind, after | event["data"]["changes"])
            assert before == compared(kind, states[kind, after["id"]]), event
        states[kind, after["id"]] = after
    booking_ids = {row["id"] for row in market.world.rows(tables.bookings)}
    assert {resource_id for kind, resource_id in states if kind == "booking"} == booking_ids >= set(market.bookings)
    for (kind, resource_id), state in states.items():
        resource = market.api.get(f"{LISTS[kind]}/{resource_id}").json()
        assert compared(kind, resource) == compared(kind, state)


def feed(market: Market) -> Iterator[Row]:
    """Walk the feed with pages of several sizes."""
    cursor: Row = {}
    while True:
        page = market.api.get("/events", order="asc", limit=7 + len(cursor), **cursor).json()
        yield from page["data"]
        if not page["has_more"]:
            return
        cursor = {"starting_after": page["next_cursor"]}


LISTS = {"booking": "/bookings", "customer": "/customers", "gift_card": "/gift-cards"}
LEFT_OUT = {
    "booking": ("updated_at", "manage_url"),
    "gift_card": ("status",),  # staff deactivates cards without an event
}


def compared(kind: str, resource: Row) -> Row:
    """Return the fields of a resource that its events have."""
    return {name: value for name, value in resource.items() if name not in LEFT_OUT.get(kind, ())}
