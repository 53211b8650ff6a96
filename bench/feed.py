"""The feed: followers at its end while bookings commit at a given rate."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote

import orjson
import uvloop

from bench.load import FRESH, Plan, content_length, drive_in_process, percentile, sent_at
from bench.measure import Goal, Reading, Sides, Timing, entry
from bench.processes import HOST, beside
from bench.service import Service, Shop
from bench.stage import Stage

FOLLOWERS = 50
BOOKINGS_A_SECOND = 200
READY_S = 2.0
"""The time until all followers are at the end of the feed. The rate before that does not count."""
LONGER = 2.0
"""The length as a multiple of a run under load."""
TAIL_S = 1.0
"""The time after the last booking until the followers read to the end."""
POLL_S = 0.2
"""The pause of a follower that has read everything."""
DEPARTURES = 64
LAG = "lag p99 ms"
WRITTEN = frozenset({"201", "unsent"})
"""A booking is not sent if all 32 connections wait for answers."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of all followers. A lag is the time from the sending of a booking to its event at one of them."""

    lag_p99_ms: float
    events: int
    """Events of different bookings."""


@entry(
    "feed",
    f"{FOLLOWERS} followers of GET /events while {BOOKINGS_A_SECOND} bookings a second commit, 2 processes",
    Goal(LAG, at_most=450, is_ratio=False),
)
def feed(stage: Stage, stack: ExitStack) -> Sides:
    service = Service(stage.postgres.create_database("feed"))
    shop = service.open_shop(DEPARTURES)
    server = stack.enter_context(service.serve(processes=2))
    plan = Plan(server.port, shop.bookings(note=FRESH), rate=BOOKINGS_A_SECOND)

    def take(timing: Timing) -> Reading:
        duration_s = timing.duration_s * LONGER
        with following(server.port, [shop] * FOLLOWERS, READY_S + duration_s + TAIL_S) as result:
            written = drive_in_process(replace(plan, warmup_s=READY_S, duration_s=duration_s))
            followed = result()
        missed = FOLLOWERS * written.statuses.get("201", 0) - followed.events
        failures = [f"{missed} events did not reach a follower"] if missed else []
        return Reading(
            {LAG: followed.lag_p99_ms, "bookings/s": written.throughput}, [*failures, *written.failures(WRITTEN)]
        )

    take(Timing(0.0, 0.5))  # everything is loaded once
    return {"service": take}


def following(port: int, shops: Sequence[Shop], duration_s: float) -> AbstractContextManager[Callable[[], Followed]]:
    """Follow the feed of each shop from now on, in another process, and to its end after that time."""
    return beside(_follow_in_loop, port, [shop.api_key for shop in shops], time.time(), duration_s)


def _follow_in_loop(port: int, api_keys: Sequence[str], began_at: float, duration_s: float) -> Followed:
    return uvloop.run(_follow_all(port, api_keys, began_at, duration_s))


async def _follow_all(port: int, api_keys: Sequence[str], began_at: float, duration_s: float) -> Followed:
    since = datetime.fromtimestamp(began_at, UTC).isoformat(timespec="milliseconds")
    path = f"/api/v1/events?order=asc&limit=100&created_since={quote(since)}"
    lags_of_all = await asyncio.gather(*(_follow(port, path, key, began_at + duration_s) for key in api_keys))
    lags = sorted(lag for lags in lags_of_all for lag in lags.values() if lag is not None)
    return Followed(percentile(lags, 0.99) * 1e3, sum(map(len, lags_of_all)))


async def _follow(port: int, path: str, api_key: str, until_s: float) -> dict[str, float | None]:
    """Return the lag of the first event of each booking; None if it was sent before the first page's end."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 20)
    lags: dict[str, float | None] = {}
    cursor, end_s = "", float("inf")
    while True:
        request = f"GET {path}{cursor} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {api_key}\r\n\r\n"
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        page, now = orjson.loads(await reader.readexactly(content_length(head))), time.time()
        for event in page["data"]:
            if event["resource_type"] == "booking":
                sent_s = sent_at(event["data"]["object"]["note"])
                lags.setdefault(event["resource_id"], now - sent_s if sent_s > end_s else None)
        cursor = f"&starting_after={page['resume_cursor']}"
        if not page["has_more"]:
            if now > until_s:
                writer.close()
                return lags
            end_s = min(end_s, now)
            await asyncio.sleep(POLL_S)


ENTRIES = (feed,)
