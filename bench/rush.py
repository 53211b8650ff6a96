"""A rush: 500 clients request the same departure at the same moment, and 300 get a seat."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench.kinds import Figure, Promise, Reading
from bench.measure import Timing
from bench.processes import HOST, ROOT
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
    """The result of that process: the time from the first request sent to each response, and the responses."""

    median_ms: float
    last_ms: float
    outcomes: dict[str, int]
    """By status and code; a refusal for lack of seats has the number of seats left."""
    busy: float
    """The share of a core that the crowd used."""


class Rushing:
    """A service with departures of 300 seats, and a crowd for one departure after the other."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def __call__(self, stage: Stage, stack: ExitStack) -> Callable[[Timing], Reading] | None:
        if not stage.with_service:
            return None
        service = Service(stage.postgres.create_database(f"rush_{self._processes}"))
        (shop,) = service.open_shops(1, DEPARTURES, seats=SEATS)
        server = stack.enter_context(service.serve(self._processes))
        departures = iter(shop.departures)
        rush(Rush(server.port, shop.authorization["Authorization"], next(departures)))  # everything is loaded once

        def take(_: Timing) -> Reading:
            return _read(rush(Rush(server.port, shop.authorization["Authorization"], next(departures))))

        return take


def _read(seen: Seen) -> Reading:
    wanted = {"201": SEATS, "409 insufficient_capacity, 0 left": CLIENTS - SEATS}
    failures = () if seen.outcomes == wanted else (f"answered {seen.outcomes} instead of {wanted}",)
    return Reading({"decided": seen.last_ms, "median": seen.median_ms, "crowd": seen.busy * 100}, failures)


def rush(wanted: Rush) -> Seen:
    """Run the crowd in a separate process."""
    child = subprocess.run(
        [sys.executable, "-m", "bench.rush"],
        cwd=ROOT,
        input=json.dumps(asdict(wanted)).encode(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=GIVE_UP_S + 30,
        check=True,
    )
    return Seen(**json.loads(child.stdout))


async def _rushed(wanted: Rush) -> Seen:
    lines = [await asyncio.open_connection(HOST, wanted.port) for _ in range(CLIENTS)]
    requests = [_request(wanted, number) for number in range(CLIENTS)]
    began, spent = time.perf_counter(), time.process_time()
    for (_, writer), request in zip(lines, requests, strict=True):
        writer.write(request)
    answers = await asyncio.wait_for(asyncio.gather(*(_answer(reader) for reader, _ in lines)), GIVE_UP_S)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - spent
    for _, writer in lines:
        writer.close()
    times = sorted(at - began for at, _ in answers)
    outcomes = Counter(outcome for _, outcome in answers)
    return Seen(times[len(times) // 2] * 1e3, times[-1] * 1e3, dict(outcomes), cpu_s / wall_s)


def _request(wanted: Rush, number: int) -> bytes:
    body = json.dumps(booking_body(wanted.departure, number)).encode()
    head = (
        f"POST /api/v1/bookings HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {wanted.authorization}\r\n"
        f"Idempotency-Key: {uuid.uuid4()}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[float, str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    body = json.loads(await reader.readexactly(length))
    status = head.split(" ", 2)[1]
    outcome = status if status == "201" else f"{status} {body.get('code')}, {body.get('seats_available')} left"
    return time.perf_counter(), outcome


def main() -> None:
    """Read the rush from stdin, and write the result to stdout."""
    import uvloop

    json.dump(asdict(uvloop.run(_rushed(Rush(**json.load(sys.stdin))))), sys.stdout)


FIGURES = (
    Figure("decided", "ms", at_most=300),
    Figure("median", "ms"),
    Figure("crowd", "% of a core"),
)

ENTRIES = (
    Promise("rush", "500 clients, one departure of 300 seats, 1 process", FIGURES, Rushing(1)),
    Promise("rush-2p", "the same, 2 processes", FIGURES, Rushing(2)),
)

if __name__ == "__main__":
    main()
