"""Booking under load."""

import json
from collections.abc import Sequence
from contextlib import ExitStack

from bench import floor_sql, floors
from bench.kinds import Workload
from bench.load import FRESH, Request
from bench.measure import HttpSide
from bench.service import booking_body
from bench.stage import CLIENTS, DEPARTURES, Stage

CREATED = frozenset({"201"})
ENDPOINTS = 2
"""For each organization: every booking causes four deliveries."""
ONE_STATEMENT = "one CTE statement, Starlette, psycopg in threads, 1 process"


class Creating:
    """Return the sides for bookings: the service, and the one statement in threads of one process."""

    def __init__(self, organizations: int, processes: int, *, clients: int = CLIENTS) -> None:
        self._organizations = organizations
        self._processes = processes
        self._clients = clients

    def __call__(self, stage: Stage, stack: ExitStack) -> list[HttpSide]:
        service, shops = stage.shops(self._organizations, ENDPOINTS)
        wanted = [request for shop in shops for request in shop.bookings()]
        server = stack.enter_context(service.serve(self._processes))
        floor = stack.enter_context(floors.serve("book", database_url=stage.floor(self._organizations)))
        bookings = _floor_bookings(self._organizations)
        return [
            stage.side("service", server, wanted, CREATED, clients=self._clients),
            stage.side("one statement, psycopg", floor, bookings, CREATED, clients=self._clients),
        ]


def _floor_bookings(organizations: int) -> Sequence[Request]:
    """Return the floors' requests: the service's bodies, with the organization's id instead of a key."""
    return [
        Request(
            "POST",
            "/bookings",
            {"x-org": floor_sql.numbered_id(organization), "Idempotency-Key": FRESH},
            json.dumps(booking_body(floor_sql.numbered_id(departure), departure)),
        )
        for organization in range(1, organizations + 1)
        for departure in range(1, DEPARTURES // organizations + 1)
    ]


ENTRIES = (
    Workload("create-64", "POST /bookings, 64 organizations, 1 process", ONE_STATEMENT, 0.6, Creating(64, 1)),
    Workload("create-64-2p", "POST /bookings, 64 organizations, 2 processes", ONE_STATEMENT, 0.9, Creating(64, 2)),
    Workload("create-1", "POST /bookings, 1 organization, 1 process", ONE_STATEMENT, 1.1, Creating(1, 1)),
    Workload(
        "create-alone", "POST /bookings, 64 organizations, 1 client", ONE_STATEMENT, 0.25, Creating(64, 1, clients=1)
    ),
)
