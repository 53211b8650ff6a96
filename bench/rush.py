"""A rush: 500 clients request the same departure at the same moment, and 300 get a seat."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.load import Plan, drive_in_process
from bench.measure import Entry, Goal, Reading, Timing
from bench.processes import Server
from bench.service import Service, Shop, booking_body
from bench.stage import Stage

CLIENTS = 500
SEATS = 300
DEPARTURES = 64
"""A departure for each round of a run, for any number of rounds."""
GIVE_UP_S = 60.0
DECIDED = "last answer ms"
OUTCOMES = {"201": SEATS, "409": CLIENTS - SEATS}


@dataclass(frozen=True, slots=True)
class Rush:
    """A service with departures of 300 seats. Each round is a crowd for one of them."""

    name: str
    server: Server
    shop: Shop
    departures: Iterator[str]

    def take(self, timing: Timing) -> Reading:
        departure = next(self.departures)
        requests = [self.shop.post("/api/v1/bookings", booking_body(departure, guest)) for guest in range(CLIENTS)]
        plan = Plan(self.server.port, requests, CLIENTS, 0.0, GIVE_UP_S, max_requests=CLIENTS)
        result = drive_in_process(plan)
        failures = [f"answered {result.statuses} instead of {OUTCOMES}"] if result.statuses != OUTCOMES else []
        return Reading({DECIDED: result.last_ms}, tuple(failures))


def build(stage: Stage, stack: ExitStack) -> Sequence[Rush]:
    service = Service(stage.postgres.create_database("rush"))
    (shop,) = service.open_shops(1, DEPARTURES, seats=SEATS)
    server = stack.enter_context(service.serve())
    rush = Rush("service", server, shop, iter(shop.departures))
    rush.take(Timing(0.0, 0.0))  # everything is loaded once
    return [rush]


ENTRIES = (
    Entry(
        "rush",
        f"{CLIENTS} clients, one departure of {SEATS} seats",
        "",
        (Goal(DECIDED, at_most=350, is_ratio=False),),
        build,
    ),
)
