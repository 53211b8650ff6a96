"""A rush: 500 clients request the same departure at the same moment, and 300 get a seat."""

from contextlib import ExitStack

from bench.load import Plan, drive_in_process
from bench.measure import Goal, Reading, Sides, Take, Timing, entry
from bench.processes import Server
from bench.service import Service, Shop, booking_body
from bench.stage import Stage

CLIENTS = 500
SEATS = 300
DEPARTURES = 64
"""A departure for each round of a run, for any number of rounds."""
GIVE_UP_S = 60.0
DECIDED = "last answer ms"


def rushing(server: Server, shop: Shop, clients: int = CLIENTS, seats: int = SEATS) -> Take:
    """Return the side that sends a crowd to the next departure of the shop, which has that many seats."""
    departures, outcomes = iter(shop.departures), {"201": seats, "409": clients - seats}

    def take(_: Timing) -> Reading:
        departure = next(departures)
        requests = [shop.post("/api/v1/bookings", booking_body(departure, guest)) for guest in range(clients)]
        result = drive_in_process(Plan(server.port, requests, clients, 0.0, GIVE_UP_S, max_requests=clients))
        failures = [f"answered {result.statuses} instead of {outcomes}"] if result.statuses != outcomes else []
        return Reading({DECIDED: result.last_ms}, failures)

    return take


@entry("rush", f"{CLIENTS} clients, one departure of {SEATS} seats", Goal(DECIDED, at_most=350, is_ratio=False))
def rush(stage: Stage, stack: ExitStack) -> Sides:
    service = Service(stage.postgres.create_database("rush"))
    (shop,) = service.open_shops(1, DEPARTURES, seats=SEATS)
    take = rushing(stack.enter_context(service.serve()), shop)
    take(Timing(0.0, 0.0))  # everything is loaded once
    return {"service": take}


ENTRIES = (rush,)
