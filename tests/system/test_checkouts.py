"""Checkouts against a Stripe whose webhooks are lost, doubled, late and reordered, with processes that die in between:
in the end the money at Stripe, the seats and the bookings agree.

Each run draws guests and faults from a seed. BOOKING_TEST_CHECKOUTS draws from more seeds than a run of every day.
"""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from support import checkouts, databases
from support.api import Api
from support.checkouts import Event, Webhooks, checkout_body, intent_row
from support.operations import Operations
from support.receivers import wait_until, workers
from support.servers import COMMITTED, MUTE, Answer, Service, lines, new_world
from support.stripe_ledger import Fault, Ledger, stripe
from support.world import World

from booking_core.base.clock import MINUTE
from booking_core.db import tables
from booking_core.db.statements import Statement
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.worker.jobs.payments import PaymentCheckJob

SEEDS = range(int(os.environ.get("BOOKING_TEST_CHECKOUTS", "2")))
GUESTS = 14
SEATS = 10
STEPS = 40
API_FAULTS = (Fault.ERROR_BEFORE, Fault.ERROR_AFTER, Fault.DROPPED_AFTER, None, None)


@pytest.fixture(scope="module")
def running() -> Iterator[Ledger]:
    with stripe() as ledger:
        yield ledger


class Scenario:
    """Guests who buy, pay and change their mind, and the events of Stripe on their way to the service."""

    def __init__(self, api: Api, ledger: Ledger, seed: int) -> None:
        self.api, self.ledger, self.world = api, ledger, api.world
        self.chance = random.Random(seed)
        self.ops = Operations(api.world)
        self.departure = api.world.departure(api.world.experience(), seats=SEATS)
        self.webhooks = Webhooks(ledger, api.world.org)
        self.on_the_way: list[Event] = []
        self.intents: dict[str, str] = {}
        """The intent of each booking."""
        self.disputed: set[str] = set()

    # Guests ----------------------------------------------------------------------------------------------------

    def buy(self, number: int) -> None:
        """Check out with one seat, and try again with the same key while Stripe fails."""
        self.ledger.next_faults[:] = [fault for fault in [self.chance.choice(API_FAULTS)] if fault]
        body, key = checkout_body(self.departure, 1), f"guest-{number:04}-of-{self.world.org}"
        statuses = []
        for _ in range(3):
            response = self.api.post("/checkouts", body, key=key)
            statuses.append(response.status_code)
            if response.status_code == 201:
                shown = response.json()
                assert self.intents.setdefault(shown["id"], shown["payment"]["intent_id"])
            if response.status_code in (201, 409):
                break
        assert statuses[-1] in (201, 409), statuses
        assert set(statuses[:-1]) <= {503}

    def act(self, booking_id: str) -> None:
        """Let a guest, or somebody at the dashboard, do something at Stripe."""
        intent_id = self.intents[booking_id]
        checkouts.align(self.ledger, self.world)
        state = self.ledger.intents[intent_id]["status"]
        what = self.chance.choice(["pay", "pay", "decline", "refund", "dispute", "nothing"])
        if what == "decline" and state == "requires_payment_method":
            self.ledger.decline(intent_id)
            self.send(self.webhooks.failed(intent_id))
        elif what == "pay" and state == "requires_payment_method" and self.ledger.pay(intent_id):
            self.send(self.webhooks.succeeded(intent_id), may_be_lost=True)
        elif what == "refund" and state == "succeeded" and self.ledger.charges[intent_id].refunded == 0:
            self.ledger.refund_at_the_dashboard(intent_id, 1_000)
            self.send(self.webhooks.refunded(intent_id))
        elif what == "dispute" and state == "succeeded" and intent_id not in self.disputed:
            self.disputed.add(intent_id)
            for status in ("needs_response", "won"):
                self.ledger.dispute(intent_id, status)
                self.send(self.webhooks.disputed(intent_id, status))

    def send(self, event: Event, *, may_be_lost: bool = False) -> None:
        copies = self.chance.choice([0, 1, 2, 3]) if may_be_lost else self.chance.choice([1, 2])
        self.on_the_way += [event] * copies

    # The service -----------------------------------------------------------------------------------------------

    def deliver(self, count: int) -> None:
        """Let some events arrive, in any order; an event that is not answered with 200 comes again."""
        self.chance.shuffle(self.on_the_way)
        for _ in range(min(count, len(self.on_the_way))):
            event = self.on_the_way.pop()
            response = self.webhooks.send(self.api.client, event, now_s=self.world.clock() / 1e6)
            assert response.status_code in (200, 503), response.text
            if response.status_code != 200:
                self.on_the_way.append(event)

    def work(self, *, dies: bool = False) -> None:
        """Run the worker's jobs; a job that dies has called Stripe, and records nothing."""
        if dies:
            asyncio.run(self._ask_and_die())
        else:
            checkouts.check_payments(self.world, self.ledger)
            self.ops.abandon_due()
            checkouts.refund(self.world, self.ledger)

    async def _ask_and_die(self) -> None:
        intents = StripeIntents(self.ledger.base_url)
        job = PaymentCheckJob(self.world.database, self.world.installation, intents)
        await job.start_due(asyncio.Event())
        await asyncio.gather(*job._in_flight)
        await intents.aclose()

    def settle(self) -> None:
        """Let everything arrive that was not lost, and the worker catch up."""
        for _ in range(6):
            self.deliver(len(self.on_the_way))
            self.world.clock.advance(8 * MINUTE)
            self.work()


