"""Reading under load: the caller's identity, lists and availability."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Any

from bench import floors
from bench.fill import FIRST_DAY, ZONE, midnight
from bench.load import Request
from bench.measure import RATE, Entry, Goal, HttpSide
from bench.processes import Server
from bench.service import answer
from bench.stage import Stage

SAME_SQL = "the same SQL + orjson, Starlette"


def me(stage: Stage, stack: ExitStack) -> Sequence[HttpSide]:
    service, reader = stage.lists()
    server, floor = stack.enter_context(service.serve()), stack.enter_context(floors.serve("hello"))
    return [
        HttpSide.of("service", server, [reader.get("/api/v1/me")], database=stage.postgres),
        HttpSide.of("FastAPI hello", floor, [Request("GET", "/hello")]),
    ]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of the filled organization: our path and the floor's. Both must answer with the same data."""

    ours: str
    theirs: str

    def __call__(self, stage: Stage, stack: ExitStack) -> Sequence[HttpSide]:
        service, reader = stage.lists()
        floor = stack.enter_context(floors.serve("reads", database_url=service.database_url))
        bare = Request("GET", f"{self.theirs}&org={reader.id}&zone={ZONE}")
        server, request = stack.enter_context(service.serve()), reader.get(self.ours)
        compare(_data(server, request), _data(floor, bare))
        return [
            HttpSide.of("service", server, [request], database=stage.postgres),
            HttpSide.of("same SQL, Starlette", floor, [bare], database=stage.postgres),
        ]


def bookings(limit: int) -> Listing:
    return Listing(f"/api/v1/bookings?limit={limit}", f"/bookings?limit={limit}")


def availability(days: int) -> Listing:
    last = FIRST_DAY + timedelta(days - 1)
    start, end = midnight(FIRST_DAY), midnight(last + timedelta(1))
    return Listing(f"/api/v1/availability?from={FIRST_DAY}&to={last}", f"/availability?from={start}&until={end}")


def _data(server: Server, request: Request) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = answer(server, request)["data"]
    if not data:
        raise RuntimeError(f"{request.path} answers with an empty list: nothing would be measured")
    return data


def compare(ours: list[dict[str, Any]], floor: list[dict[str, Any]]) -> None:
    """Raise if service and floor answer differently: a floor with other answers is not a floor."""
    for row, (a, b) in enumerate(zip_longest(ours, floor, fillvalue={})):
        if a != b:
            names = [name for name in a | b if a.get(name) != b.get(name)]
            raise RuntimeError(f"service and floor answer differently in row {row}, {names}:\n{a}\n{b}")


ENTRIES = (
    Entry("me", "GET /me", "bare FastAPI hello", (Goal(RATE, 0.45),), me),
    Entry("bookings-25", "GET /bookings?limit=25", SAME_SQL, (Goal(RATE, 0.75),), bookings(25)),
    Entry("bookings-100", "GET /bookings?limit=100", SAME_SQL, (Goal(RATE, 0.95),), bookings(100)),
    Entry("availability-25", "GET /availability, a day", SAME_SQL, (Goal(RATE, 0.75),), availability(1)),
    Entry("availability-100", "GET /availability, four days", SAME_SQL, (Goal(RATE, 0.95),), availability(4)),
)
