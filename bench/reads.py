"""Lists and availability under load, beside the same SQL by hand."""

from contextlib import ExitStack
from datetime import timedelta
from itertools import zip_longest
from typing import Any

from bench import floors
from bench.fill import FIRST_DAY, ZONE, midnight
from bench.load import Request
from bench.measure import RATE, Entry, Goal, Sides, entry, under_load
from bench.processes import Server
from bench.service import answer
from bench.stage import Stage


def listing(name: str, measures: str, ratio: float, path: str, floor_path: str) -> Entry:
    """Make the entry of a list of the filled organization: our path and the floor's answer with the same data."""

    @entry(name, measures, Goal(RATE, ratio))
    def build(stage: Stage, stack: ExitStack) -> Sides:
        service, reader = stage.lists()
        floor = stack.enter_context(floors.serve("reads", service.database_url))
        bare = Request("GET", f"{floor_path}&org={reader.id}&zone={ZONE}")
        server, request = stack.enter_context(service.serve()), reader.get(path)
        compare(_data(server, request), _data(floor, bare))
        return {
            "service": under_load(server, [request], database=stage.postgres),
            "same SQL, Starlette": under_load(floor, [bare], database=stage.postgres),
        }

    return build


def bookings(limit: int, ratio: float) -> Entry:
    path = f"/bookings?limit={limit}"
    return listing(f"bookings-{limit}", f"GET {path}", ratio, f"/api/v1{path}", path)


def availability(name: str, days: int, ratio: float) -> Entry:
    last = FIRST_DAY + timedelta(days - 1)
    path = f"/api/v1/availability?from={FIRST_DAY}&to={last}"
    floor_path = f"/availability?from={midnight(FIRST_DAY)}&until={midnight(last + timedelta(1))}"
    return listing(name, f"GET /availability, days: {days}", ratio, path, floor_path)


def _data(server: Server, request: Request) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = answer(server, request)["data"]
    if not data:
        raise RuntimeError(f"{request.path} answers with an empty list: nothing would be measured")
    return data


def compare(answer: list[dict[str, Any]], floor: list[dict[str, Any]]) -> None:
    """Raise if service and floor answer differently: a floor with other answers is not a floor."""
    for row, (a, b) in enumerate(zip_longest(answer, floor, fillvalue={})):
        if a != b:
            names = [name for name in a | b if a.get(name) != b.get(name)]
            raise RuntimeError(f"service and floor answer differently in row {row}, {names}:\n{a}\n{b}")


ENTRIES = (
    bookings(25, 0.75),
    bookings(100, 0.95),
    availability("availability-25", 1, 0.75),
    availability("availability-100", 4, 0.95),
)