@pytest.mark.parametrize("seed", SEEDS)
def test_money_and_seats_agree_whatever_is_lost_doubled_late_or_reordered(api: Api, running: Ledger, seed: int) -> None:
    checkouts.configure(api.world)
    running.next_faults.clear()
    with checkouts.calling(api.client, running):
        scenario = Scenario(api, running, seed)
        for number in range(STEPS):
            if number % 3 == 0 and number // 3 < GUESTS:
                scenario.buy(number)
            if scenario.intents:
                scenario.act(scenario.chance.choice(list(scenario.intents)))
            scenario.deliver(scenario.chance.choice([0, 0, 1, 2]))
            if scenario.chance.random() < 0.3:
                scenario.work(dies=scenario.chance.random() < 0.4)
            scenario.world.clock.advance(scenario.chance.choice([0, 1, 2, 5]) * MINUTE)
        scenario.settle()
    agrees(scenario)


def agrees(scenario: Scenario) -> None:
    world, ledger = scenario.world, scenario.ledger
    bookings = {row["id"]: row for row in world.rows(tables.bookings)}
    assert set(bookings) == set(scenario.intents)
    payments = {row["booking_id"]: row for row in world.rows(tables.payments)}
    for booking_id, booking in bookings.items():
        intent_id = scenario.intents[booking_id]
        made = [each["id"] for each in ledger.intents.values() if each["metadata"]["booking_id"] == booking_id]
        assert made == [intent_id], "one intent for a booking"
        intent, row, payment = ledger.intents[intent_id], intent_row(world, booking_id), payments[booking_id]
        charge = ledger.charges.get(intent_id)
        if intent["status"] == "succeeded":
            assert charge is not None
            assert (row["status"], payment["payment_intent"]) == ("succeeded", intent_id)
            assert payment["refunded_minor"] == charge.refunded
            is_returned = charge.refunded == charge.amount
            assert booking["status"] == "confirmed" or is_returned or waits_for_a_person(scenario, booking_id)
        else:
            assert (booking["status"], intent["status"], row["status"]) == ("cancelled", "canceled", "canceled")
            assert charge is None
        assert (row["dispute_id"] is not None) == (intent_id in scenario.disputed)
        assert row["dispute_id"] is None or row["dispute_status"] == "won"
    (departure,) = world.rows(tables.departures)
    assert departure["seats_taken"] == sum(row["status"] == "confirmed" for row in bookings.values()) <= SEATS
    confirmed = [row for row in world.rows(tables.events) if row["type"] == "booking.confirmed"]
    assert len(confirmed) == len({row["resource_id"] for row in confirmed}) == departure["seats_taken"]
    assert world.examine() == []


def waits_for_a_person(scenario: Scenario, booking_id: str) -> bool:
    """Return whether the refund was refused since the dashboard has returned a part of the payment before
    (decisions/0013)."""
    (refund,) = [row for row in scenario.world.rows(tables.refunds) if row["booking_id"] == booking_id]
    by_dashboard = [each for each in scenario.ledger.refunds(scenario.intents[booking_id]) if not each["metadata"]]
    return bool(by_dashboard) and (refund["status"], refund["last_error"]) == ("failed", "amount_too_large")


