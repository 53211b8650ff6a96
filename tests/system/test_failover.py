"""The primary is killed or frozen while clients book, and its synchronous replica is promoted.

BOOKING_TEST_FAILOVER makes it longer: the bookings of each client after that.
"""

import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient
from support.api.api import Api, booking_body
from support.databases import databases
from support.databases.cluster import Cluster, running_cluster
from support.world.world import SECRET, FixedClock, make_world

from booking_core.base.settings import Settings
from booking_core.db import migrate
from booking_core.db.engine import Database
from booking_server.app import create_app

CLIENTS = 4
BEFORE = 10
AFTER = int(os.environ.get("BOOKING_TEST_FAILOVER", "5"))
"""Bookings of each client before and after the loss of the primary."""
_TRIES = 4000
_BOOKED = "SELECT count(*) FROM bookings WHERE id::text = ANY(%s)"


class Client:
    """Books repeatedly, and keeps the answers."""

    def __init__(self, api: Api, departure: str) -> None:
        self._api, self._body = api, booking_body(departure)
        self.acknowledged: list[str] = []
        self.booked_at_s: list[float] = []
        self.refusals: list[tuple[int, bool]] = []
        self.retries_max = 0

    def book(self, count: int) -> None:
        """Book so many; a request that is refused is sent again with its key."""
        for _ in range(count):
            key = str(uuid.uuid4())
            for retries in range(_TRIES):
                answer = self._api.post("/bookings", self._body, key=key)
                if answer.status_code == 201:
                    self.acknowledged.append(answer.json()["id"])
                    self.booked_at_s.append(time.monotonic())
                    self.retries_max = max(self.retries_max, retries)
                    break
                self.refusals.append((answer.status_code, "retry-after" in answer.headers))
                threading.Event().wait(0.05)


@pytest.mark.exhaustive(but="kill")
@pytest.mark.parametrize("harm", [Cluster.kill, Cluster.freeze])
def test_nothing_acknowledged_is_lost_when_the_primary_is_gone(
    harm: Callable[[Cluster, int], None], clock: FixedClock
) -> None:
    with running_cluster() as cluster:
        url = cluster.several("postgres")
        migrate.upgrade(url)
        database = Database(url, clock=clock)
        world = make_world(database, clock)
        departure = world.departure(world.experience(), seats=CLIENTS * (BEFORE + AFTER))
        settings = Settings(database_url=url, secret_key=SECRET, secret_key_check="warn", rate_limit=None)
        app = create_app(settings, database=database)
        with TestClient(app, raise_server_exceptions=False) as running, ThreadPoolExecutor(CLIENTS) as threads:
            clients = [Client(Api(running, world), departure) for _ in range(CLIENTS)]
            list(threads.map(lambda client: client.book(BEFORE), clients))
            going_on = [threads.submit(client.book, AFTER) for client in clients]
            harm(cluster, 0)
            cluster.promote()
            promoted_s = time.monotonic()
            for future in going_on:
                future.result()
            back_s = min(client.booked_at_s[BEFORE] for client in clients) - promoted_s
        acknowledged = [booking_id for client in clients for booking_id in client.acknowledged]
        assert len(set(acknowledged)) == CLIENTS * (BEFORE + AFTER)
        with databases.connect(cluster.url(1)) as connection:
            assert connection.execute(_BOOKED, (acknowledged,)).fetchone() == (len(acknowledged),)
    refused, retries = sum(len(client.refusals) for client in clients), max(client.retries_max for client in clients)
    print(f"{len(acknowledged)} booked, {refused} refused, at most {retries} retries, back after {back_s:.1f} s")
    assert {refusal for client in clients for refusal in client.refusals} <= {(503, True)}
