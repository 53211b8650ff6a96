"""A booking whose organization's numbers another transaction has waits, and the others do not wait with it."""

from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from support.api.api import Api
from support.databases.databases import is_sqlite, numbers_held


def test_a_deferred_booking_is_answered_when_the_counters_are_free(
    api: Api, theirs: Api, shared_database_url: str
) -> None:
    if is_sqlite(shared_database_url):
        pytest.skip("SQLite has one writer: no other transaction has numbers while it writes")
    free = api.world.departure(api.world.experience(), seats=9)
    waited_for = theirs.world.departure(theirs.world.experience(), seats=9)
    creations = api.client.app.state.service.creations  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as clients:
        with numbers_held(shared_database_url, theirs.world.org):
            put_off: Future[httpx.Response] = clients.submit(theirs.book, waited_for)
            while not creations.locked.count(theirs.world.org):
                pass
            assert api.book(free).status_code == 201
            assert not put_off.done()
        answer = put_off.result(timeout=30)
    assert (answer.status_code, answer.json()["booking_number"]) == (201, 1)