# A lost webhook --------------------------------------------------------------------------------------------------


def test_a_payment_whose_webhook_was_lost_still_books(api: Api, running: Ledger, world: World) -> None:
    checkouts.configure(world)
    departure = world.departure(world.experience(), seats=2)
    with checkouts.calling(api.client, running):
        paid = api.post("/checkouts", checkout_body(departure, 1)).json()
        unpaid = api.post("/checkouts", checkout_body(departure, 1)).json()
        running.pay(paid["payment"]["intent_id"])
        world.clock.advance(29 * MINUTE)
        assert checkouts.check_payments(world, running) >= 2
    ops = Operations(world)
    assert (ops.booking(paid["id"])["status"], ops.booking(unpaid["id"])["status"]) == ("confirmed", "pending")
    world.clock.advance(2 * MINUTE)
    assert ops.abandon_due() == 1
    checkouts.check_payments(world, running)
    assert running.intents[unpaid["payment"]["intent_id"]]["status"] == "canceled"
    assert not running.pay(unpaid["payment"]["intent_id"])
    assert intent_row(world, unpaid["id"])["status"] == "canceled"
    assert world.examine() == []


# Processes that are killed ---------------------------------------------------------------------------------------


def test_kills_in_the_middle_of_a_checkout_a_webhook_and_a_look_up_lose_and_double_nothing(
    running: Ledger, fresh_database_url: str, tmp_path: Path
) -> None:
    """Stripe has made the intent, and no process is left for its answer; the webhook is committed, and not answered;
    the worker has called Stripe, and is dead when it answers."""
    of_stripe = {"BOOKING_STRIPE_BASE_URL": running.base_url}
    service, made = Service(fresh_database_url, tmp_path / "log", **of_stripe), len(running.intents)
    running.next_faults.clear()
    with new_world(fresh_database_url) as world:
        checkouts.configure(world)
        key, departure = world.key(), world.departure(world.experience(), seats=2)
    bodies = {name: checkout_body(departure, 1) for name in ("paid-by-webhook", "paid-without-webhook")}
    running.next_faults[:] = [Fault.TIMEOUT_AFTER]
    asyncio.run(killed_while_stripe_answers(service.start(), key, bodies["paid-by-webhook"], running, made))
    service.start()
    answers = {name: asyncio.run(posted(service, key, name, body)) for name, body in bodies.items()}
    service.kill()
    assert {answer.status for answer in answers.values()} == {201}
    assert len(running.intents) == made + 2
    intents = [answer.json()["payment"]["intent_id"] for answer in answers.values()]
    for intent_id in intents:
        running.pay(intent_id)

    event = Webhooks(running, world.org).succeeded(intents[0])
    service.start(MUTE)
    asyncio.run(killed_before_the_answer(service, event, world))
    assert asyncio.run(send_webhook(service.start(), event, world)) == 200
    service.stop()

    settings = {"BOOKING_STRIPE_BASE_URL": running.base_url}
    with workers(fresh_database_url, tmp_path, **settings) as (worker,):
        due(fresh_database_url)
        running.next_faults[:] = [Fault.TIMEOUT_AFTER]
        asked = ("intent", intents[1])
        worker.start()
        wait_until(lambda: asked in running.requests, "the worker asks Stripe")
        worker.kill()
        due(fresh_database_url)  # the lease of the dead worker has expired
        worker.start()
        with new_world(fresh_database_url) as other:
            database = other.database
            wait_until(lambda: confirmed(database) == 2, "both are confirmed")
            worker.kill()
            found = World(database, world.clock, world.organization)
            assert [row["status"] for row in found.rows(tables.payment_intents)] == ["succeeded"] * 2
            types = Counter(row["type"] for row in found.rows(tables.events))
            assert (types["booking.created"], types["booking.confirmed"]) == (2, 2)
            assert found.row(tables.departures, departure)["seats_taken"] == 2


async def posted(service: Service, key: str, name: str, body: dict[str, Any]) -> Answer:
    async with lines(service.ports[:1], key, 1) as (line,):
        answer = await line.try_post("/checkouts", body, name)
        assert answer is not None
        return answer


