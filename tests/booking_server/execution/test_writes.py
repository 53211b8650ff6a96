"""Writes of one organization that wait for a locked row leave threads to the others."""

import asyncio
import threading
from typing import Any

import pytest
from support.databases import departure_held
from support.world import SECRET, World

from booking_core import bookings
from booking_core.db import postgres
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable
from booking_core.settings import Settings
from booking_server.execution.service import Service


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
