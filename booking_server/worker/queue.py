"""The worker's side of the delivery table: claims deliveries, records results, rescues expired leases; its upkeep.

`Slots` bounds the attempts in flight. A result that cannot be recorded is parked, and keeps no other from being
recorded.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from booking_core import webhooks
from booking_core.base.clock import MINUTE, SECOND, has_passed
from booking_core.base.context import Installation
from booking_core.base.errors import BookingError, Unavailable, is_outage
from booking_core.base.settings import Settings
from booking_core.db.engine import Database, Tx
from booking_core.due_work.sweep import LOCK_WAIT_MS
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.worker.jobs.periodic import Job

log = logging.getLogger("booking.worker")

T = TypeVar("T")

RESCUE_EVERY = 5 * SECOND
SLOTS = 512
"""Attempts in flight at once, in one process."""
CLAIM_MAX = 128
"""The most that one statement claims. A good part of its cost, and of the cost of recording results together, is the
same for one row as for a hundred; with more than this, bookings on SQLite, which has one writer, would be slowed
down."""
SLOW_SLOTS = SLOTS // 2
"""The slots for endpoints whose last attempt timed out: however many hang, half of the slots stay free for the
others."""
PER_ENDPOINT = 16
FREE_PER_ENDPOINT = 4
"""An endpoint has at most one attempt in flight for this many free slots. The fewer slots are free, the fewer an
endpoint may add: many endpoints that hang, and are not yet known as slow, never hold all slots."""
TRIES = 3
"""A lock or a timeout may pass: a result is recorded again in so many turns."""
REST = MINUTE
"""For this time nothing is claimed for an endpoint with a parked result: its next results would repeatedly undo the
results of others."""


@dataclass(slots=True)
class Slots:
    """The attempts in flight, by endpoint."""

    by_endpoint: Counter[str] = field(default_factory=Counter)
    slow: int = 0
    """Attempts for endpoints whose last attempt timed out."""

    @property
    def free(self) -> int:
        return SLOTS - self.by_endpoint.total()

    def limits(self, *, full: Iterable[str] = ()) -> dict[str, Any]:
        """Return the arguments of `webhooks.claim`: half of the free slots, so the following claim sees the remaining
        slots.

        Args:
            full: endpoints that are to get nothing.
        """
        free = self.free
        return {
            "free": min((free + 1) // 2, CLAIM_MAX),
            "in_flight": {**self.by_endpoint, **dict.fromkeys(full, PER_ENDPOINT)},
            "slow_free": max(0, SLOW_SLOTS - self.slow),
            "per_endpoint": max(1, min(PER_ENDPOINT, free // FREE_PER_ENDPOINT)),
        }

    def take(self, claimed: ClaimedDelivery) -> None:
        self.by_endpoint[claimed.endpoint_id] += 1
        self.slow += claimed.timed_out_before

    def release(self, claimed: ClaimedDelivery) -> None:
        self.by_endpoint[claimed.endpoint_id] -= 1
        if not self.by_endpoint[claimed.endpoint_id]:
            del self.by_endpoint[claimed.endpoint_id]  # or the counter grows with every endpoint ever served
        self.slow -= claimed.timed_out_before


class DeliveryQueue:
    """The deliveries that this process has claimed, and the results that it has not recorded yet."""

    def __init__(self, settings: Settings, database: Database, installation: Installation) -> None:
        self._settings = settings
        self._database = database
        self._installation = installation
        self._slots = Slots()
        self._results: list[DeliveryResult] = []
        self._rescued_at = 0
        self.attempts: Counter[str] = Counter()
        """The attempts by their outcome, `succeeded` or the error, for metrics."""
        self.lost_leases = 0
        """Deliveries of this or another worker whose lease expired without a result."""
        self._is_behind = False
        """Results could not be recorded, since the database was unavailable."""
        self._tries: Counter[str] = Counter()
        """By attempt how often its result could not be recorded alone."""
        self._resting: dict[str, int] = {}
        """Endpoints with a parked result, and the ends of their pauses."""
        self.parked = 0
        """The results that were parked: their leases expire, and the deliveries are rescued."""

    @property
    def in_flight(self) -> int:
        """Return the number of attempts that were claimed and are not recorded."""
        return self._slots.by_endpoint.total()

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    async def claim(self) -> list[ClaimedDelivery]:
        """Lease due deliveries for the free slots."""
        await self._rescue()
        if self._slots.free <= 0:
            return []
        now, lease_s = self._database.clock(), webhooks.lease_s(self._settings.webhook_deadline_s)
        self._resting = {endpoint: until for endpoint, until in self._resting.items() if now < until <= now + REST}
        limits = self._slots.limits(full=self._resting)
        claimed = await self._write(lambda tx: webhooks.claim(tx, self._installation, **limits, lease_s=lease_s))
        for delivery in claimed:
            self._slots.take(delivery)
        return claimed

    def add_result(self, result: DeliveryResult) -> None:
        """Keep the result of an attempt for the next call of `record`."""
        self._results.append(result)
        self.attempts[result.error.value if result.error else "succeeded"] += 1

    def abandon(self, claimed: ClaimedDelivery) -> None:
        """Free the slot of an attempt without a result: its lease expires, and it is rescued."""
        self._slots.release(claimed)

    async def record(self) -> None:
        """Record all results in one transaction; keep them for the next call when the database is unavailable.

        When that fails for another reason, each is recorded alone, and a result that cannot be recorded is parked.
        """
        results, self._results = self._results, []
        if results and not await self._record_together(results):
            await self._record_each(results)
        self._is_behind = False

    async def _record_together(self, results: list[DeliveryResult]) -> bool:
        """Record the results, and return whether that was possible. Keep them when the database is unavailable."""
        try:
            await self._write(lambda tx: self._record(tx, results))
        except BaseException as error:
            if isinstance(error, Exception) and not is_outage(error):
                return False
            self._keep(results)
            raise
        for result in results:
            self._slots.release(result.claimed)
        return True

    async def _record_each(self, results: list[DeliveryResult]) -> None:
        """Record each result alone: keep it for the next calls when that fails, and park it in the end.

        The following results of its endpoint are kept too: results are recorded in their order.
        """
        last: Exception | None = None
        waiting: set[str] = set()
        for place, result in enumerate(results):
            endpoint_id = result.claimed.endpoint_id
            try:
                if endpoint_id not in waiting:
                    await self._write(partial(self._record, results=[result]))
            except BaseException as error:
                if not isinstance(error, Exception) or is_outage(error):
                    self._keep(results[place:])
                    raise
                if not self._is_last_try(result, error):
                    waiting.add(endpoint_id)
                    last = error
                else:
                    self._park(result, error)
            if endpoint_id in waiting:
                self._keep([result])
            else:
                self._tries.pop(result.claimed.attempt_id, None)
                self._slots.release(result.claimed)
        if last:
            raise last

    def _is_last_try(self, result: DeliveryResult, error: Exception) -> bool:
        """Count a try, and return whether the result is given up."""
        self._tries[result.claimed.attempt_id] += 1
        return not isinstance(error, BookingError) or self._tries[result.claimed.attempt_id] >= TRIES

    def _park(self, result: DeliveryResult, error: Exception) -> None:
        claimed = result.claimed
        self.parked += 1
        self._resting[claimed.endpoint_id] = self._database.clock() + REST
        text = "the result of attempt %s of delivery %s to endpoint %s cannot be recorded (parked so far: %d)"
        subject = (claimed.attempt_id, claimed.delivery_id, claimed.endpoint_id)
        log.error(text, *subject, self.parked, exc_info=error)

    def _keep(self, results: list[DeliveryResult]) -> None:
        """Keep results for the next call of `record`, in the order of their ends."""
        self._results = sorted([*results, *self._results], key=lambda result: result.ended_at)
        self._is_behind = True

    async def _rescue(self) -> None:
        """Return deliveries with expired leases to the queue, at an interval.

        It waits until this process has recorded its own results: after an outage longer than a lease, all of them look
        lost, and would be sent once more.
        """
        now = self._database.clock()
        if not self._is_behind and has_passed(RESCUE_EVERY, self._rescued_at, now):
            self._rescued_at = now
            try:
                self.lost_leases += await self._write(self._rescue_expired)
            except Exception as error:
                if is_outage(error):
                    raise
                await self._rescue_each()

    def _rescue_expired(self, tx: Tx, only: list[tuple[str, str, str]] | None = None) -> int:
        return webhooks.rescue_expired_leases(tx, only=only, retry_delays_s=self._settings.webhook_waits_s)

    async def _rescue_each(self) -> None:
        """Rescue each delivery alone, and defer a delivery that cannot be rescued."""
        for key in await asyncio.to_thread(self._database.read, webhooks.expired_leases):
            try:
                self.lost_leases += await self._write(partial(self._rescue_expired, only=[key]))
            except Exception as error:
                if is_outage(error):
                    raise
                log.exception("delivery %s to endpoint %s cannot be rescued", key[2], key[1])
                await self._write(partial(webhooks.park, key=key))

    def _record(self, tx: Tx, results: list[DeliveryResult]) -> None:
        delays_s, disable_after_s = self._settings.webhook_waits_s, self._settings.webhook_disable_after_s
        webhooks.record(tx, results, retry_delays_s=delays_s, disable_after_s=disable_after_s)

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)


# Upkeep ---------------------------------------------------------------------------------------------------------------

# The upkeep runs beside the claims and not before them: a step waits for locks that requests of one organization hold,
# and the deliveries of the others must not wait with it.

UPKEEP_EVERY = 2 * SECOND
UPKEEP_PAUSE = SECOND // 4
"""The interval while large recoveries, or long queues of disabled endpoints, are worked off."""


class UpkeepJob(Job):
    """Runs the steps of the queue's upkeep at an interval, each in a separate transaction."""

    name = "upkeep"

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last_at = 0
        self._interval = UPKEEP_EVERY

    @property
    def poll_s(self) -> float:
        return self._interval / SECOND

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Run the steps of one turn when the interval has passed; return 0, since the next turn waits for the next
        interval."""
        now = self._database.clock()
        if has_passed(self._interval, self._last_at, now):
            self._last_at, self._interval = now, UPKEEP_EVERY
            steps = await asyncio.to_thread(webhooks.upkeep_steps, self._database)
            have_more = [await self._run(step) for step in steps if not stop.is_set()]
            self._interval = UPKEEP_PAUSE if any(have_more) else UPKEEP_EVERY
        return 0

    async def _run(self, step: webhooks.Step) -> bool:
        """Run one step, and return whether it may have more to do. Locked rows remain for the next turn."""

        def write(tx: Tx) -> int:
            tx.limit_lock_waits(LOCK_WAIT_MS)
            return step(tx)

        try:
            return await asyncio.to_thread(self._database.write, write) > 0
        except Exception as error:
            if is_outage(error):
                raise
            if not isinstance(error, Unavailable):
                log.exception("a step of the upkeep of deliveries failed")
            return False
