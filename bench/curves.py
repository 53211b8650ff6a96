"""Curves of throughput and latency under a growing number of clients, rows, organizations or endpoints."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from bench import creates, reads
from bench.kinds import Curve, Level
from bench.measure import HttpSide, Side
from bench.stage import Stage

CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK_CLIENTS = (1, 16, 256)


def by_clients(build: Callable[[Stage, ExitStack], Sequence[HttpSide]]) -> Callable[[Stage, ExitStack], Level | None]:
    """Return the sides of a workload, which stay up, under ever more clients."""

    def started(stage: Stage, stack: ExitStack) -> Level | None:
        sides = build(stage, stack)
        if not sides:
            return None
        return lambda clients, _: [replace(side, plan=replace(side.plan, clients=clients)) for side in sides]

    return started


def by_bookings(stage: Stage, stack: ExitStack) -> Level | None:
    """Lists of an organization with ever more bookings, for one client, so that nobody waits for anybody."""
    if not stage.with_service:
        return None

    def sides(bookings: int, here: ExitStack) -> Sequence[Side]:
        service, reader, _ = stage.many(bookings)
        assert reader is not None
        server = here.enter_context(service.serve())
        paths = {"first page": "", "confirmed ones": "&status=confirmed", "oldest first": "&order=asc"}
        return [
            _alone(stage, stage.side(name, server, [reader.get(f"/api/v1/bookings?limit=25{query}")]))
            for name, query in paths.items()
        ]

    return sides


def by_shops(shops: Callable[[int], tuple[int, int]]) -> Callable[[Stage, ExitStack], Level | None]:
    """Bookings, where a level says how many organizations there are, and how many endpoints each of them has."""

    def started(stage: Stage, stack: ExitStack) -> Level | None:
        if not stage.with_service:
            return None

        def sides(level: int, here: ExitStack) -> Sequence[Side]:
            service, opened = stage.shops(*shops(level))
            wanted = [request for shop in opened for request in shop.bookings()]
            side = stage.side("32 clients", here.enter_context(service.serve()), wanted, creates.CREATED)
            return [_alone(stage, side), side]

        return sides

    return started


def _alone(stage: Stage, side: HttpSide) -> HttpSide:
    """Return the side for one client, which also counts the statements of a request."""
    name = "1 client" if side.name == "32 clients" else side.name
    return replace(side, name=name, plan=replace(side.plan, clients=1), counted_by=stage.postgres)


ENTRIES = (
    Curve(
        "curve-create",
        "POST /bookings, 64 organizations",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(creates.Creating(64, 1).served),
        is_plotted=True,
    ),
    Curve(
        "curve-list",
        "GET /bookings?limit=25",
        "clients",
        CLIENTS,
        QUICK_CLIENTS,
        by_clients(reads.bookings(25)),
        is_plotted=True,
    ),
    Curve(
        "growth-bookings",
        "GET /bookings?limit=25, 1 client",
        "bookings",
        (1_000, 10_000, 100_000, 1_000_000),
        (1_000, 10_000),
        by_bookings,
    ),
    Curve(
        "growth-organizations",
        "POST /bookings",
        "organizations",
        (1, 10, 100, 1_000),
        (1, 10),
        by_shops(lambda organizations: (organizations, 0)),
    ),
    Curve(
        "growth-endpoints",
        "POST /bookings, 1 organization",
        "endpoints",
        (1, 2, 5, 10),
        (1, 10),
        by_shops(lambda endpoints: (1, endpoints)),
    ),
)
