"""The loops for comparison with a worker: they send requests to the sink as fast as a client can.

`python -m bench.outgoing CLIENT` with a plan as JSON on stdin; the clients are the functions below. They sign nothing,
read nothing from a database and record nothing.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass

from bench.processes import HOST, ROOT

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

Send = Callable[[int], Awaitable[bool]]
"""Makes one request in a slot, and returns whether it was answered well."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The requests to send, and the port of their receiver."""

    port: int
    requests: int
    in_flight: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"


@dataclass(frozen=True, slots=True)
class Done:
    """The rate, the failures and the CPU time of a run."""

    rate: float
    failed: int
    cpu_s: float


def drive(client: str, wanted: Outgoing) -> Done:
    """Run one of the clients in a separate process."""
    child = subprocess.run(
        [sys.executable, "-m", "bench.outgoing", client],
        cwd=ROOT,
        input=json.dumps(asdict(wanted)).encode(),
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=GIVE_UP_S,
        check=True,
    )
    return Done(**json.loads(child.stdout))


async def _loop(wanted: Outgoing, send: Send) -> Done:
    left, failed = wanted.requests, 0

    async def slot(number: int) -> None:
        nonlocal left, failed
        while left > 0:
            left -= 1
            failed += not await send(number)

    began, spent = time.perf_counter(), time.process_time()
    await asyncio.gather(*(slot(number) for number in range(wanted.in_flight)))
    wall_s = time.perf_counter() - began
    return Done(wanted.requests / wall_s, failed, time.process_time() - spent)


async def sender(wanted: Outgoing) -> Done:
    """Send with the worker's client, including its address guard."""
    from booking_core.base.settings import Settings
    from booking_server.adapters.webhook_client import WebhookSender

    settings = Settings.from_environment(
        {"BOOKING_WEBHOOK_ALLOW_HTTP": "on", "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8"}
    )
    client = WebhookSender(settings)

    async def send(_: int) -> bool:
        return (await client.send(wanted.url, HEADERS, BODY)).error is None

    try:
        return await _loop(wanted, send)
    finally:
        await client.close()


async def httpcore(wanted: Outgoing) -> Done:
    """Send with httpcore and a pool for each slot, the fastest of the installed clients."""
    import httpcore

    headers = [(name.encode(), value.encode()) for name, value in HEADERS]
    async with AsyncExitStack() as stack:
        pools = [
            await stack.enter_async_context(httpcore.AsyncConnectionPool(max_connections=1))
            for _ in range(wanted.in_flight)
        ]

        async def send(number: int) -> bool:
            response = await pools[number].request("POST", wanted.url, headers=headers, content=BODY)
            return response.status < 300

        return await _loop(wanted, send)


def main() -> None:
    """Run the named client, and write the result to stdout."""
    import uvloop

    client = {"sender": sender, "httpcore": httpcore}[sys.argv[1]]
    json.dump(asdict(uvloop.run(client(Outgoing(**json.load(sys.stdin))))), sys.stdout)


if __name__ == "__main__":
    main()
