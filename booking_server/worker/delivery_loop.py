"""The loop that delivers events to webhook endpoints.

A delivery is claimed in a short transaction that leases it, sent while no transaction is open, and recorded in another
transaction. A worker that dies leaves leases that expire; what it had sent may be sent once more, with the same event
id.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from booking_core.clock import SECOND
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.adapters.webhook_client import Sent
from booking_server.worker import loops
from booking_server.worker.delivery_queue import DeliveryQueue
from booking_server.worker.signing import signed_headers

log = logging.getLogger("booking.worker")

POLL_S = 0.5
"""The loop relies on polling alone; being woken earlier is only a hint."""
NAME = "the worker"


_End = asyncio.Future[int | None]
"""The instant at which an attempt ended; None: it has no result."""


class Sender(Protocol):
    """An HTTP client for delivery attempts. `send` never raises for anything that a receiver does."""

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent: ...

    async def close(self) -> None: ...


class DeliveryLoop:
    """Keeps many attempts in flight at once, so that a slow receiver delays only its own deliveries."""

    def __init__(self, queue: DeliveryQueue, sender: Sender, failures: loops.FailureLog, turns: loops.Turns) -> None:
        self._queue = queue
        self._sender = sender
        self._failures = failures
        self._turns = turns
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: dict[str, tuple[str, _End]] = {}
        """By delivery the attempt and its end, until no claim can have seen it as one in flight."""

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
                self._start(claimed)
                claimed = []
                await loops.back_off(stop, failures)
            # Deliveries may have waited for a result that was just recorded, which the claim beside it has not seen.
            elif not claimed and not has_results:
                await loops.wait_for_change(self._changed, stop, POLL_S)
        await self._finish(claimed)

    async def run_once(self) -> int:
        """Deliver what is due now until nothing is left, and return the number of attempts."""
        count = 0
        while claimed := await self._record_and_claim():
            self._start(claimed)
            await asyncio.gather(*self._tasks)
            count += len(claimed)
        return count

    async def _turn(self, claimed: Sequence[ClaimedDelivery]) -> tuple[list[ClaimedDelivery], list[BaseException]]:
        """Start the attempts that were claimed before; meanwhile claim the next ones and record results.

        Claim and record run on two connections at once, and begin before the attempts start: so the database works for
        them while Python signs and sends.
        """
        both = asyncio.gather(self._queue.claim(), self._queue.record(), return_exceptions=True)
        self._start(claimed)
        following, recorded = await both
        errors = [each for each in (recorded, following) if isinstance(each, BaseException)]
        for error in errors:
            self._failures.add(NAME, error)
        return ([] if isinstance(following, BaseException) else following), errors

    async def _record_and_claim(self) -> list[ClaimedDelivery]:
        await self._queue.record()
        return await self._queue.claim()

    async def _finish(self, claimed: Sequence[ClaimedDelivery]) -> None:
        self._start(claimed)
        await asyncio.gather(*self._tasks)
        try:
            await self._queue.record()
        except Exception as error:  # noqa: BLE001 - unrecorded attempts are sent again; periodic jobs must still stop
            self._failures.add(NAME, error)

    def _start(self, claimed: Sequence[ClaimedDelivery]) -> None:
        for each in claimed:
            _, before = self._ends.get(each.after or "", (None, None))
            end: _End = asyncio.get_running_loop().create_future()
            self._ends[each.delivery_id] = each.attempt_id, end
            task = asyncio.create_task(self._attempt(each, before, end))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Only now: the claim may have run beside the transaction that recorded them.
        for settled in self._queue.take_settled():
            attempt_id, _ = self._ends[settled.delivery_id]
            if attempt_id == settled.attempt_id:
                del self._ends[settled.delivery_id]

    async def _attempt(self, claimed: ClaimedDelivery, before: _End | None, end: _End) -> None:
        """Make an attempt, after the one about the same resource that comes first (decision W13)."""
        ended_at, started_at = None, asyncio.get_running_loop().time()
        try:
            if not claimed.after:
                ended_at = await self._send(claimed, claimed.at)
            elif before and (over_at := await before):
                # Not before the end of the other, whose task began a little earlier.
                ended_at = await self._send(claimed, max(claimed.at + _elapsed_us(started_at), over_at))
            else:
                self._queue.abandon(claimed)  # its lease expires, and it is made after the other one
        finally:
            end.set_result(ended_at)

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
