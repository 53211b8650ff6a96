"""Connections that are lent, reused and bounded."""

from contextlib import ExitStack
from typing import Any, cast

import pytest

from booking_core.base.errors import Unavailable
from booking_core.db import engine
from booking_core.db.engine import Pool


class Idle:
    """A connection that is never used."""

    broken = was_closed_by_server = False

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def make_pool(size: int) -> tuple[Pool, list[Idle]]:
    opened: list[Idle] = []

    def connect() -> Any:
        opened.append(Idle())
        return opened[-1]

    return Pool("test", size, connect), opened


def test_a_pool_lends_no_more_than_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POOL_TIMEOUT_S", 0)
    pool, opened = make_pool(2)
    with ExitStack() as stack:
        lent = [stack.enter_context(pool.connection()) for _ in range(2)]
        assert (pool.in_use, cast(list[Any], lent)) == (2, opened)
        with pytest.raises(Unavailable), pool.connection():
            pass
    assert pool.in_use == 0


def test_a_block_that_raises_returns_its_connection() -> None:
    pool, opened = make_pool(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), pool.connection():
            raise ZeroDivisionError
    assert (pool.in_use, len(opened)) == (0, 1)


def test_the_connection_that_was_returned_last_is_lent_first() -> None:
    pool, opened = make_pool(2)
    with pool.connection() as first:
        with pool.connection() as second:
            pass
        with pool.connection() as again:
            assert again is second
    with pool.connection() as again:
        assert again is first
    assert len(opened) == 2


def test_a_broken_connection_is_closed_and_another_one_opened() -> None:
    pool, opened = make_pool(1)
    with pool.connection():
        opened[0].broken = True
    with pool.connection():
        pass
    assert [each.is_closed for each in opened] == [True, False]


def test_a_closed_pool_closes_what_is_returned_to_it() -> None:
    pool, opened = make_pool(1)
    with pool.connection():
        pool.close()
        assert not opened[0].is_closed
    assert opened[0].is_closed
