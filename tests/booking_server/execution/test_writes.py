"""Writes of one organization that wait for a locked row, or cost much, let the others through."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from support.databases import departure_held
from support.world import SECRET, World

from booking_core import bookings
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db import postgres
from booking_core.db.engine import Database, Tx
from booking_server.execution.service import WRITE_BATCH, Service


def test_a_locked_row_holds_no_write_of_another_organization(
    world: World, new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.database.is_sqlite:
        pytest.skip("SQLite has one writer: no other transaction has a lock while it writes")
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT_MS", 60_000)
    neighbour, departure = new_world(), world.departure(world.experience())
    url = world.database.url.render_as_string(hide_password=False)
    running, most, lock = 0, 0, threading.Lock()

    def wait(tx: Tx) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        bookings.lock_seats(tx, world.caller(), departure, 1)
        with lock:
            running -= 1
        return "written"

    async def scenario() -> None:
        settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
        service = Service(settings, Database(url, clock=world.clock))
        with departure_held(url, departure):
            waiting = [
                asyncio.ensure_future(service.write(wait, organization_id=world.org, is_once=False)) for _ in range(30)
            ]
            for _ in range(20):
                assert await service.write(lambda tx: tx.now(), organization_id=neighbour.org, is_once=False)
            assert not any(each.done() for each in waiting)
        assert await asyncio.gather(*waiting) == ["written"] * 30
        await asyncio.to_thread(service.close)

    asyncio.run(scenario())
    assert most == 2


def test_a_write_that_waits_too_long_for_a_lock_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.database.is_sqlite:
        pytest.skip("SQLite has one writer: no other transaction has a lock while it writes")
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT_MS", 50)
    departure = world.departure(world.experience())
    url = world.database.url.render_as_string(hide_password=False)
    database = Database(url, clock=world.clock)
    with departure_held(url, departure), pytest.raises(Unavailable) as raised:
        database.write(lambda tx: bookings.lock_seats(tx, world.caller(), departure, 1))
    assert (raised.value.is_locked, raised.value.for_all) == (True, False)
    database.close()


def test_a_write_waits_for_the_transaction_in_hand_and_one_write_of_another_organization(
    world: World, new_world: Any
) -> None:
    """With 40 writes of another organization: on SQLite a transaction has eight of them, and the next one has the
    neighbour's in second place. On PostgreSQL it waits for none, since the other has two threads of six."""
    neighbour, url = new_world(), world.database.url.render_as_string(hide_password=False)
    is_sqlite, may_end, begun = world.database.is_sqlite, threading.Event(), threading.Semaphore(0)
    done: list[tuple[str, Tx]] = []

    def of(name: str) -> Any:
        def work(tx: Tx) -> str:
            begun.release()
            assert name == "neighbour" or may_end.wait(30)
            done.append((name, tx))
            return name

        return work

    async def scenario() -> None:
        settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
        service = Service(settings, Database(url, clock=world.clock))

        def submit(name: str, organization_id: str) -> "asyncio.Future[str]":
            return asyncio.ensure_future(service.write(of(name), organization_id=organization_id, is_once=False))

        offending = [submit("offender", world.org) for _ in range(40)]
        await asyncio.to_thread(begun.acquire, timeout=30)
        waiting = submit("neighbour", neighbour.org)
        await asyncio.sleep(0)  # it is queued
        if is_sqlite:
            may_end.set()
        assert await waiting == "neighbour"
        may_end.set()
        assert await asyncio.gather(*offending) == ["offender"] * 40
        await asyncio.to_thread(service.close)

    asyncio.run(scenario())
    before = done[: [name for name, _ in done].index("neighbour")]
    assert len(before) <= (WRITE_BATCH + 1 if is_sqlite else 0)
    assert len({id(tx) for _, tx in before}) <= (2 if is_sqlite else 0)
    most = max(Counter(id(tx) for _, tx in done).values())
    assert most == (WRITE_BATCH if is_sqlite else 1), "writes of a transaction"


def test_the_worker_is_woken_once_for_requests_that_are_answered_together(world: World) -> None:
    url = world.database.url.render_as_string(hide_password=False)
    wakes: list[int] = []

    async def scenario() -> None:
        settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
        service = Service(settings, Database(url, clock=world.clock))
        service.committed = lambda: wakes.append(1)
        for _ in range(3):
            service._note_commit()
        await asyncio.sleep(0)
        assert len(wakes) == 1
        await service.write(lambda tx: tx.now(), organization_id=world.org, is_once=False)
        await asyncio.sleep(0)
        assert len(wakes) == 2
        await asyncio.to_thread(service.close)

    asyncio.run(scenario())
