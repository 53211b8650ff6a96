"""The loop that delivers events to webhook endpoints.

A delivery is claimed in a short transaction that leases it, sent while no transaction is open, and recorded in another
transaction. A worker that dies leaves leases that expire; what it had sent may be sent once more, with the same event
id.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from booking_core.base.clock import SECOND
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.adapters.webhook_client import Sent
from booking_server.worker import loops
from booking_server.worker.delivery_queue import DeliveryQueue
from booking_server.worker.pacing import Pauses
from booking_server.worker.signing import signed_headers

log = logging.getLogger("booking.worker")

POLL_S = 0.5
"""The loop relies on polling alone; being woken earlier is only a hint."""
STARTED_AT_ONCE = 16
"""Attempts that are started before the loop looks at its sockets again: to sign and send a whole claim takes as long as
the database needs for the next one, which would wait for the loop meanwhile."""
NAME = "the worker"


class Sender(Protocol):
    """An HTTP client for delivery attempts. `send` never raises for anything that a receiver does."""

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class _Running:
    """An attempt that was claimed and is not settled."""

    attempt_id: str
    is_over: bool = False
    ended_at: int | None = None
    """Once it is over; None: it has no result."""
    following: "tuple[ClaimedDelivery, _Running, float] | None" = None
    """The attempt about the same resource that is made next, and the time of the loop at which it began to wait."""


class DeliveryLoop:
    """Keeps many attempts in flight at once, so that a slow receiver delays only its own deliveries."""

    def __init__(self, queue: DeliveryQueue, sender: Sender, failures: loops.FailureLog, turns: loops.Turns) -> None:
        self._queue = queue
        self._sender = sender
        self._failures = failures
        self._turns = turns
        self._changed = asyncio.Event()
        self._pauses = Pauses()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str, _Running] = {}
        """By delivery its attempt, until no claim can have seen it as one in flight."""

    def wake(self) -> None:
        """Let the loop look for due deliveries now."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set, then finish and record the attempts in flight."""
        claimed: list[ClaimedDelivery] = []
        failures = 0
        while not stop.is_set():
            self._changed.clear()
            self._turns.note("deliveries")
            has_results = self._queue.has_results
            claimed, errors = await self._turn(claimed)
            failures = failures + 1 if errors else 0
            if errors:
                await self._start(claimed)
                claimed = []
                await loops.back_off(stop, failures)
            # Deliveries may have waited for a result that was just recorded, which the claim beside it has not seen.
            elif not claimed and not has_results:
                wait_s = self._pauses.wait_s(asyncio.get_running_loop().time(), POLL_S)
                await loops.wait_for_change(self._changed, stop, wait_s)
        await self._finish(claimed)

    async def run_once(self) -> int:
        """Deliver what is due now until nothing is left, and return the number of attempts."""
        count = 0
        while claimed := await self._record_and_claim():
            await self._start(claimed)
            await asyncio.gather(*self._tasks)
            count += len(claimed)
        return count

    async def _turn(self, claimed: Sequence[ClaimedDelivery]) -> tuple[list[ClaimedDelivery], list[BaseException]]:
        """Start the attempts that were claimed before; meanwhile claim the next ones and record results.

        Claim and record run on two connections at once, and begin before the attempts start: so the database works for
        them while Python signs and sends.
        """
        both = asyncio.gather(self._claim(), self._queue.record(), return_exceptions=True)
        await self._start(claimed)
        following, recorded = await both
        errors = [each for each in (recorded, following) if isinstance(each, BaseException)]
        for error in errors:
            self._failures.add(NAME, error)
        return ([] if isinstance(following, BaseException) else following), errors

    async def _claim(self) -> list[ClaimedDelivery]:
        """Claim the next deliveries, and note when more may be claimed for endpoints with a limit."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        claimed = await self._queue.claim()
        self._pauses.note(claimed, began_s=began_s, now_s=clock())
        return claimed

    async def _record_and_claim(self) -> list[ClaimedDelivery]:
        await self._queue.record()
        return await self._queue.claim()

    async def _finish(self, claimed: Sequence[ClaimedDelivery]) -> None:
        await self._start(claimed)
        await asyncio.gather(*self._tasks)
        try:
            await self._queue.record()
        except Exception as error:  # noqa: BLE001 - unrecorded attempts are sent again; periodic jobs must still stop
            self._failures.add(NAME, error)

    async def _start(self, claimed: Sequence[ClaimedDelivery]) -> None:
        """Start the attempts, some at a time: between them the loop goes on with the transactions that it waits for."""
        for count, each in enumerate(claimed, start=1):
            self._start_one(each)
            if count % STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        # Only now: the claim may have run beside the transaction that recorded them.
        for settled in self._queue.take_settled():
            if self._running[settled.delivery_id].attempt_id == settled.attempt_id:
                del self._running[settled.delivery_id]

    def _start_one(self, claimed: ClaimedDelivery) -> None:
        """Start an attempt, or let it follow the one about the same resource that comes first (decision W13)."""
        before = self._running.get(claimed.after) if claimed.after else None
        running = self._running[claimed.delivery_id] = _Running(claimed.attempt_id)
        if before and not before.is_over:
            before.following = claimed, running, asyncio.get_running_loop().time()
        elif claimed.after and (before is None or before.ended_at is None):
            self._give_up(claimed, running)  # it is made after the other one
        else:
            at = claimed.at if before is None else max(claimed.at, before.ended_at or 0)
            task = asyncio.create_task(self._attempt(claimed, running, at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _give_up(self, claimed: ClaimedDelivery, running: _Running) -> None:
        """Leave an attempt without a result, until its lease expires."""
        self._queue.abandon(claimed)
        running.is_over = True

    async def _attempt(self, claimed: ClaimedDelivery, running: _Running, at: int) -> None:
        """Make an attempt, and behind it the one that follows it, if there is one by then."""
        running.ended_at = await self._send(claimed, at)
        running.is_over = True
        while running.following:
            ended_at = running.ended_at
            claimed, running, since = running.following
            if ended_at is None:
                self._give_up(claimed, running)
            else:
                # Not before the end of the other, which the loop noticed a little later.
                running.ended_at = await self._send(claimed, max(claimed.at + _elapsed_us(since), ended_at))
                running.is_over = True

    async def _send(self, claimed: ClaimedDelivery, at: int) -> int | None:
        """Send a delivery, keep the result, and return when the attempt ended; None when it could not be sent."""
        try:
            sent = await self._sender.send(claimed.url, signed_headers(claimed, at), claimed.body)
        except Exception:  # a bug of this service: the lease expires, and the third time the attempt counts as failed
            log.exception("the attempt %s could not be made", claimed.attempt_id)
            self._queue.abandon(claimed)
            return None
        result = _result(claimed, at, sent)
        self._queue.add_result(result)
        self._changed.set()
        return result.ended_at


def _elapsed_us(since: float) -> int:
    """Return the time since a reading of the loop's clock, so that a signature is dated when it is sent."""
    return int((asyncio.get_running_loop().time() - since) * SECOND)


def _result(claimed: ClaimedDelivery, at: int, sent: Sent) -> DeliveryResult:
    return DeliveryResult(
        claimed=claimed,
        started_at=at,
        duration_ms=sent.duration_ms,
        response_status=sent.status,
        response_excerpt=sent.excerpt,
        error=sent.error,
    )
