"""The followers of feeds, in a separate process: `python -m bench.followers`, which `feed.py` starts.

It imports little, so that they follow soon after its start.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from bench.load import content_length, percentile
from bench.processes import HOST, answer_caller

POLL_S = 0.2
"""The pause of a follower that has read everything."""


@dataclass(frozen=True, slots=True)
class Followers:
    """The arguments of the process: a follower for each key reads the feed `since` an instant, and to its end after
    `until_s`."""

    port: int
    api_keys: Sequence[str]
    since: str
    until_s: float


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of the process. A lag is the time from the sending of a booking to its event at one follower."""

    lag_p99_ms: float
    events: int
    """Events of different bookings, over all followers."""


async def _follow(task: Followers, api_key: str) -> dict[str, float | None]:
    """Return the lag of the first event of each booking; None for those that were sent before the first page's end."""
    reader, writer = await asyncio.open_connection(HOST, task.port, limit=1 << 20)
    lags: dict[str, float | None] = {}
    cursor, end_s = "", float("inf")
    while True:
        path = f"/api/v1/events?order=asc&limit=100&created_since={quote(task.since)}{cursor}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {api_key}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        page, now = orjson.loads(await reader.readexactly(content_length(head))), time.time()
        for event in page["data"]:
            if event["resource_type"] == "booking":
                sent_s = int(event["data"]["object"]["note"][:16], 16) / 1e9
                lags.setdefault(event["resource_id"], now - sent_s if sent_s > end_s else None)
        cursor = f"&starting_after={page['resume_cursor']}"
        if not page["has_more"]:
            if now > task.until_s:
                writer.close()
                return lags
            end_s = min(end_s, now)
            await asyncio.sleep(POLL_S)


async def _follow_all(arguments: dict[str, Any]) -> Followed:
    task = Followers(**arguments)
    everything = await asyncio.gather(*(_follow(task, api_key) for api_key in task.api_keys))
    lags = sorted(lag for lags in everything for lag in lags.values() if lag is not None)
    return Followed(percentile(lags, 0.99) * 1e3, sum(map(len, everything)))


if __name__ == "__main__":
    answer_caller(_follow_all)
