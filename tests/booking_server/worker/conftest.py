"""An organization that is alone in its database, since a worker and its jobs serve every organization."""

from collections.abc import Iterator

import pytest
from support.world.world import FixedClock, World, make_world

from booking_core.db.engine import Database


@pytest.fixture
def alone(fresh_database_url: str, clock: FixedClock) -> Iterator[World]:
    database = Database(fresh_database_url, clock=clock)
    yield make_world(database, clock)
    database.close()