async def killed_while_stripe_answers(
    service: Service, key: str, body: dict[str, Any], ledger: Ledger, made: int
) -> None:
    async with lines(service.ports[:1], key, 1) as (line,):
        sent = asyncio.create_task(line.try_post("/checkouts", body, "paid-by-webhook"))
        await asyncio.to_thread(wait_until, lambda: len(ledger.intents) == made + 1, "Stripe makes the intent")
        service.kill()
        assert await sent is None


async def send_webhook(service: Service, event: Event, world: World) -> int | None:
    """Send a webhook as Stripe does, and return the status of the response, or None without one."""
    body, headers = Webhooks.signed(event, now_s=time.time())
    path = f"http://127.0.0.1:{service.ports[0]}/stripe/webhooks/{world.org}"
    return await asyncio.to_thread(_sent, path, body, headers)


def _sent(url: str, body: bytes, headers: dict[str, str]) -> int | None:
    try:
        return httpx.post(url, content=body, headers=headers, timeout=30).status_code
    except httpx.TransportError:
        return None


async def killed_before_the_answer(service: Service, event: Event, world: World) -> None:
    sent = asyncio.create_task(send_webhook(service, event, world))
    assert await asyncio.to_thread(service.servers[0].printed) == COMMITTED
    service.kill()
    assert await sent is None


def due(url: str) -> None:
    """Make the look-up of each payment that waits due now."""
    databases.run(url, "UPDATE payment_intents SET check_at = 1 WHERE status = 'open'")


def confirmed(database: Any) -> int:
    count = text("SELECT count(*) FROM bookings WHERE status = 'confirmed'")
    return int(database.read(lambda tx: tx.all(Statement(count)))[0][0])


# A Stripe that hangs ---------------------------------------------------------------------------------------------


def test_a_stripe_that_hangs_for_one_organization_delays_no_other(api: Api, running: Ledger, new_world: Any) -> None:
    """More checkouts than the organization may have in flight hang, and the neighbour's is answered meanwhile."""
    from concurrent.futures import ThreadPoolExecutor

    from support.stripe_ledger import OTHER_KEY

    others = Api(api.client, new_world())
    checkouts.configure(api.world)
    checkouts.configure(others.world, api_key=OTHER_KEY)
    departure = api.world.departure(api.world.experience(), seats=9)
    of_others = others.world.departure(others.world.experience(), seats=9)
    running.hanging.add(f"Bearer {OTHER_KEY}")
    try:
        with checkouts.calling(api.client, running, timeout_s=1.5, of_one_max=3), ThreadPoolExecutor(6) as pool:
            hanging = [pool.submit(others.post, "/checkouts", checkout_body(of_others, 1)) for _ in range(6)]
            own = [api.post("/checkouts", checkout_body(departure, 1)) for _ in range(2)]
            assert [each.status_code for each in own] == [201, 201]
            assert not all(each.done() for each in hanging), "they hang while the neighbour is answered"
            refused = [each.result() for each in hanging]
    finally:
        running.hanging.clear()
    assert {each.status_code for each in refused} == {503}
    busy = [each for each in refused if "Too many" in each.json()["error"]]
    assert len(busy) >= 3, "those beyond the limit are refused at once"
    assert all(each.headers["retry-after"] for each in refused)


def test_checkouts_beyond_those_that_may_wait_for_stripe_write_nothing(
    api: Api, running: Ledger, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all of them come before the first one waits for Stripe: their writes would be in others' way."""
    from concurrent.futures import ThreadPoolExecutor

    checkouts.configure(world)
    body = checkout_body(world.departure(world.experience(), seats=20), 1)
    service, begin = checkouts.service_of(api.client), threading.Event()
    write, written = service.write, list[Any]()

    async def write_later(*arguments: Any, **options: Any) -> Any:
        written.append(arguments)
        await asyncio.to_thread(begin.wait, 30)
        return await write(*arguments, **options)

    with checkouts.calling(api.client, running, of_one_max=3), ThreadPoolExecutor(12) as pool:
        monkeypatch.setattr(service, "write", write_later)
        sent = [pool.submit(api.post, "/checkouts", body) for _ in range(12)]
        try:
            wait_until(lambda: len(written) + sum(each.done() for each in sent) == 12, "each is refused, or writes")
            assert len(written) == 3
        finally:
            begin.set()
        statuses = Counter(each.result().status_code for each in sent)
    assert statuses == {201: 3, 503: 9}
    assert len(world.rows(tables.bookings)) == 3
