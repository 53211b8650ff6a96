"""Listing with the SDK, compared with bare httpx, with canned answers.

Each side requests 25 objects over one kept connection and reads a field of the last. A minimal server sends the bytes,
so the difference is the client's work; all sides include the round trip.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench import canned
from bench.filling import Amounts, Rows
from bench.kinds import Contender, Cost
from bench.processes import HOST
from bench.stage import Stage

COUNT = 25
CALLS = 200
QUICK_CALLS = 50
API_KEY = f"svc_{'0' * 40}"


def _bookings() -> str:
    """Return a page of bookings, like the service's response."""
    rows = Rows(
        "00000000-0000-4000-8000-000000000001", Amounts(COUNT, departures=5), seed=b"bench", until_s=1_800_000_000
    )
    data = [json.loads(rows.shown(number)) for number in range(COUNT, 0, -1)]
    return json.dumps({"data": data, "has_more": True, "next_cursor": "v1." + "x" * 120}, separators=(",", ":"))


BODIES = {"/api/v1/bookings": _bookings()}


def build(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    server = stack.enter_context(canned.served(BODIES))
    base, calls = f"http://{HOST}:{server.port}", QUICK_CALLS if stage.quick else CALLS
    listers = {"booking_sdk": _ours(base, stack), "httpx + json": _bare(base, stack)}
    return [Contender(name, lambda lister=lister: _per_call_us(lister, calls)) for name, lister in listers.items()]  # type: ignore[misc]


def _per_call_us(call: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def _ours(base: str, stack: ExitStack) -> Callable[[], object]:
    from booking_sdk import BookingClient

    client = stack.enter_context(BookingClient(API_KEY, base_url=base))
    return lambda: client.bookings.list(limit=COUNT).data[-1].id


def _bare(base: str, stack: ExitStack) -> Callable[[], object]:
    import httpx

    client = stack.enter_context(httpx.Client(base_url=base, headers={"Authorization": f"Bearer {API_KEY}"}))
    return lambda: json.loads(client.get("/api/v1/bookings", params={"limit": COUNT}).content)["data"][-1]["id"]


ENTRIES = (Cost("sdk-list", "booking_sdk, list of 25 bookings", "httpx and json", "µs", 2.2, build, times=2),)
