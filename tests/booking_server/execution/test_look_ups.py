"""Look-ups of names that hang for one organization hold no other's."""

import asyncio
import threading

from support.world import SECRET

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.execution.service import Service


def test_names_that_hang_for_one_organization_leave_threads_to_another(shared_database_url: str) -> None:
    running, begun, free = 0, threading.Semaphore(0), threading.Event()

    def hang() -> bool:
        nonlocal running
        running += 1
        begun.release()
        assert free.wait(30)
        return True

    async def scenario() -> list[bool]:
        settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn")
        service = Service(settings, Database(shared_database_url))
        hanging = [asyncio.ensure_future(service.look_up(hang, organization_id="offender")) for _ in range(30)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=30)
        answers = [await service.look_up(lambda: True, organization_id="neighbour") for _ in range(10)]
        assert not any(each.done() for each in hanging)
        assert running == 2
        free.set()
        assert all(await asyncio.gather(*hanging))
        await asyncio.to_thread(service.close)
        return answers

    assert asyncio.run(scenario()) == [True] * 10
