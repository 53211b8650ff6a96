"""Deliveries: one worker between PostgreSQL and a local sink, compared with a bare loop of the worker's client."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import psycopg
import uvloop

from bench import sink
from bench.load import Plan, Request, drive_in_process
from bench.measure import RATE, Goal, Meter, Reading, Sides, Timing, entry
from bench.processes import HOST, Server, serving, wait_for
from bench.service import BOOKING, Service, bookings_of
from bench.stage import Stage
from booking_core.base.settings import Settings
from booking_server.adapters.webhook_client import WebhookSender

ORGANIZATIONS = 2
ENDPOINTS = 10
"""For each organization. A booking causes two deliveries to each endpoint."""
PER_BOOKING = 2 * ENDPOINTS
IN_FLIGHT = 256
"""The number of the worker's slots."""
PER_SECOND = 3_000
"""The number of deliveries per second of the maximal duration; a run creates events for them."""
LONGEST_S = 180.0
QUIET = {"send_confirmation_email": False, "notify_staff": False}
"""Fields of a booking without mails, which the worker would otherwise write and file during the deliveries."""
RUNS = "the worker runs"
"""The text in the worker's log."""


@entry("deliveries", "deliveries of one worker to a local sink, database work included", Goal(RATE, 0.28))
def deliveries(stage: Stage, stack: ExitStack) -> Sides:
    receiver = stack.enter_context(sink.served())
    service = Service(stage.postgres.create_database("deliveries"))
    urls = [f"http://{HOST}:{receiver.port}/{number}" for number in range(ENDPOINTS)]
    shops = service.open_shops(ORGANIZATIONS, 20, urls=urls)
    server = stack.enter_context(service.serve())
    command = [str(BOOKING), "worker"]
    worker = stack.enter_context(
        serving(command, env=service.env, is_ready=lambda worker: RUNS in worker.log.read_text())
    )
    os.kill(worker.pid, signal.SIGSTOP)
    requests = bookings_of(shops, **QUIET)

    def take(timing: Timing) -> Reading:
        """Continue a worker that was stopped while bookings were created, to deliver their events.

        The time is from the first request at the sink until nothing is queued, because results must also be recorded.
        """
        count = _count(timing)
        _book(server, requests, count // PER_BOOKING)
        sink.counted(receiver)
        meter = Meter(worker, stage.postgres)
        os.kill(worker.pid, signal.SIGCONT)
        with psycopg.connect(service.database_url, autocommit=True) as connection:
            wait_for(lambda: not is_queued(connection), "the deliveries")
            ended_at = time.monotonic()
            os.kill(worker.pid, signal.SIGSTOP)
            statuses = connection.execute("SELECT status, count(*) FROM deliveries GROUP BY status").fetchall()
            connection.execute("TRUNCATE attempts, deliveries")
        arrived = sink.counted(receiver)
        is_complete = (statuses, arrived["count"]) == ([("succeeded", count)], count)
        failures = [] if is_complete else [f"{count} deliveries: {statuses}, at the sink {arrived['count']}"]
        return Reading({RATE: count / (ended_at - arrived["first_at"]), **meter.figures(count)}, failures)

    return {"service, one worker": take, "bare loop, the worker's client": partial(_loop, receiver.port)}


def _count(timing: Timing) -> int:
    """Return the number of deliveries of a run, a multiple of `PER_BOOKING`."""
    return int(timing.duration_s * PER_SECOND) // PER_BOOKING * PER_BOOKING


def _book(server: Server, requests: Sequence[Request], bookings: int) -> None:
    result = drive_in_process(Plan(server.port, requests, 32, 0.0, LONGEST_S, max_requests=bookings))
    if result.statuses != {"201": bookings}:
        raise RuntimeError(f"{bookings} bookings were answered {result.statuses}")


def is_queued(connection: "psycopg.Connection[Any]") -> bool:
    """Return whether a delivery is queued or in flight, or an event has no delivery yet."""
    row = connection.execute(_QUEUED).fetchone()
    return bool(row and row[0])


_QUEUED = """
SELECT EXISTS (SELECT FROM deliveries WHERE status = 'queued')
    OR EXISTS (SELECT FROM webhook_cursors c
                 JOIN webhook_subscriptions s USING (organization_id, endpoint_id)
                 JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
                  AND v.sequence > c.served_sequence)"""


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
SETTINGS = {"BOOKING_WEBHOOK_ALLOW_HTTP": "on", "BOOKING_WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8"}


def _loop(port: int, timing: Timing) -> Reading:
    """Send as many requests with the worker's client and its address guard. Nothing is signed, read from a database or
    recorded."""
    count, spent_s = _count(timing), time.process_time()
    rate, failed = uvloop.run(_send(f"http://{HOST}:{port}/hook", count))
    server_us = (time.process_time() - spent_s) / count * 1e6
    failures = [f"{failed} of {count} failed"] if failed else []
    return Reading({RATE: rate, "server µs": server_us, "database µs": 0.0}, failures)


async def _send(url: str, count: int) -> tuple[float, int]:
    """Return the rate and the failures of that many requests."""
    client, numbers, failed = WebhookSender(Settings.from_environment(SETTINGS)), iter(range(count)), 0

    async def slot() -> None:
        nonlocal failed
        for _ in numbers:
            failed += (await client.send(url, HEADERS, BODY)).error is not None

    began = time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(IN_FLIGHT)))
    rate = count / (time.perf_counter() - began)
    await client.close()
    return rate, failed


ENTRIES = (deliveries,)
