"""Fixtures of the tests of the contract: a departure, another organization, and an application with a rate limit."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api.api import Api
from support.api.client import WholeResponses
from support.receivers.stripe_ledger import Ledger, stripe
from support.world import checkouts
from support.world.world import SECRET, FixedClock, World

from booking_core.base.settings import Settings
from booking_core.db.engine import Database
from booking_server.app import create_app


@pytest.fixture
def departure(world: World, request: pytest.FixtureRequest) -> str:
    """A departure with the `SEATS` of the test's module, or with twelve."""
    return world.departure(world.experience(), seats=getattr(request.module, "SEATS", 12))


@pytest.fixture
def other_api(api: Api, new_world: Callable[..., World]) -> Api:
    """Another organization, called with its key."""
    return Api(api.client, new_world())


@pytest.fixture
def sandbox(api: Api, new_world: Callable[..., World]) -> Api:
    """A sandbox, called with a key of every scope."""
    return Api(api.client, new_world(clock_offset=0))


@pytest.fixture
def public_addresses(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each URL of a webhook leads to a public address."""
    monkeypatch.setattr(api.client.app.state.service, "is_public_address", lambda _: True)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def running() -> Iterator[Ledger]:
    """A Stripe server, which no application calls yet."""
    with stripe() as ledger:
        yield ledger


@pytest.fixture
def ledger(running: Ledger, api: Api) -> Iterator[Ledger]:
    """A Stripe that the application calls for the test's organization."""
    running.requests.clear()
    running.next_faults.clear()
    checkouts.configure(api.world)
    with checkouts.calling(api.client, running, timeout_s=1.0):
        yield running


@pytest.fixture(scope="session")
def run_app(shared_database_url: str, session_clock: FixedClock) -> Callable[..., AbstractContextManager[TestClient]]:
    """A function that runs another application on the shared database, with settings of the test's own."""

    @contextmanager
    def run(**settings: Any) -> Iterator[TestClient]:
        # Another test may have stored values in the shared database that another key sealed.
        defaults = {"secret_key": SECRET, "secret_key_check": "warn", "rate_limit": None}
        chosen: dict[str, Any] = {"database_url": shared_database_url, **defaults, **settings}
        database = Database(shared_database_url, clock=session_clock)
        with WholeResponses(create_app(Settings(**chosen), database=database)) as running:
            yield running

    return run


@pytest.fixture(scope="module")
def limited_app(
    request: pytest.FixtureRequest, run_app: Callable[..., AbstractContextManager[TestClient]]
) -> Iterator[TestClient]:
    """An application with the rate limit `LIMIT` of the test's module."""
    with run_app(rate_limit=request.module.LIMIT) as running:
        yield running
