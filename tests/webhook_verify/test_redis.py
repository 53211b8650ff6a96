"""Seen events in Redis: claimed by one process, remembered when handled, and free again when the process died."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from webhook_verify import DuplicateEvent, EventInProgress, Verifier
from webhook_verify.redis import RedisSeenStore


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Any]:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_url, decode_responses=request.param) as client:
        yield client
        client.flushall()


def test_an_event_is_in_progress_until_it_is_completed(client: Any) -> None:
    store, other = RedisSeenStore(client), RedisSeenStore(client)
    assert store.claim("a", 60)
    for each_store in (store, other):
        with pytest.raises(EventInProgress) as refused:
            each_store.claim("a", 60)
        assert refused.value.event_id == "a"
    assert other.claim("b", 60)
    store.complete("a", 60)
    assert not store.claim("a", 60)
    assert not other.claim("a", 60)


def test_a_released_event_can_be_claimed_again(client: Any) -> None:
    store, other = RedisSeenStore(client), RedisSeenStore(client)
    store.claim("a", 60)
    store.release("a")
    store.release("never claimed")
    assert other.claim("a", 60)


def test_claims_and_handled_events_expire(client: Any) -> None:
    store = RedisSeenStore(client, prefix="receiver:", lease=90)
    store.claim("a", 86_400)
    assert 89_000 < client.pttl("receiver:a") <= 90_000
    store.complete("a", 86_400)
    assert 86_399_000 < client.pttl("receiver:a") <= 86_400_000


def test_a_late_release_leaves_the_claim_of_another_process(client: Any) -> None:
    late, other = RedisSeenStore(client), RedisSeenStore(client)
    late.claim("a", 60)
    client.delete("webhook:a")  # the lease has ended
    other.claim("a", 60)
    late.release("a")
    with pytest.raises(EventInProgress):
        late.claim("a", 60)


def test_of_many_processes_one_claims_the_event(client: Any) -> None:
    start = Barrier(8)

    def take(_: int) -> bool:
        start.wait()
        try:
            return RedisSeenStore(client).claim("a", 60)
        except EventInProgress:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(take, range(8))) == [False] * 7 + [True]


def test_a_verifier_reports_the_state_of_an_event(
    client: Any, secret: str, now: int, body: bytes, headers: dict[str, str]
) -> None:
    verifier = Verifier(secret, clock=lambda: now, seen=RedisSeenStore(client))
    delivery = verifier.verify(body, headers)
    with pytest.raises(EventInProgress):
        verifier.verify(body, headers)
    verifier.settle(delivery, succeeded=False)
    delivery = verifier.verify(body, headers)
    verifier.settle(delivery, succeeded=True)
    with pytest.raises(DuplicateEvent):
        verifier.verify(body, headers)


def test_a_lease_without_time_is_refused() -> None:
    with pytest.raises(ValueError, match="lease"):
        RedisSeenStore(None, lease=0)
