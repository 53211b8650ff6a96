"""The loop for comparison with a worker: the worker's client sends requests to the sink as fast as it can.

It signs nothing, reads nothing from a database and records nothing.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from bench.processes import HOST, answer_caller, run_apart
from booking_core.base.settings import Settings
from booking_server.adapters.webhook_client import WebhookSender

BODY = json.dumps({"id": "evt", "type": "booking.created", "data": {"object": {"note": "x" * 1000}}}).encode()
"""About the length of a booking's event."""
HEADERS = [
    ("Content-Type", "application/json"),
    ("Svc-Signature", f"t=1700000000,v1={'0' * 64}"),
    ("Svc-Event-Id", "0190f3e2-0000-7000-8000-000000000001"),
    ("Svc-Event-Type", "booking.created"),
    ("Svc-Delivery-Id", "0190f3e2-0000-7000-8000-000000000002"),
    ("webhook-id", "0190f3e2-0000-7000-8000-000000000001"),
    ("webhook-timestamp", "1700000000"),
    ("webhook-signature", f"v1,{'0' * 44}"),
]
GIVE_UP_S = 120.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The requests to send, and the port of their receiver."""

    port: int
    requests: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Done:
    """The rate, the failures and the CPU time of a run."""

    rate: float
    failed: int
    cpu_s: float


def drive(wanted: Outgoing) -> Done:
    """Run the client in a separate process."""
    return Done(**run_apart("bench.outgoing", wanted, GIVE_UP_S))


async def _asked(raw: dict[str, Any]) -> Done:
    """Send with the worker's client, including its address guard."""
    wanted = Outgoing(**raw)
    client = WebhookSender(
        Settings.from_environment({"BOOKING_WEBHOOK_ALLOW_HTTP": "on", "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8"})
    )
    left, failed, url = wanted.requests, 0, f"http://{HOST}:{wanted.port}/hook"

    async def slot() -> None:
        nonlocal left, failed
        while left > 0:
            left -= 1
            failed += (await client.send(url, HEADERS, BODY)).error is not None

    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(slot() for _ in range(wanted.in_flight)))
    wall_s = time.perf_counter() - began
    await client.close()
    return Done(wanted.requests / wall_s, failed, time.process_time() - spent)


if __name__ == "__main__":
    answer_caller(_asked)
