"""Defects that a test plants in the service's process. Each makes one organization wait for another."""

import asyncio
import threading
from typing import Any

from sqlalchemy import text

from booking_core import bookings
from booking_core.base.clock import system_clock, zone
from booking_core.db import pool, postgres, sqlite
from booking_core.db.statements import Statement
from booking_server.adapters.smtp import SmtpMailer
from booking_server.adapters.webhook_client import Sent, WebhookSender
from booking_server.execution import creations
from booking_server.execution.executor import JobQueue, QueuedJob
from booking_server.worker.jobs.expiry import ExpiryJob


def long_waits_for_locks() -> None:
    """Wait for locks for a minute: the service's few seconds would end a misbehaviour, and on a machine that
    is busy with other things refuse a neighbour that waits for nobody."""
    creations.LOCK_WAIT_S = sqlite.BUSY_TIMEOUT_S = postgres.RESPONSE_TIMEOUT_S = pool.POOL_TIMEOUT_S = 60.0
    postgres.STATEMENT_TIMEOUT_MS = postgres.LOCK_TIMEOUT_MS = 60_000


def first_come_first_served() -> None:
    """Let the requests of all organizations wait in one row."""
    put = JobQueue.put

    def put_last(self: JobQueue, job: QueuedJob) -> None:
        put(self, job._replace(place=job.place._replace(owner=None)))

    JobQueue.put = put_last  # type: ignore[method-assign]


def one_lane_for_bookings() -> None:
    """Let a booking that waits for a lock block all others."""
    lane, create_many = threading.Lock(), bookings.create_many

    def alone(*arguments: Any, **options: Any) -> Any:
        with lane:
            return create_many(*arguments, **options)

    bookings.create_many = alone


def one_delivery_at_a_time() -> None:
    """Let a receiver that hangs block all others."""
    lane, send = asyncio.Lock(), WebhookSender.send

    async def alone(self: WebhookSender, *arguments: Any, **options: Any) -> Sent:
        async with lane:
            return await send(self, *arguments, **options)

    WebhookSender.send = alone  # type: ignore[method-assign]


def one_batch_of_mails_at_a_time() -> None:
    """Let a mail that hangs block all others."""
    lane, send = asyncio.Lock(), SmtpMailer.send

    async def alone(self: SmtpMailer, *arguments: Any, **options: Any) -> None:
        async with lane:
            await send(self, *arguments, **options)

    SmtpMailer.send = alone  # type: ignore[method-assign]


def a_sweep_that_begins_with_the_same_row() -> None:
    """Let a checkout that cannot be cancelled block the checkouts that expired after it."""
    first = Statement(
        lambda _: text(
            "SELECT o.timezone FROM bookings b JOIN organizations o ON o.id = b.organization_id"
            " WHERE b.status = 'pending' AND b.expires_at <= CAST(:at AS bigint) ORDER BY b.expires_at LIMIT 1"
        )
    )
    run = ExpiryJob.run_turn

    async def looked_at_first(self: ExpiryJob, *arguments: Any) -> int:
        row = self._database.read(lambda tx: tx.first(first, at=system_clock()))
        if row is not None:
            zone(row[0])
        return int(await run(self, *arguments))

    ExpiryJob.run_turn = looked_at_first  # type: ignore[method-assign]
