"""The workloads: what is measured, beside which floor, and what is aimed at.

A workload brings its sides up in an `ExitStack` and gives them in order: the service, its floor, then references that
are printed but not compared. The service's databases are filled once per run and shared by the workloads.
"""

import http.client
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg

from bench import fill, floor_sql, floors, postgres
from bench.load import FRESH, Plan, Request
from bench.measure import HttpSide, PgbenchSide, Side
from bench.postgres import Postgres
from bench.processes import HOST, Server
from bench.service import EXAMPLES, Service, Shop, booking_body

CLIENTS = 32
DEPARTURES = 1280
"""Departures in all, however many organizations share them: with one organization its counter is what is contended,
not a departure."""
LISTED_BOOKINGS = 20_000
"""Bookings behind the lists. The first page costs the same however many there are; a test of the service holds that."""
ZONE = "Europe/Oslo"
DAYS = 92
FILLED = "filled"
EXAMPLE = "fjord-tours"
EXAMPLE_FROM = date(2027, 6, 1)
"""The season, when the example has most departures."""
CREATED = frozenset({"201"})


@dataclass(slots=True)
class Stage:
    """What the workloads of one run share: the database server, and databases already filled."""

    postgres: Postgres
    with_service: bool
    _open: dict[int, tuple[Service, list[Shop]]] = field(default_factory=dict)
    _lists: tuple[Service, dict[str, Shop], str] | None = None
    _floors: dict[int, str] = field(default_factory=dict)

    def shops(self, organizations: int) -> tuple[Service, list[Shop]]:
        """The service with that many organizations that sell; departures are shared out among them."""
        if organizations not in self._open:
            url = self.postgres.create_database(f"service_{organizations}")
            service = Service(url)
            self._open[organizations] = service, service.open_shops(organizations, DEPARTURES // organizations)
            postgres.settle(url)
        return self._open[organizations]

    def lists(self) -> tuple[Service, dict[str, Shop], str]:
        """The service with two organizations that are read: one filled with bookings, one with the example catalogue.

        Without the service its tables are made from their definition, and there is no key and no example.
        """
        if self._lists is None:
            url = self.postgres.create_database("lists")
            service = Service(url)
            readers: dict[str, Shop] = {}
            if self.with_service:
                readers[FILLED] = service.open_reader(FILLED)
                readers[EXAMPLE] = service.open_reader(EXAMPLE, EXAMPLES / f"{EXAMPLE}.json")
            else:
                fill.create(url, FILLED)
            fill.fill(url, FILLED, LISTED_BOOKINGS)
            postgres.settle(url)
            self._lists = service, readers, url
        return self._lists

    def floor(self, organizations: int) -> str:
        """The URL of the one-statement floor's database with that many organizations."""
        if organizations not in self._floors:
            url = self.postgres.create_database(f"floor_{organizations}")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(floor_sql.FLOOR_SCHEMA)
                each = DEPARTURES // organizations
                connection.execute(floor_sql.FILL_FLOOR.format(organizations=organizations, departures=each))
            postgres.settle(url)
            self._floors[organizations] = url
        return self._floors[organizations]


Build = Callable[[Stage, ExitStack], list[Side]]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the report. `aim` is the least ratio of ours to the floor."""

    name: str
    measures: str
    floor: str
    aim: float
    build: Build


def _me(stage: Stage, stack: ExitStack) -> list[Side]:
    sides: list[Side] = []
    if stage.with_service:
        service, readers, _ = stage.lists()
        server = stack.enter_context(service.serve())
        sides.append(_side(stage, "service", server, [readers[FILLED].get("/api/v1/me")]))
    floor = stack.enter_context(floors.serve("hello"))
    return [*sides, _side(stage, "FastAPI hello", floor, [Request("GET", "/hello")], database=False)]


def _read(slug: str, ours: str, theirs: str) -> Build:
    """A list of an organization: our path and the floor's. Both must answer with the same data."""

    def build(stage: Stage, stack: ExitStack) -> list[Side]:
        service, readers, url = stage.lists()
        if slug == EXAMPLE and not stage.with_service:
            return []
        floor = stack.enter_context(floors.serve("reads", database_url=url))
        bare = Request("GET", f"{theirs}&org={_organization(url, slug)}&zone={ZONE}")
        data = _data(floor, bare)
        side = _side(stage, "same SQL, Starlette", floor, [bare])
        if not stage.with_service:
            return [side]
        server, wanted = stack.enter_context(service.serve()), readers[slug].get(ours)
        if (answered := _data(server, wanted)) != data:
            raise RuntimeError(f"service and floor answer differently: {_difference(answered, data)}")
        return [_side(stage, "service", server, [wanted]), side]

    return build


def _bookings(limit: int) -> Build:
    return _read(FILLED, f"/api/v1/bookings?limit={limit}", f"/bookings?limit={limit}")


def _availability(slug: str, first: date) -> Build:
    last = first + timedelta(days=DAYS)
    start, end = (_midnight(day) for day in (first, last + timedelta(days=1)))
    return _read(slug, f"/api/v1/availability?from={first}&to={last}", f"/availability?from={start}&until={end}")


def _midnight(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(ZONE)).timestamp()) * 1_000_000


