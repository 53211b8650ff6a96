"""The feed: followers at its end while bookings commit at a given rate."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime

from bench.followers import Followed, Followers
from bench.load import FRESH, Plan, drive_in_process
from bench.measure import Goal, Reading, Sides, Timing, entry
from bench.processes import run_apart
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
DEPARTURES = 64
GIVE_UP_S = 120.0
LAG = "lag p99 ms"
WRITTEN = frozenset({"201", "unsent"})
"""A booking is not sent if all 32 connections wait for answers."""


def follow(port: int, shops: Sequence[Shop], duration_s: float) -> Followed:
    """Follow the feed of each shop from now on, in another process."""
    now = time.time()
    since = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    task = Followers(port, [shop.api_key for shop in shops], since, now + duration_s)
    return Followed(**run_apart("bench.followers", task, duration_s + GIVE_UP_S))


@entry(
    "feed",
    f"{FOLLOWERS} followers of GET /events while {BOOKINGS_A_SECOND} bookings a second commit, 2 processes",
    Goal(LAG, at_most=450, is_ratio=False),
)
def feed(stage: Stage, stack: ExitStack) -> Sides:
    service = Service(stage.postgres.create_database("feed"))
    (shop,) = service.open_shops(1, DEPARTURES)
    server = stack.enter_context(service.serve(processes=2))
    plan = Plan(server.port, shop.bookings(note=FRESH), rate=BOOKINGS_A_SECOND)

    def take(timing: Timing) -> Reading:
        duration_s = timing.duration_s * LONGER
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(follow, server.port, [shop] * FOLLOWERS, READY_S + duration_s + TAIL_S)
            written = drive_in_process(replace(plan, warmup_s=READY_S, duration_s=duration_s))
            followed = result.result()
        missed = FOLLOWERS * written.statuses.get("201", 0) - followed.events
        failures = [f"{missed} events did not reach a follower"] if missed else []
        failures += [f"{count} × {status}" for status, count in written.statuses.items() if status not in WRITTEN]
        return Reading({LAG: followed.lag_p99_ms, "bookings/s": written.throughput}, failures)

    take(Timing(0.0, 0.5))  # everything is loaded once
    return {"service": take}


ENTRIES = (feed,)
