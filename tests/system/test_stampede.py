"""The same request many times at once, by way of every process: it is carried out once."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from support.api.api import booking_body
from support.databases.databases import connect, departure_held, wait_for_lock
from support.receivers.receivers import wait_until
from support.serving.servers import PATIENT, Answer, Service, at_once, lines, new_world, posting

from booking_core.db import tables

COPIES = 20
KEYS = 20
ADA = {"email": "ada@example.com", "name": "Ada Lovelace"}


def check_one_execution(answers: Sequence[Answer]) -> bytes:
    """Check that one request was carried out and every other is its replay, byte for byte, or the refusal of a running
    one."""
    (first,) = [answer for answer in answers if answer.status == 201 and not answer.replayed]
    for answer in answers:
        if answer is first:
            continue
        if answer.replayed:
            assert (answer.status, answer.body) == (first.status, first.body)
        else:
            assert (answer.status, answer.json()["code"]) == (409, "idempotency_in_progress")
            assert answer.headers["retry-after"] == "1"
    return first.body


@pytest.mark.exhaustive(but="sqlite")
def test_twenty_bookings_at_once_with_one_key_are_one_booking(service: Service) -> None:
    with new_world(service.url) as world:
        key, body = world.key(), booking_body(world.departure(world.experience(), seats=100))
        rounds = [
            at_once(service.ports, key, [posting("/bookings", body, f"stampede-{number:04}")] * COPIES)
            for number in range(KEYS)
        ]
        bodies = {check_one_execution(answers) for answers in rounds}
        assert len(bodies) == KEYS == len(world.rows(tables.bookings)) == len(world.rows(tables.idempotency))


@pytest.mark.exhaustive(but="sqlite")
def test_twenty_concurrent_creations_of_one_customer_make_one(service: Service) -> None:
    with new_world(service.url) as world:
        asks = [posting("/customers", ADA, f"customer-{number}") for number in range(COPIES)]
        answers = at_once(service.ports, world.key(), asks)
        assert Counter(answer.status for answer in answers) == {201: 1, 200: COPIES - 1}
        assert len({answer.body for answer in answers}) == 1
        assert [event["type"] for event in world.rows(tables.events)] == ["customer.created"]


def test_processes_share_keys_in_use_and_free_them_after_a_death(mortal_service: Service) -> None:
    """The holder is stalled by a lock that somebody else keeps, before and after it dies. It would wait for it for ten
    minutes: that the key is free sooner is since the database looks whether the holder lives."""
    if mortal_service.is_sqlite:
        pytest.skip("SQLite is served by one process, whose keys end with it")
    url = mortal_service.url
    with new_world(url) as world:
        key, departure = world.key(), world.departure(world.experience())
        first, second = mortal_service.start(PATIENT).servers
        body = booking_body(departure)

        async def scene() -> None:
            async with lines([first.port, second.port], key, 2) as (to_first, to_second):
                with departure_held(url, departure):
                    stalled = asyncio.create_task(to_first.try_post("/bookings", body, "the-held-key"))
                    await asyncio.to_thread(wait_for_lock, url)
                    await asyncio.to_thread(until_keys_held, url, 1)
                    refused = await to_second.post("/bookings", body, "the-held-key")
                    assert (refused.status, refused.json()["code"]) == (409, "idempotency_in_progress")
                    assert refused.headers["retry-after"] == "1"
                    first.process.kill()
                    assert await stalled is None
                    await asyncio.to_thread(until_keys_held, url, 0)
                fresh = await to_second.post("/bookings", body, "the-held-key")
                assert (fresh.status, fresh.replayed) == (201, False)

        asyncio.run(scene())
        assert len(world.rows(tables.bookings)) == 1


def until_keys_held(url: str, count: int) -> None:
    """Returns when so many idempotency keys are held in the database."""
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with connect(url) as connection:
        wait_until(lambda: connection.execute(query).fetchone() == (count,), f"{count} keys are held")
