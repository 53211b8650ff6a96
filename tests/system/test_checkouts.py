"""Checkouts against a Stripe whose webhooks are lost and that hangs, with processes that are killed in between."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from support.api.api import Api
from support.databases import databases
from support.receivers.receivers import wait_until, workers
from support.receivers.stripe_ledger import OTHER_KEY, Fault, Ledger, stripe
from support.serving.servers import COMMITTED, MUTE, Answer, Service, lines, new_world
from support.world import checkouts
from support.world.checkouts import Event, Webhooks, checkout_body, intent_row
from support.world.operations import Operations
from support.world.world import World

from booking_core.base.clock import MINUTE
from booking_core.db import tables
from booking_core.db.statements import Statement


@pytest.fixture(scope="module")
def running() -> Iterator[Ledger]:
    with stripe() as ledger:
        yield ledger


# A lost webhook --------------------------------------------------------------------------------------------------


def test_a_payment_whose_webhook_was_lost_still_books(api: Api, running: Ledger, world: World) -> None:
    checkouts.configure(world)
    departure = world.departure(world.experience(), seats=2)
    with checkouts.calling(api.client, running):
        paid = api.post("/checkouts", checkout_body(departure, 1)).json()
        unpaid = api.post("/checkouts", checkout_body(departure, 1)).json()
        running.pay(paid["payment"]["intent_id"])
        world.clock.advance(29 * MINUTE)
        due = [intent_row(world, checkout["id"])["check_at"] for checkout in (paid, unpaid)]
        assert max(due) <= world.clock()
        checkouts.check_payments(world, running)
        assert intent_row(world, unpaid["id"])["check_at"] > world.clock(), "it was looked up, too"
    ops = Operations(world)
    assert (ops.booking(paid["id"])["status"], ops.booking(unpaid["id"])["status"]) == ("confirmed", "pending")
    world.clock.advance(2 * MINUTE)
    assert ops.abandon_due() == 1
    checkouts.check_payments(world, running)
    assert running.intents[unpaid["payment"]["intent_id"]]["status"] == "canceled"
    assert not running.pay(unpaid["payment"]["intent_id"])
    assert intent_row(world, unpaid["id"])["status"] == "canceled"


# Processes that are killed ---------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_kills_during_checkout_webhook_or_look_up_lose_and_double_nothing(
    running: Ledger, fresh_database_url: str, tmp_path: Path
) -> None:
    """Stripe has made the intent, and no process is left for its answer; the webhook is committed, and not answered;
    the worker has called Stripe, and is dead when it answers."""
    of_stripe = {"BOOKING_STRIPE_BASE_URL": running.base_url}
    service, intent_count = Service(fresh_database_url, tmp_path / "log", **of_stripe), len(running.intents)
    running.next_faults.clear()
    with new_world(fresh_database_url) as world:
        checkouts.configure(world)
        key, departure = world.key(), world.departure(world.experience(), seats=2)
    bodies = {name: checkout_body(departure, 1) for name in ("paid-by-webhook", "paid-without-webhook")}
    running.next_faults[:] = [Fault.TIMEOUT_AFTER]
    asyncio.run(killed_while_stripe_answers(service.start(), key, bodies["paid-by-webhook"], running, intent_count))
    service.start()
    answers = {name: asyncio.run(posted(service, key, name, body)) for name, body in bodies.items()}
    service.kill()
    assert {answer.status for answer in answers.values()} == {201}
    assert len(running.intents) == intent_count + 2
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
        look_up = ("intent", intents[1])
        worker.start()
        wait_until(lambda: look_up in running.requests, "the worker asks Stripe")
        worker.kill()
        due(fresh_database_url)  # the lease of the dead worker has expired
        worker.start()
        with new_world(fresh_database_url) as other:
            database = other.database
            wait_until(lambda: confirmed(database) == 2, "both are confirmed")
            worker.kill()
            stored = World(database, world.clock, world.organization)
            assert [row["status"] for row in stored.rows(tables.payment_intents)] == ["succeeded"] * 2
            types = Counter(row["type"] for row in stored.rows(tables.events))
            assert (types["booking.created"], types["booking.confirmed"]) == (2, 2)
            assert stored.row(tables.departures, departure)["seats_taken"] == 2


async def posted(service: Service, key: str, name: str, body: dict[str, Any]) -> Answer:
    async with lines(service.ports[:1], key, 1) as (line,):
        answer = await line.try_post("/checkouts", body, name)
        assert answer is not None
        return answer


async def killed_while_stripe_answers(
    service: Service, key: str, body: dict[str, Any], ledger: Ledger, intent_count: int
) -> None:
    async with lines(service.ports[:1], key, 1) as (line,):
        sent = asyncio.create_task(line.try_post("/checkouts", body, "paid-by-webhook"))
        await asyncio.to_thread(wait_until, lambda: len(ledger.intents) == intent_count + 1, "Stripe makes the intent")
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


@pytest.mark.exhaustive(but="sqlite")
def test_a_stripe_that_hangs_for_one_organization_delays_no_other(api: Api, running: Ledger, new_world: Any) -> None:
    """More checkouts than the organization may have in flight hang, and the neighbour's is answered meanwhile."""
    others = Api(api.client, new_world())
    checkouts.configure(api.world)
    checkouts.configure(others.world, api_key=OTHER_KEY)
    departure = api.world.departure(api.world.experience(), seats=9)
    of_others = others.world.departure(others.world.experience(), seats=9)
    running.hanging.add(f"Bearer {OTHER_KEY}")
    try:
        with checkouts.calling(api.client, running, timeout_s=1.5, of_one_max=3), ThreadPoolExecutor(6) as pool:
            hanging = [pool.submit(others.post, "/checkouts", checkout_body(of_others, 1)) for _ in range(6)]
            responses = [api.post("/checkouts", checkout_body(departure, 1)) for _ in range(2)]
            assert [response.status_code for response in responses] == [201, 201]
            assert not all(future.done() for future in hanging), "they hang while the neighbour is answered"
            refused = [future.result() for future in hanging]
    finally:
        running.hanging.clear()
    assert {response.status_code for response in refused} == {503}
    busy = [response for response in refused if "Too many" in response.json()["error"]]
    assert len(busy) == 3, "those beyond the limit are refused at once"
    assert all(response.headers["retry-after"] for response in refused)


def test_checkouts_beyond_those_that_may_wait_for_stripe_write_nothing(
    api: Api, running: Ledger, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all of them come before the first one waits for Stripe: their writes would be in others' way."""
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
            wait_until(lambda: len(written) + sum(future.done() for future in sent) == 12, "each is refused, or writes")
            assert len(written) == 3
        finally:
            begin.set()
        statuses = Counter(future.result().status_code for future in sent)
    assert statuses == {201: 3, 503: 9}
    assert len(world.rows(tables.bookings)) == 3
