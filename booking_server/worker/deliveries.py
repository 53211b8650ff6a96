"""The loop that delivers events to webhook endpoints.

A delivery is claimed in a short transaction that leases it, sent while no transaction is open, and recorded in another
transaction. A worker that dies leaves leases that expire; its last requests may be sent once more, with the same event
id.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import webhook_verify
from booking_core.base.clock import SECOND
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.adapters.webhook_client import Sent
from booking_server.worker import loops
from booking_server.worker.queue import DeliveryQueue
from webhook_verify.signature import Signer

log = logging.getLogger("booking.worker")

POLL_S = 1.0
"""The loop relies on polling alone; being woken earlier is only a hint. A retry is late by this much at most."""
STARTED_AT_ONCE = 16
"""Attempts that are started before the loop looks at its sockets again: to sign and send a whole claim takes as long as
the database needs for the next one, which would wait for the loop meanwhile."""
NAME = "the worker"
USER_AGENT = "Svc-Webhooks/1.0"
SIGNERS_MAX = 1024
"""The endpoints whose keys stay prepared."""

_signer = lru_cache(maxsize=SIGNERS_MAX)(Signer)


class Sender(Protocol):
    """An HTTP client for delivery attempts. `send` never raises for anything that a receiver does."""

    async def send(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Sent: ...

    async def close(self) -> None: ...


class Pauses:
    """The pauses after the claims of this process, by the loop's clock in seconds.

    Other processes' deliveries are not known here: polling finds due deliveries.
    """

    def __init__(self) -> None:
        self._ends_s: dict[str, float] = {}

    def note(self, claimed: Iterable[ClaimedDelivery], *, began_s: float, now_s: float) -> None:
        """Add the pauses after a claim, and drop the pauses that had ended when it began."""
        self._ends_s = {endpoint: end_s for endpoint, end_s in self._ends_s.items() if end_s > began_s}
        self._ends_s |= {
            delivery.endpoint_id: now_s + delivery.pause / SECOND for delivery in claimed if delivery.pause
        }

    def wait_s(self, now_s: float, at_most_s: float) -> float:
        """Return the seconds until the first pause ends, at most `at_most_s`."""
        return min([at_most_s, *(max(0.0, end_s - now_s) for end_s in self._ends_s.values())])


class DeliveryLoop:
    """Keeps many attempts in flight at once: a slow receiver delays only its own deliveries."""

    def __init__(self, queue: DeliveryQueue, sender: Sender, failures: loops.FailureLog, turns: loops.Turns) -> None:
        self._queue = queue
        self._sender = sender
        self._failures = failures
        self._turns = turns
        self._changed = asyncio.Event()
        self._pauses = Pauses()
        self._tasks: set[asyncio.Task[None]] = set()

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
        """Deliver all due deliveries, and return the number of attempts."""
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
        errors = [result for result in (recorded, following) if isinstance(result, BaseException)]
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
        for count, delivery in enumerate(claimed, start=1):
            task = asyncio.create_task(self._attempt(delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if count % STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _attempt(self, claimed: ClaimedDelivery) -> None:
        """Send a delivery and keep the result."""
        try:
            sent = await self._sender.send(claimed.url, signed_headers(claimed), claimed.body)
        except Exception:  # a bug of this service: the lease expires, and the third time the attempt counts as failed
            log.exception("the attempt %s could not be made", claimed.attempt_id)
            self._queue.abandon(claimed)
            return
        self._queue.add_result(_result(claimed, sent))
        self._changed.set()


def _result(claimed: ClaimedDelivery, sent: Sent) -> DeliveryResult:
    return DeliveryResult(
        claimed=claimed,
        started_at=claimed.at,
        duration_ms=sent.duration_ms,
        response_status=sent.status,
        response_excerpt=sent.excerpt,
        error=sent.error,
    )


def signed_headers(claimed: ClaimedDelivery) -> list[tuple[str, str]]:
    """Return the contract's headers of an attempt, and the headers of Standard Webhooks (decision W14).

    They are dated at the instant of the claim. The client's headers come last and have other names. The trace context
    of the event is not signed: it does not describe the event, and each attempt is a separate span.
    """
    timestamp, signer = claimed.at // SECOND, _signer(claimed.secrets)
    return [
        ("Content-Type", "application/json"),
        ("User-Agent", USER_AGENT),
        (webhook_verify.SIGNATURE_HEADER, signer.sign(claimed.body, timestamp=timestamp)),
        (webhook_verify.EVENT_ID_HEADER, claimed.event_id),
        (webhook_verify.EVENT_TYPE_HEADER, claimed.event_type),
        (webhook_verify.DELIVERY_ID_HEADER, claimed.attempt_id),
        *signer.standard_headers(claimed.body, message_id=claimed.event_id, timestamp=timestamp).items(),
        *([("traceparent", claimed.traceparent)] if claimed.traceparent else []),
        *(claimed.headers or ()),
    ]
