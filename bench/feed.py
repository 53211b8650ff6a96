"""The feed: 50 followers at its end while bookings commit at a given rate, and the effect of each on the other."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson

from bench.kinds import Figure, Promise, Reading
from bench.line import Line
from bench.load import percentile
from bench.measure import Timing
from bench.processes import answer_caller, run_apart
from bench.service import Service, booking_body
from bench.stage import Stage

FOLLOWERS = 50
BOOKINGS_A_SECOND = 200
WRITERS = 32
POLL_S = 0.2
"""The pause of a follower that has read everything, in seconds."""
LONGER = 2.0
"""The factor to the length of a run under load: a follower needs some time to reach the end."""
TAIL_S = 2.0
"""Seconds after the last booking for the followers to read it."""
DEPARTURES = 64
GIVE_UP_S = 120.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """The arguments of the process of the followers and the writers."""

    port: int
    authorization: str
    departures: Sequence[str]
    followers: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of that process. A lag is the time from a booking's response to its event at one follower."""

    refused: int
    rate: float
    lag_p99_ms: float
    missed: int
    """Missing events of bookings, over all followers."""
    busy: float
    """The share of a core that the process used."""


def build(stage: Stage, stack: ExitStack) -> Callable[[Timing], Reading]:
    service = Service(stage.postgres.create_database("feed"))
    (shop,) = service.open_shops(1, DEPARTURES)
    server = stack.enter_context(service.serve(2))
    key = shop.authorization["Authorization"]

    def run(followers: int, seconds: float) -> Seen:
        wanted = Crowd(server.port, key, shop.departures, followers, seconds)
        return Seen(**run_apart("bench.feed", wanted, GIVE_UP_S))

    run(1, 0.5)  # everything is loaded once

    def take(timing: Timing) -> Reading:
        seconds = timing.duration_s * LONGER
        return _read(run(0, seconds), run(FOLLOWERS, seconds))

    return take


def _read(alone: Seen, followed: Seen) -> Reading:
    failures = [f"{seen.refused} bookings were refused" for seen in (alone, followed) if seen.refused]
    if followed.missed:
        failures.append(f"{followed.missed} events did not reach a follower")
    figures = {
        "lag, p99": followed.lag_p99_ms,
        "writers keep": followed.rate / alone.rate * 100,
        "crowd": followed.busy * 100,
    }
    return Reading(figures, tuple(failures))


# In that process -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Day:
    """The bookings and events of a run."""

    wanted: Crowd
    began: float
    pace: Iterator[int]
    made: dict[str, float] = field(default_factory=dict)
    """The time of each booking's response."""
    refused: int = 0
    seen_by: list[dict[str, float]] = field(default_factory=list)
    """For each follower, the time when it got each booking's event."""

    @property
    def ends(self) -> float:
        return self.began + self.wanted.duration_s


async def _write(day: _Day, number: int) -> None:
    line = await Line.open(day.wanted.port, day.wanted.authorization)
    departures = day.wanted.departures
    body = json.dumps(booking_body(departures[number % len(departures)], number)).encode()
    for turn in day.pace:
        due = day.began + turn / BOOKINGS_A_SECOND
        if due >= day.ends:
            return
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        status, answer = await line.post("/api/v1/bookings", body)
        if status != 201:
            day.refused += 1
            continue
        day.made[orjson.loads(answer)["id"]] = time.perf_counter()


async def _follow(day: _Day, since: str) -> None:
    line, cursor = await Line.open(day.wanted.port, day.wanted.authorization), ""
    seen: dict[str, float] = {}
    day.seen_by.append(seen)
    while time.perf_counter() < day.ends + TAIL_S:
        after = f"&starting_after={cursor}" if cursor else ""
        status, body = await line.get(f"/api/v1/events?order=asc&limit=100&created_since={quote(since)}{after}")
        if status != 200:
            raise RuntimeError(f"the feed answers {status}: {body[:300]!r}")
        at, page = time.perf_counter(), orjson.loads(body)
        for event in page["data"]:
            seen.setdefault(event["resource_id"], at)
        cursor = page["resume_cursor"]
        if not page["has_more"]:
            await asyncio.sleep(POLL_S)


async def _day(raw: dict[str, Any]) -> Seen:
    wanted = Crowd(**raw)
    since = datetime.now(UTC).isoformat(timespec="milliseconds")
    day = _Day(wanted, time.perf_counter(), iter(range(1_000_000_000)))
    spent = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(wanted.followers):
            group.create_task(_follow(day, since))
        for number in range(WRITERS):
            group.create_task(_write(day, number))
    return _seen(day, time.process_time() - spent, time.perf_counter() - day.began)


def _seen(day: _Day, cpu_s: float, wall_s: float) -> Seen:
    last = max(day.made.values())
    lags = sorted(max(0.0, seen[id_] - at) for seen in day.seen_by for id_, at in day.made.items() if id_ in seen)
    return Seen(
        refused=day.refused,
        rate=len(day.made) / (last - day.began),
        lag_p99_ms=percentile(lags, 0.99) * 1e3 if lags else 0.0,
        missed=len(day.seen_by) * len(day.made) - len(lags),
        busy=cpu_s / wall_s,
    )


FIGURES = (
    Figure("lag, p99", "ms", at_most=400),
    Figure("writers keep", "% of their rate", at_least=80),
    Figure("crowd", "% of a core"),
)

ENTRIES = (
    Promise("feed", "50 followers of GET /events while 200 bookings a second commit, 2 processes", FIGURES, build),
)

if __name__ == "__main__":
    answer_caller(_day)
