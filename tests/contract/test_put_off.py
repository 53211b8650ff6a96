"""Two organizations in one batch, and somebody who has the numbers of one of them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from support.api import Api
from support.databases import departure_held, is_sqlite, numbers_held
from support.world import World


def test_a_deferred_booking_is_answered_when_the_counters_are_free(
    api: Api, new_world: Callable[..., World], shared_database_url: str
) -> None:
    if is_sqlite(shared_database_url):
        pytest.skip("SQLite has one writer: nobody has numbers while it writes")
    late = Api(api.client, new_world())
    first, free = (api.world.departure(api.world.experience(), seats=9) for _ in range(2))
    waited_for = late.world.departure(late.world.experience(), seats=9)
    with ThreadPoolExecutor(3) as clients:
        with numbers_held(shared_database_url, late.world.org):
            with departure_held(shared_database_url, first):  # until both of the next batch wait
                _begun(api, clients.submit, api.book, first)
                put_off: Future[httpx.Response] = clients.submit(late.book, waited_for)
                _wait_for(api, 1)
                booked = clients.submit(api.book, free)
                _wait_for(api, 2)
            assert booked.result(timeout=30).status_code == 201
            assert not put_off.done()
        answer = put_off.result(timeout=30)
    assert (answer.status_code, answer.json()["booking_number"]) == (201, 1)


def _begun(api: Api, submit: Callable[..., object], *work: object) -> None:
    """Submit the work, and wait until a thread has begun it."""
    begun = threading.Event()
    api.world.database.observer = lambda _: begun.set()
    submit(*work)
    assert begun.wait(timeout=30)
    api.world.database.observer = None


def _wait_for(api: Api, count: int) -> None:
    """Wait until this many requests are queued for the batch executor of creates."""
    executor = api.client.app.state.service._creations  # type: ignore[attr-defined]
    while executor._waiting.qsize() != count:
        pass
