"""A database of each test's own, whose clock the test moves."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.world.world import FixedClock, World, make_world

from booking_core.db.engine import Database


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def database(fresh_database_url: str, clock: FixedClock) -> Iterator[Database]:
    with closing(Database(fresh_database_url, clock=clock)) as database:
        yield database


@pytest.fixture
def world(database: Database, clock: FixedClock) -> World:
    return make_world(database, clock)
