"""Fixtures of the tests of the contract: a departure, and an application with a rate limit."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.world import SECRET, World

from booking_core.base.settings import RateLimit, Settings
from booking_core.db.engine import Database
from booking_server.app import create_app


@pytest.fixture
def departure(world: World) -> str:
    return world.departure(world.experience(), seats=12)


@pytest.fixture(scope="module")
def limited_app(
    request: pytest.FixtureRequest, shared_database_url: str, session_database: Database
) -> Iterator[TestClient]:
    """An application with the rate limit `LIMIT` of the test's module."""
    limit: RateLimit = request.module.LIMIT
    settings = Settings(database_url=shared_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=limit)
    database = Database(shared_database_url, clock=session_database.now_parameter)  # type: ignore[arg-type]
    with TestClient(create_app(settings, database=database), raise_server_exceptions=False) as running:
        yield running
