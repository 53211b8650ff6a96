"""Writes, look-ups of names and calls of Stripe of one organization let the others through."""

import asyncio
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from support.databases.databases import departure_held
from support.world.lanes import HeldWork, running
from support.world.world import World

from booking_core.base.errors import Unavailable
from booking_core.bookings import capacity
from booking_core.db import postgres
from booking_core.db.engine import Database, Tx
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.execution.service import WRITE_BATCH, PaymentCalls

PLACES = 3


# Writes --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("postgresql_only")
def test_a_locked_row_holds_no_write_of_another_organization(
    world: World, new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT_MS", 60_000)
    neighbour, departure, threads = new_world(), world.departure(world.experience()), HeldWork()

    def wait(tx: Tx) -> str:
        with threads.counted():
            capacity.lock_bookable(tx, world.caller(), departure)
        return "written"

    async def scenario() -> None:
        async with running(world) as service:
            with departure_held(world.url, departure):
                waiting = [
                    asyncio.ensure_future(service.write(wait, organization_id=world.org, is_once=False))
                    for _ in range(30)
                ]
                await threads.wait_for(2)
                for _ in range(20):
                    assert await service.write(lambda tx: tx.now(), organization_id=neighbour.org, is_once=False)
                assert not any(task.done() for task in waiting)
            assert await asyncio.gather(*waiting) == ["written"] * 30

    asyncio.run(scenario())
    assert threads.most == 2


@pytest.mark.usefixtures("postgresql_only")
def test_a_write_that_waits_too_long_for_a_lock_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT_MS", 50)
    departure, database = world.departure(world.experience()), Database(world.url, clock=world.clock)
    with departure_held(world.url, departure), pytest.raises(Unavailable) as raised:
        database.write(lambda tx: capacity.lock_bookable(tx, world.caller(), departure))
    assert (raised.value.is_locked, raised.value.for_all) == (True, False)
    database.close()


def test_a_write_waits_for_at_most_two_transactions_before_it(world: World, new_world: Any) -> None:
    """With 40 writes of another organization: on SQLite a transaction has four of them, and the next one has the
    neighbour's in second place. On PostgreSQL it waits for none, since the other has two threads of six."""
    neighbour, is_sqlite = new_world(), world.database.is_sqlite
    may_end, begun = threading.Event(), threading.Semaphore(0)
    writes: list[tuple[str, Tx]] = []

    def work_of(name: str) -> Any:
        def work(tx: Tx) -> str:
            begun.release()
            assert name == "neighbour" or may_end.wait(30)
            writes.append((name, tx))
            return name

        return work

    async def scenario() -> None:
        async with running(world) as service:

            def submit(name: str, organization_id: str) -> "asyncio.Future[str]":
                work = service.write(work_of(name), organization_id=organization_id, is_once=False)
                return asyncio.ensure_future(work)

            offending = [submit("offender", world.org) for _ in range(40)]
            await asyncio.to_thread(begun.acquire, timeout=30)
            waiting = submit("neighbour", neighbour.org)
            await asyncio.sleep(0)  # it is queued
            if is_sqlite:
                may_end.set()
            assert await waiting == "neighbour"
            may_end.set()
            assert await asyncio.gather(*offending) == ["offender"] * 40

    asyncio.run(scenario())
    before = writes[: [name for name, _ in writes].index("neighbour")]
    assert len(before) <= (WRITE_BATCH + 1 if is_sqlite else 0)
    assert len({id(tx) for _, tx in before}) <= (2 if is_sqlite else 0)
    most = max(Counter(id(tx) for _, tx in writes).values())
    assert most == (WRITE_BATCH if is_sqlite else 1), "writes of a transaction"


def test_the_worker_is_woken_once_for_requests_that_are_answered_together(world: World) -> None:
    wakes: list[int] = []

    async def scenario() -> None:
        async with running(world) as service:
            service.on_commit.append(lambda: wakes.append(1))
            for _ in range(3):
                service._note_commit()
            await asyncio.sleep(0)
            assert len(wakes) == 1
            await service.write(lambda tx: tx.now(), organization_id=world.org, is_once=False)
            await asyncio.sleep(0)
            assert len(wakes) == 2

    asyncio.run(scenario())


# Look-ups of names ---------------------------------------------------------------------------------------------------


def test_names_that_hang_for_one_organization_leave_threads_to_another(world: World) -> None:
    hang = HeldWork()

    async def scenario() -> list[bool]:
        async with running(world) as service:
            hanging = [asyncio.ensure_future(service.look_up(hang, organization_id="offender")) for _ in range(30)]
            await hang.wait_for(2)
            answers = [await service.look_up(lambda: True, organization_id="neighbour") for _ in range(10)]
            assert not any(task.done() for task in hanging)
            hang.free.set()
            await asyncio.gather(*hanging)
            return answers

    assert asyncio.run(scenario()) == [True] * 10
    assert hang.most == 2


# Calls of Stripe -----------------------------------------------------------------------------------------------------


def test_an_organization_whose_places_are_taken_is_refused_as_by_a_queue(world: World) -> None:
    """So that the admission repeats the refusal, and the application is not called each time."""
    calls, organization = PaymentCalls(StripeIntents(), of_one_max=PLACES), world.organization
    with ExitStack() as places:
        for _ in range(PLACES):
            places.enter_context(calls.place(organization))
        with pytest.raises(Unavailable) as refused, calls.place(organization):
            pass
        assert refused.value.reason == "queue"
        with calls.place(replace(organization, id="another")):
            pass
    with calls.place(organization):
        pass


def test_a_call_that_ends_leaves_the_places_of_the_others_taken(world: World) -> None:
    calls, organization = PaymentCalls(StripeIntents(), of_one_max=2), world.organization
    with calls.place(organization):
        with calls.place(organization):
            pass
        with calls.place(organization), pytest.raises(Unavailable), calls.place(organization):
            pass


def test_a_sandbox_which_asks_no_stripe_takes_no_place(world: World) -> None:
    calls, sandbox = PaymentCalls(StripeIntents(), of_one_max=PLACES), replace(world.organization, clock_offset=0)
    with ExitStack() as places:
        for _ in range(PLACES + 1):
            places.enter_context(calls.place(sandbox))
