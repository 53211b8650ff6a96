"""A database whose queue is this test's own: a claim sees all of it."""

from collections.abc import Callable, Iterator

import pytest
from support.databases import databases
from support.world.hooks import Hooks
from support.world.world import FixedClock, make_world

from booking_core.db.engine import Database


@pytest.fixture(scope="session")
def queue_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    return new_database_url(backend)


@pytest.fixture(scope="session")
def queue_session(queue_url: str, session_clock: FixedClock) -> Iterator[Database]:
    opened = Database(queue_url, clock=session_clock)
    yield opened
    opened.close()


@pytest.fixture
def queue_database(queue_session: Database, queue_url: str, clock: FixedClock) -> Iterator[Database]:
    """A database with an empty queue and no endpoints, on the test's clock."""
    emptied = ("attempts", "deliveries", "webhook_secrets", "webhook_subscriptions", "webhook_endpoints")
    emptied += ("webhook_cursors", "webhook_recoveries")
    databases.run(queue_url, *(f"DELETE FROM {table}" for table in emptied))
    yield queue_session
    queue_session.observer = None


@pytest.fixture
def new_hooks(queue_database: Database, clock: FixedClock) -> Callable[..., Hooks]:
    """Makes further organizations."""
    return lambda **columns: Hooks(make_world(queue_database, clock, **columns))


@pytest.fixture
def hooks(new_hooks: Callable[..., Hooks]) -> Hooks:
    return new_hooks()


@pytest.fixture
def counted(queue_database: Database) -> list[str]:
    """The text of every statement run from here on."""
    statements: list[str] = []
    queue_database.observer = statements.append
    return statements
