"""A rush: 500 clients request the same departure at the same moment, and 300 get a seat."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.kinds import Figure, Promise, Reading
from bench.line import Line
from bench.measure import Timing
from bench.processes import answer_caller, run_apart
from bench.service import Service, booking_body
from bench.stage import Stage

CLIENTS = 500
SEATS = 300
DEPARTURES = 64
"""A departure for each round of a run, for any number of rounds."""
GIVE_UP_S = 60.0


@dataclass(frozen=True, slots=True)
class Rush:
    """The arguments of the crowd's process."""

    port: int
    authorization: str
    departure: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of that process: the time from the first request sent to the last response, and the responses."""

    last_ms: float
    outcomes: dict[str, int]
    """By status and code; a refusal for lack of seats has the number of seats left."""
    busy: float
    """The share of a core that the crowd used."""


class Rushing:
    """A service with departures of 300 seats, and a crowd for one departure after the other."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def __call__(self, stage: Stage, stack: ExitStack) -> Callable[[Timing], Reading]:
        service = Service(stage.postgres.create_database(f"rush_{self._processes}"))
        (shop,) = service.open_shops(1, DEPARTURES, seats=SEATS)
        server = stack.enter_context(service.serve(self._processes))
        departures = iter(shop.departures)

        def rush() -> Seen:
            wanted = Rush(server.port, shop.authorization["Authorization"], next(departures))
            return Seen(**run_apart("bench.rush", wanted, GIVE_UP_S + 30))

        rush()  # everything is loaded once
        return lambda _: _read(rush())


def _read(seen: Seen) -> Reading:
    wanted = {"201": SEATS, "409 insufficient_capacity, 0 left": CLIENTS - SEATS}
    failures = () if seen.outcomes == wanted else (f"answered {seen.outcomes} instead of {wanted}",)
    return Reading({"decided": seen.last_ms, "crowd": seen.busy * 100}, failures)


async def _rushed(raw: dict[str, Any]) -> Seen:
    wanted = Rush(**raw)
    lines = [await Line.open(wanted.port, wanted.authorization) for _ in range(CLIENTS)]
    bodies = [json.dumps(booking_body(wanted.departure, number)).encode() for number in range(CLIENTS)]
    began, spent = time.perf_counter(), time.process_time()
    asked = (_asked(line, body) for line, body in zip(lines, bodies, strict=True))
    answers = await asyncio.wait_for(asyncio.gather(*asked), GIVE_UP_S)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - spent
    outcomes = Counter(outcome for _, outcome in answers)
    return Seen((max(at for at, _ in answers) - began) * 1e3, dict(outcomes), cpu_s / wall_s)


async def _asked(line: Line, body: bytes) -> tuple[float, str]:
    status, answer = await line.post("/api/v1/bookings", body)
    at = time.perf_counter()
    if status == 201:
        return at, "201"
    refusal = json.loads(answer)
    return at, f"{status} {refusal.get('code')}, {refusal.get('seats_available')} left"


FIGURES = (
    Figure("decided", "ms", at_most=300),
    Figure("crowd", "% of a core"),
)

ENTRIES = (
    Promise("rush", "500 clients, one departure of 300 seats, 1 process", FIGURES, Rushing(1)),
    Promise("rush-2p", "the same, 2 processes", FIGURES, Rushing(2)),
)

if __name__ == "__main__":
    answer_caller(_rushed)
