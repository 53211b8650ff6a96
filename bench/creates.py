"""Booking under load."""

import json
from collections.abc import Sequence
from contextlib import ExitStack

from bench import floor_sql, floors
from bench.kinds import Workload
from bench.load import FRESH, Request
from bench.measure import HttpSide, PgbenchSide, Side
from bench.service import booking_body
from bench.stage import CLIENTS, DEPARTURES, Stage

CREATED = frozenset({"201"})
ENDPOINTS = 2
"""For each organization by default: every booking causes four deliveries."""
ONE_STATEMENT = "one CTE statement, Starlette, psycopg in threads, 1 process"


class Creating:
    """Return the sides for bookings: ours, the one statement in threads, and pgbench as a reference if it is found."""

    def __init__(
        self, organizations: int, processes: int, endpoints: int = ENDPOINTS, *, clients: int = CLIENTS
    ) -> None:
        self._organizations = organizations
        self._processes = processes
        self._endpoints = endpoints
        self._clients = clients

    def __call__(self, stage: Stage, stack: ExitStack) -> list[Side]:
        sides: list[Side] = list(self.served(stage, stack))
        if self._processes > 1:
            # The floor has one process even if the service has more; this side shows the gain of a second process.
            sides.append(self._floor(stage, stack, f"the same, {self._processes} processes", "book_threads"))
        if program := stage.postgres.pgbench():
            script = floor_sql.book_pgbench(self._organizations, DEPARTURES // self._organizations)
            stage.floor(self._organizations)
            database = f"floor_{self._organizations}"
            sides.append(PgbenchSide("pgbench", stage.postgres, program, database, script, self._clients))
        return sides

    def served(self, stage: Stage, stack: ExitStack) -> list[HttpSide]:
        """Return our side, if the service takes part, and the floor."""
        ours = []
        if stage.with_service:
            service, shops = stage.shops(self._organizations, self._endpoints)
            wanted = [request for shop in shops for request in shop.bookings()]
            server = stack.enter_context(service.serve(self._processes))
            ours = [stage.side("service", server, wanted, CREATED, clients=self._clients)]
        return [*ours, self._floor(stage, stack, "one statement, psycopg", "book_threads", 1)]

    def _floor(self, stage: Stage, stack: ExitStack, name: str, factory: str, processes: int | None = None) -> HttpSide:
        url = stage.floor(self._organizations)
        server = floors.serve(factory, database_url=url, processes=processes or self._processes)
        bookings = _floor_bookings(self._organizations)
        return stage.side(name, stack.enter_context(server), bookings, CREATED, clients=self._clients)


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
