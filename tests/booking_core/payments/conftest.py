"""A database for the tests of a module: a claim takes the due rows of every organization."""

from collections.abc import Callable, Iterator

import pytest
from support.money import Till, till_of
from support.world import FixedClock

from booking_core.db.engine import Database


@pytest.fixture(scope="module")
def module_database(
    backend: str, new_database_url: Callable[[str], str], session_clock: FixedClock
) -> Iterator[Database]:
    database = Database(new_database_url(backend), clock=session_clock)
    yield database
    database.close()


@pytest.fixture
def till(module_database: Database, clock: FixedClock) -> Iterator[Till]:
    with till_of(module_database, clock) as made:
        yield made


@pytest.fixture
def statements_run(till: Till) -> list[str]:
    """The text of every statement run in the database, from here on."""
    seen: list[str] = []
    till.world.database.observer = seen.append
    return seen
