"""Fixtures for the SDK against the service and against respx; helpers are in `sdk_support`."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import respx

from booking_sdk import AsyncBookingClient, BookingClient

sys.path.insert(0, str(Path(__file__).parent))

from sdk_support.blocking import blocking
from sdk_support.routed import KEY, URL, ClientOf, Clients, Wire, WireOf


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the environment variables that a client reads."""
    proxies = [write(f"{kind}_proxy") for kind in ("http", "https", "all") for write in (str.lower, str.upper)]
    for name in ("BOOKING_API_KEY", "BOOKING_BASE_URL", "BOOKING_WEBHOOK_SECRET", *proxies):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def quick_collections() -> None:
    """Leave the objects of earlier modules out of garbage collections: each would search all of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Provide an event loop for one test."""
    with asyncio.Runner() as running:
        yield running


@pytest.fixture(params=["sync", "async"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Parametrize a test with the sync and the async client."""
    return str(request.param)


@pytest.fixture
def client_of(flavour: str, runner: asyncio.Runner) -> Iterator[ClientOf]:
    """Make clients of either flavour on the machine's clock, `client_of(url, **options)`, and close them."""
    clients: list[Any] = []

    def make(url: str, **options: Any) -> Any:
        kind = BookingClient if flavour == "sync" else AsyncBookingClient
        clients.append(blocking(kind(**{"api_key": KEY, "base_url": url, **options}), runner))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def connect(flavour: str, runner: asyncio.Runner) -> Iterator[Clients]:
    """Make clients of either flavour with their own connections, which respx answers, and close them."""
    clients = Clients(flavour, runner)
    yield clients
    clients.close()


@pytest.fixture
def wire(connect: Clients) -> Iterator[WireOf]:
    """Answer requests of any path with a list of responses, `wire(answers)`; the last one is repeated."""
    with respx.mock(base_url=URL, assert_all_called=False) as router:
        yield lambda answers: Wire(router.route(), connect, answers)
