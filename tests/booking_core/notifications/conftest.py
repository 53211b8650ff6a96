"""A database for this test alone: the mails of all organizations are written and sent together."""

from collections.abc import Callable, Iterator

import pytest
from support import databases
from support.mails import Mails
from support.world import FixedClock, World

from booking_core.db.engine import Database


@pytest.fixture(scope="session")
def mail_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    return new_database_url(backend)


@pytest.fixture(scope="session")
def mail_session(mail_url: str, session_clock: FixedClock) -> Iterator[Database]:
    opened = Database(mail_url, clock=session_clock)
    yield opened
    opened.close()


@pytest.fixture
def database(mail_session: Database, mail_url: str, clock: FixedClock) -> Database:
    """A database without pending mails, on the test's clock."""
    databases.run(mail_url, "DELETE FROM mails", "DELETE FROM effects")
    return mail_session


@pytest.fixture
def mails(world: World) -> Mails:
    return Mails(world)
