"""Booking under load on PostgreSQL."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench import floor_sql, floors
from bench.load import FRESH, Request
from bench.measure import RATE, Entry, Goal, HttpSide
from bench.service import booking_body
from bench.stage import DEPARTURES, Stage

CREATED = frozenset({"201"})
ONE_STATEMENT = "one CTE statement, Starlette, psycopg in threads"


@dataclass(frozen=True, slots=True)
class Creating:
    """Start the service, and the one statement in threads of one process."""

    organizations: int

    def __call__(self, stage: Stage, stack: ExitStack) -> Sequence[HttpSide]:
        service, shops = stage.shops(self.organizations)
        requests = [request for shop in shops for request in shop.bookings()]
        server = stack.enter_context(service.serve())
        floor = stack.enter_context(floors.serve("book", database_url=stage.floor(self.organizations)))
        return [
            HttpSide.of("service", server, requests, CREATED, database=stage.postgres),
            HttpSide.of("one statement", floor, self._floor_requests(), CREATED, database=stage.postgres),
        ]

    def _floor_requests(self) -> list[Request]:
        """Return the service's bodies, with the organization's id instead of a key."""
        return [
            Request(
                "POST",
                "/bookings",
                {"x-org": floor_sql.numbered_id(organization), "Idempotency-Key": FRESH},
                json.dumps(booking_body(floor_sql.numbered_id(departure), departure)),
            )
            for organization in range(1, self.organizations + 1)
            for departure in range(1, DEPARTURES // self.organizations + 1)
        ]


ENTRIES = (
    Entry("create-64", "POST /bookings, 64 organizations", ONE_STATEMENT, (Goal(RATE, 0.6),), Creating(64)),
    Entry("create-1", "POST /bookings, 1 organization", ONE_STATEMENT, (Goal(RATE, 1.0),), Creating(1)),
)
