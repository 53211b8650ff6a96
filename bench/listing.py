"""Listing with the SDK, beside bare httpx and beside other vendors' SDKs, each against canned answers of its own shape.

Every side asks for 25 objects over one kept connection and reads a field of the last. The bytes come from a server
that does nothing else, so that what is compared is the client's own work; the way there and back is in all of them.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

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
    """Return a page of bookings, as the service responds."""
    rows = Rows(
        "00000000-0000-4000-8000-000000000001", Amounts(COUNT, departures=5), seed=b"bench", until_s=1_800_000_000
    )
    data = [json.loads(rows.shown(number)) for number in range(COUNT, 0, -1)]
    return json.dumps({"data": data, "has_more": True, "next_cursor": "v1." + "x" * 120}, separators=(",", ":"))


def _charges() -> str:
    """Stripe's: payments are the nearest it has to bookings."""
    data = [
        {
            "id": f"pi_{number:024}",
            "object": "payment_intent",
            "amount": 178000,
            "currency": "nok",
            "created": 1_800_000_000 + number,
            "status": "succeeded",
            "customer": f"cus_{number:014}",
            "description": "Arrives by the early ferry, needs a large life vest.",
            "metadata": {"booking": str(number), "departure": f"dep_{number:024}"},
            "receipt_email": f"guest{number}@example.com",
            "shipping": {"name": f"Guest {number}", "phone": "+4790000000", "address": None},
            "amount_details": {"tip": {}},
            "payment_method_types": ["card"],
            "livemode": False,
            "amount_received": 178000,
            "capture_method": "automatic",
            "latest_charge": f"ch_{number:024}",
        }
        for number in range(COUNT)
    ]
    return json.dumps({"object": "list", "url": "/v1/payment_intents", "has_more": True, "data": data})


def _files() -> str:
    """OpenAI's: of its lists one with plain records."""
    data = [
        {
            "id": f"file-{number:024}",
            "object": "file",
            "bytes": 178000,
            "created_at": 1_800_000_000 + number,
            "expires_at": 1_900_000_000,
            "filename": f"Arrives by the early ferry {number}.jsonl",
            "purpose": "batch",
            "status": "processed",
            "status_details": None,
        }
        for number in range(COUNT)
    ]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return json.dumps({"object": "list", "data": data, "has_more": True, **ends})


def _messages() -> str:
    """Svix's: the messages of an application, with a payload of about a booking."""
    data = [
        {
            "id": f"msg_{number:027}",
            "eventId": f"evt_{number}",
            "eventType": "booking.created",
            "channels": None,
            "tags": None,
            "timestamp": "2026-12-01T10:00:00Z",
            "payload": {"booking": number, "note": "Arrives by the early ferry.", "total": 178000, "currency": "NOK"},
        }
        for number in range(COUNT)
    ]
    return json.dumps({"data": data, "done": False, "iterator": "iterator_1", "prevIterator": None})


BOOKINGS = _bookings()

_BODIES = {
    "/api/v1/bookings": BOOKINGS,
    "/v1/payment_intents": _charges(),
    "/files": _files(),
    "/api/v1/app/app_1/msg": _messages(),
}


def build(stage: Stage, stack: ExitStack) -> Sequence[Contender]:
    server = stack.enter_context(canned.served(_BODIES))
    base, calls = f"http://{HOST}:{server.port}", QUICK_CALLS if stage.quick else CALLS
    listers = {
        "booking_sdk": _ours(base, stack),
        "httpx + json": _bare(base, stack),
        "stripe": _stripe(base),
        "openai": _openai(base, stack),
        "svix": _svix(base),
    }
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


def _stripe(base: str) -> Callable[[], object]:
    import stripe

    client: Any = stripe.StripeClient("sk_test_bench", base_addresses={"api": base})
    return lambda: client.v1.payment_intents.list({"limit": COUNT}).data[-1].id


def _openai(base: str, stack: ExitStack) -> Callable[[], object]:
    import openai

    client = stack.enter_context(openai.OpenAI(api_key="sk-bench", base_url=base))
    return lambda: client.files.list(limit=COUNT).data[-1].id


def _svix(base: str) -> Callable[[], object]:
    from svix.api import MessageListOptions, Svix, SvixOptions

    client = Svix("testsk_bench", SvixOptions(server_url=base))
    return lambda: client.message.list("app_1", MessageListOptions(limit=COUNT)).data[-1].id


ENTRIES = (Cost("sdk-list", "booking_sdk, list of 25 bookings", "httpx and json", "µs", 2.2, build, times=2),)