def _create(organizations: int, processes: int) -> Build:
    """Bookings: ours, the one statement in threads, and as references asyncpg and pgbench where they are found."""

    def build(stage: Stage, stack: ExitStack) -> list[Side]:
        sides: list[Side] = []
        if stage.with_service:
            service, shops = stage.shops(organizations)
            wanted = [request for shop in shops for request in shop.bookings()]
            sides.append(_side(stage, "service", stack.enter_context(service.serve(processes)), wanted, CREATED))
        url, same = stage.floor(organizations), _floor_bookings(organizations)
        # The floor has one process whatever the service has; the others show what a second or another driver gives it.
        variants = [("one statement, psycopg", "book_threads", 1)]
        if processes > 1:
            variants.append((f"the same, {processes} processes", "book_threads", processes))
        if floors.HAVE_ASYNCPG:
            variants.append(("one statement, asyncpg", "book_asyncpg", 1))
        for name, factory, workers in variants:
            floor = stack.enter_context(floors.serve(factory, database_url=url, processes=workers))
            sides.append(_side(stage, name, floor, same, CREATED))
        if program := stage.postgres.pgbench():
            script = floor_sql.book_pgbench(organizations, DEPARTURES // organizations)
            sides.append(PgbenchSide("pgbench", stage.postgres, program, f"floor_{organizations}", script, CLIENTS))
        return sides

    return build


def _floor_bookings(organizations: int) -> list[Request]:
    """What the floors are asked: the service's bodies, the organization named instead of proved by a key."""
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


def _side(
    stage: Stage,
    name: str,
    server: Server,
    requests: Sequence[Request],
    expected: frozenset[str] = frozenset({"200"}),
    *,
    database: bool = True,
) -> HttpSide:
    plan = Plan(server.port, requests, CLIENTS)
    return HttpSide(name, plan, server.pid, stage.postgres.pid if database else None, expected)


def _organization(url: str, slug: str) -> str:
    """The organization's id: a floor is told whose rows are wanted, and asks for no key."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT id::text FROM organizations WHERE slug = %s", [slug]).fetchone()
    assert row is not None
    return str(row[0])


def _data(server: Server, request: Request) -> list[dict[str, object]]:
    data: list[dict[str, object]] = _get(server, request)["data"]
    if not data:
        raise RuntimeError(f"{request.path} answers with an empty list: nothing would be measured")
    return data


def _get(server: Server, request: Request) -> Any:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    connection.request(request.method, request.path, headers=request.headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{request.path} answers {answer.status}: {body[:500]!r}\n{server.log.read_text()[-2000:]}")
    return json.loads(body)


def _difference(ours: list[dict[str, object]], floor: list[dict[str, object]]) -> str:
    if len(ours) != len(floor):
        return f"{len(ours)} rows, the floor {len(floor)}"
    return next(
        f"row {at}, {name}: {a.get(name)!r}, the floor {b.get(name)!r}"
        for at, (a, b) in enumerate(zip(ours, floor, strict=True))
        for name in a | b
        if a.get(name) != b.get(name)
    )


ONE_STATEMENT = "one CTE statement, Starlette, psycopg in threads, 1 process"

SAME_SQL = "same SQL + orjson, Starlette"

WORKLOADS = (
    Workload("me", "GET /me", "bare FastAPI hello", 0.4, _me),
    Workload("bookings-25", "GET /bookings?limit=25", SAME_SQL, 0.5, _bookings(25)),
    Workload("bookings-100", "GET /bookings?limit=100", SAME_SQL, 0.6, _bookings(100)),
    Workload(
        "availability",
        "GET /availability, 92 days of the example catalogue",
        SAME_SQL,
        0.5,
        _availability(EXAMPLE, EXAMPLE_FROM),
    ),
    Workload(
        "availability-5000",
        "GET /availability, 92 days, 5,000 departures",
        SAME_SQL,
        0.6,
        _availability(FILLED, fill.FIRST_DAY),
    ),
    Workload("create-64", "POST /bookings, 64 organizations, 1 process", ONE_STATEMENT, 0.6, _create(64, 1)),
    Workload("create-64-2p", "POST /bookings, 64 organizations, 2 processes", ONE_STATEMENT, 0.8, _create(64, 2)),
    Workload("create-1", "POST /bookings, 1 organization, 1 process", ONE_STATEMENT, 1.0, _create(1, 1)),
    Workload("create-1-2p", "POST /bookings, 1 organization, 2 processes", ONE_STATEMENT, 1.2, _create(1, 2)),
)
