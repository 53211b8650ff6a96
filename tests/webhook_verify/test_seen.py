from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from unittest.mock import Mock

import pytest

from webhook_verify import MemorySeenStore


def test_an_event_is_claimed_once_until_it_is_released() -> None:
    store = MemorySeenStore()
    assert store.claim("a", 60)
    assert not store.claim("a", 60)
    assert store.claim("b", 60)
    store.release("a")
    store.release("never claimed")
    assert store.claim("a", 60)


def test_a_claim_ends_after_its_time() -> None:
    clock = Mock(return_value=0)
    store = MemorySeenStore(clock=clock)
    store.claim("a", 60)
    clock.return_value = 59
    assert not store.claim("a", 60)
    clock.return_value = 60
    assert store.claim("a", 60)


def test_the_oldest_claim_makes_room_for_a_new_one() -> None:
    store = MemorySeenStore(max_events=2)
    for event_id in "abc":
        store.claim(event_id, 60)
    assert not store.claim("c", 60)
    assert not store.claim("b", 60)
    assert store.claim("a", 60)


def test_ended_claims_are_dropped_before_living_ones() -> None:
    clock = Mock(return_value=0)
    store = MemorySeenStore(max_events=3, clock=clock)
    store.claim("short", 1)
    store.claim("long", 60)
    clock.return_value = 5
    store.claim("new", 60)
    store.claim("newer", 60)
    assert not store.claim("long", 60)


def test_of_many_threads_one_gets_the_event() -> None:
    store, start = MemorySeenStore(), Barrier(8)

    def take(_: int) -> bool:
        start.wait()
        return store.claim("a", 60)

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(take, range(8))) == [False] * 7 + [True]


def test_a_store_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_events"):
        MemorySeenStore(max_events=0)
