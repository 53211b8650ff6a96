"""A rush: 500 clients request the same departure at the same moment, and 300 get a seat."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.load import Plan, Result, drive_in_process
from bench.measure import Goal, Reading, Sides, Timing, entry
from bench.processes import Server
from bench.service import Service, Shop, booking_body
from bench.stage import Stage

CLIENTS = 500
SEATS = 300
OUTCOMES = {"201": SEATS, "409": CLIENTS - SEATS}
DEPARTURES = 64
"""A departure for each round of a run, for any number of rounds."""
LONGEST_S = 60.0
DECIDED = "last answer ms"


def crowds(server: Server, shop: Shop) -> Iterator[Plan]:
    """Yield a rush for each departure of the shop."""
    for departure in shop.departures:
        requests = [shop.post("/api/v1/bookings", booking_body(departure, guest)) for guest in range(CLIENTS)]
        yield Plan(server.port, requests, CLIENTS, 0.0, LONGEST_S, max_requests=CLIENTS)


def unexpected(result: Result) -> list[str]:
    """Return the failures of a rush."""
    return [f"answered {result.statuses} instead of {OUTCOMES}"] if result.statuses != OUTCOMES else []


@entry("rush", f"{CLIENTS} clients, one departure of {SEATS} seats", Goal(DECIDED, at_most=350, is_ratio=False))
def rush(stage: Stage, stack: ExitStack) -> Sides:
    service = Service(stage.postgres.create_database("rush"))
    shop = service.open_shop(DEPARTURES, seats=SEATS)
    plans = crowds(stack.enter_context(service.serve()), shop)

    def take(_: Timing) -> Reading:
        result = drive_in_process(next(plans))
        return Reading({DECIDED: result.last_ms}, unexpected(result))

    take(Timing(0.0, 0.0))  # everything is loaded once
    return {"service": take}


ENTRIES = (rush,)
