"""Reading under load: the caller's identity, lists, availability, and a page deep in a list."""

from contextlib import ExitStack
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bench import fill, floors
from bench.asking import answer
from bench.filling import DAYS, FIRST_DAY
from bench.kinds import Workload
from bench.load import Request
from bench.measure import HttpSide, Side
from bench.processes import Server
from bench.service import Shop
from bench.stage import EXAMPLE, FILLED, Stage, organization

ZONE = "Europe/Oslo"
EXAMPLE_FROM = date(2027, 6, 1)
"""The season, when the example has most departures."""
SAME_SQL = "same SQL + orjson, Starlette"
FIRST_PAGE = "/api/v1/bookings?limit=100"
DEEP_PAGE = 5_000
"""The number of pages of 100 bookings; with fewer rows, the page in the middle."""


def me(stage: Stage, stack: ExitStack) -> list[Side]:
    service, readers, _ = stage.lists()
    server, floor = stack.enter_context(service.serve()), stack.enter_context(floors.serve("hello"))
    return [
        stage.side("service", server, [readers[FILLED].get("/api/v1/me")]),
        stage.side("FastAPI hello", floor, [Request("GET", "/hello")], database=False),
    ]


class Listing:
    """A list of an organization: our path and the floor's. Both must answer with the same data."""

    def __init__(self, slug: str, ours: str, theirs: str) -> None:
        self._slug = slug
        self._ours = ours
        self._theirs = theirs

    def __call__(self, stage: Stage, stack: ExitStack) -> list[HttpSide]:
        service, readers, url = stage.lists()
        floor = stack.enter_context(floors.serve("reads", database_url=url))
        bare = Request("GET", f"{self._theirs}&org={organization(url, self._slug)}&zone={ZONE}")
        server, wanted = stack.enter_context(service.serve()), readers[self._slug].get(self._ours)
        compare(_data(server, wanted), _data(floor, bare))
        return [stage.side("service", server, [wanted]), stage.side("same SQL, Starlette", floor, [bare])]


def bookings(limit: int) -> Listing:
    return Listing(FILLED, f"/api/v1/bookings?limit={limit}", f"/bookings?limit={limit}")


def availability(slug: str, first: date) -> Listing:
    last = first + timedelta(days=DAYS)
    start, end = (_midnight(day) for day in (first, last + timedelta(days=1)))
    return Listing(slug, f"/api/v1/availability?from={first}&to={last}", f"/availability?from={start}&until={end}")


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000


# Deep in a list --------------------------------------------------------------------------------------------------


def deep(stage: Stage, stack: ExitStack) -> list[Side]:
    """Return the deep page and its floor."""
    server, _, below, booking = _deep_page(stage, stack)
    _, _, url = stage.many()
    floor = stack.enter_context(floors.serve("reads", database_url=url))
    before = f"before={fill.created_at(url, FILLED, booking)}&id={booking}"
    bare = Request("GET", f"/bookings?limit=100&org={organization(url, FILLED)}&zone={ZONE}&{before}")
    compare(_data(server, below), _data(floor, bare))
    return [stage.side("service, deep", server, [below]), stage.side("same SQL, deep", floor, [bare])]


def deep_as_first(stage: Stage, stack: ExitStack) -> list[Side]:
    """Return the deep page and the first page."""
    server, reader, below, _ = _deep_page(stage, stack)
    first = reader.get(FIRST_PAGE)
    return [stage.side("service, deep", server, [below]), stage.side("service, first page", server, [first])]


def _deep_page(stage: Stage, stack: ExitStack) -> tuple[Server, Shop, Request, str]:
    """Return the service, its reader, the request of the deep page and the last booking before it.

    Cursors are signed, so the pages have to be read.
    """
    service, reader, _ = stage.many()
    server = stack.enter_context(service.serve())
    page = answer(server, reader.get(FIRST_PAGE))
    for _ in range(min(DEEP_PAGE, stage.many_bookings // 200) - 1):
        page = answer(server, _after(reader, page))
    return server, reader, _after(reader, page), page["data"][-1]["id"]


def _after(reader: Shop, page: dict[str, Any]) -> Request:
    return reader.get(f"{FIRST_PAGE}&starting_after={page['next_cursor']}")


# Comparison of answers -------------------------------------------------------------------------------------------


def _data(server: Server, request: Request) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = answer(server, request)["data"]
    if not data:
        raise RuntimeError(f"{request.path} answers with an empty list: nothing would be measured")
    return data


def compare(ours: list[dict[str, Any]], floor: list[dict[str, Any]]) -> None:
    """Raise if service and floor answer differently: a floor with other answers is not a floor."""
    if ours == floor:
        return
    if len(ours) != len(floor):
        raise RuntimeError(f"service and floor answer differently: {len(ours)} rows, the floor {len(floor)}")
    different = next(
        f"row {at}, {name}: {a.get(name, 'missing')!r}, the floor {b.get(name, 'missing')!r}"
        for at, (a, b) in enumerate(zip(ours, floor, strict=True))
        for name in a | b
        if name not in a or name not in b or a[name] != b[name]
    )
    raise RuntimeError(f"service and floor answer differently: {different}")


ENTRIES = (
    Workload("me", "GET /me", "bare FastAPI hello", 0.45, me),
    Workload("bookings-25", "GET /bookings?limit=25", SAME_SQL, 0.75, bookings(25)),
    Workload("bookings-100", "GET /bookings?limit=100", SAME_SQL, 0.95, bookings(100)),
    Workload(
        "availability",
        "GET /availability, 92 days of the example catalogue",
        SAME_SQL,
        0.85,
        availability(EXAMPLE, EXAMPLE_FROM),
    ),
    Workload(
        "availability-5000",
        "GET /availability, 92 days, 5,000 departures",
        SAME_SQL,
        1.0,
        availability(FILLED, FIRST_DAY),
    ),
    Workload("deep", "GET /bookings?limit=100, page 5,000 of a million rows", SAME_SQL, 0.6, deep),
    Workload("deep-as-first", "the same page", "the first page, by the service itself", 0.9, deep_as_first),
)
