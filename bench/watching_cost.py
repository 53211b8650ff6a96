"""Measures what metrics cost a booking: the CPU of one process with and without them, alternating in one run.

`python -m bench.metrics_cost` books in the process itself, 32 requests at a time, on an SQLite file; with
BOOKING_DATABASE_URL, on that database, which must be a migrated one of its own.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from booking_core.db import migrate
from booking_core.db.engine import Database, Tx
from booking_core.settings import Settings
from booking_server.app import create_app
from booking_server.execution import executor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.api import booking_body
from support.world import SECRET, FixedClock, World, make_world

ROUNDS = 400
REQUESTS = 64
AT_ONCE = 32


@contextlib.contextmanager
def _without_metrics(app: Any) -> Iterator[None]:
    """Count nothing while the body runs."""
    lanes = app.state.service.executors
    observers = [lane.observe for lane in lanes]
    observe_request, tally = _middleware(app)._observe, Tx.tally
    for lane in lanes:
        lane.observe = executor._ignore
    _middleware(app)._observe = None
    Tx.tally = lambda *_: None  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for lane, observer in zip(lanes, observers, strict=True):
            lane.observe = observer
        _middleware(app)._observe = observe_request
        Tx.tally = tally  # type: ignore[method-assign]


def _middleware(app: Any) -> Any:
    layer = app.middleware_stack
    while not hasattr(layer, "_observe"):
        layer = layer.app
    return layer


async def _cpu_s(client: httpx.AsyncClient, world: World, departure: str, name: str) -> float:
    """Return the CPU seconds of one booking."""
    key = {"Authorization": f"Bearer {world.key()}"}
    body = booking_body(departure)
    places = asyncio.Semaphore(AT_ONCE)

    async def book(number: int) -> None:
        async with places:
            headers = key | {"Idempotency-Key": f"{name}-{number:08}"}
            assert (await client.post("/api/v1/bookings", json=body, headers=headers)).status_code == 201

    begun_s = time.process_time()
    await asyncio.gather(*map(book, range(REQUESTS)))
    return (time.process_time() - begun_s) / REQUESTS


async def _measure(url: str) -> tuple[list[float], list[float]]:
    database = Database(url, clock=(clock := FixedClock()))
    app = create_app(Settings(database_url=url, secret_key=SECRET, rate_limit=None), database=database)
    world = make_world(database, clock)
    departure = world.departure(world.experience(), seats=1_000_000)
    with_s: list[float] = []
    without_s: list[float] = []
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await _cpu_s(client, world, departure, "first-round")
        for number in range(ROUNDS):
            if number % 4 in (1, 2):  # so that neither is always the later one, in a database that grows
                with_s.append(await _cpu_s(client, world, departure, f"with-{number}"))
            else:
                with _without_metrics(app):
                    without_s.append(await _cpu_s(client, world, departure, f"without-{number}"))
    return with_s, without_s


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("BOOKING_DATABASE_URL") or f"sqlite:///{folder}/booking.db"
        migrate.upgrade(url)
        with_s, without_s = asyncio.run(_measure(url))
    with_us, without_us = (statistics.median(each) * 1e6 for each in (with_s, without_s))
    # Rounds that follow each other are compared, since what else runs on the machine changes slowly.
    ratios = [after / before for after, before in zip(with_s, without_s, strict=True)]
    share = (statistics.median(ratios) - 1) * 100
    print(f"a booking costs {without_us:.1f} us of CPU without metrics, {with_us:.1f} us with them: {share:+.1f} %")


if __name__ == "__main__":
    main()
