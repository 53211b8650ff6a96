"""Guests with and without a history, in a database of this folder's own: deliveries are claimed for all of it."""

import math
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient
from support.api.api import Api
from support.api.client import WholeResponses
from support.databases import databases
from support.world.guests import Guests
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.app import create_app


@pytest.fixture(scope="session")
def guests_url(backend: str, new_database_url: Callable[[str], str]) -> str:
    return new_database_url(backend)


@pytest.fixture(scope="session")
def guests_app(guests_url: str, session_clock: FixedClock) -> Iterator[tuple[TestClient, Database]]:
    database = Database(guests_url, clock=session_clock)
    settings = Settings(database_url=guests_url, secret_key=SECRET, rate_limit=None)
    with WholeResponses(create_app(settings, database=database, flush_s=math.inf)) as client:
        yield client, database
    database.close()


@pytest.fixture
def guests(guests_url: str, guests_app: tuple[TestClient, Database], clock: FixedClock) -> Guests:
    client, database = guests_app
    emptied = ("attempts", "deliveries", "webhook_subscriptions", "webhook_cursors")
    emptied += ("webhook_endpoints",)
    databases.run(guests_url, "DELETE FROM webhook_secrets", *(f"DELETE FROM {table}" for table in emptied))
    return Guests(Api(client, make_world(database, clock)), guests_url)


@pytest.fixture
def filled(guests: Guests) -> Guests:
    guests.fill()
    return guests
