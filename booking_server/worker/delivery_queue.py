"""The worker's side of the delivery table: claims due deliveries, records results and rescues expired leases."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from booking_core import webhooks
from booking_core.base import tokens
from booking_core.base.clock import SECOND, has_passed
from booking_core.base.context import Installation
from booking_core.base.errors import is_outage
from booking_core.base.settings import Settings
from booking_core.db.engine import Database, Tx
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.worker.parking import Endpoint, Parking, endpoint_of
from booking_server.worker.slots import ClaimLimits, Slots

log = logging.getLogger("booking.worker")

T = TypeVar("T")

RESCUE_EVERY = 5 * SECOND


class DeliveryQueue:
    """The deliveries that this process has claimed, and the results that it has not recorded yet."""

    def __init__(self, settings: Settings, database: Database, installation: Installation) -> None:
        self._settings = settings
        self._database = database
        self._installation = installation
        self._slots = Slots()
        self._parking = Parking()
        self._worker = tokens.new_id()
        self._results: list[DeliveryResult] = []
        self._settled: list[ClaimedDelivery] = []
        self._rescued_at = 0
        self.attempts: Counter[str] = Counter()
        """The attempts by their outcome, `succeeded` or the error, for metrics."""
        self.lost_leases = 0
        """Deliveries of this or another worker whose lease expired without a result."""
        self._is_behind = False
        """Results could not be recorded, since the database was away."""

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
        limits = self._slots.limits(full=self._parking.endpoints(self._database.clock()))
        claimed = await self._claim(limits, webhooks.lease_s(self._settings.webhook_deadline_s))
        for each in claimed:
            self._slots.take(each)
        return claimed

    async def _claim(self, limits: ClaimLimits, lease_s: int) -> list[ClaimedDelivery]:
        return await self._write(
            lambda tx: webhooks.claim(tx, self._installation, **limits._asdict(), worker=self._worker, lease_s=lease_s)
        )

    def add_result(self, result: DeliveryResult) -> None:
        """Keep the result of an attempt for the next call of `record`."""
        self._results.append(result)
        self.attempts[result.error.value if result.error else "succeeded"] += 1

    def abandon(self, claimed: ClaimedDelivery) -> None:
        """Free the slot of an attempt without a result: its lease expires, and it is rescued."""
        self._release(claimed)

    def take_settled(self) -> list[ClaimedDelivery]:
        """Return the attempts that were recorded, parked or abandoned since the last call."""
        settled, self._settled = self._settled, []
        return settled

    async def record(self) -> None:
        """Record all results in one transaction; keep them for the next call when the database is away.

        When that fails for another reason, each is recorded by itself, and what cannot be recorded is parked.
        """
        results, self._results = self._results, []
        together, apart = self._parking.split(results)
        if together and not await self._record_together(together, apart):
            apart = [*together, *apart]
        await self._record_each(apart)
        self._is_behind = False

    async def _record_together(self, together: list[DeliveryResult], others: list[DeliveryResult]) -> bool:
        """Record the results, or return False when one of them cannot be recorded.

        When the database is away these and the others are kept for the next call.
        """
        try:
            await self._write(lambda tx: self._record(tx, together))
        except BaseException as error:
            if isinstance(error, Exception) and not is_outage(error):
                return False
            self._keep([*together, *others])
            raise
        for result in together:
            self._release(result.claimed)
        return True

    async def _record_each(self, results: list[DeliveryResult]) -> None:
        """Record each result by itself: keep it for the next calls when that fails, and park it in the end.

        The results of its endpoint that follow are kept too, so that they are recorded in their order.
        """
        last: Exception | None = None
        kept: set[Endpoint] = set()
        for place, result in enumerate(results):
            if endpoint_of(result) in kept:
                self._keep([result])
                continue
            try:
                await self._write(partial(self._record, results=[result]))
            except BaseException as error:
                if not isinstance(error, Exception) or is_outage(error):
                    self._keep(results[place:])
                    raise
                if not self._parking.is_parked(result, error):
                    self._keep([result])
                    kept.add(endpoint_of(result))
                    last = error
                    continue
                self._parking.park(result, error, self._database.clock())
            else:
                self._parking.forget(result)
            self._release(result.claimed)
        if last:
            raise last

    def _release(self, claimed: ClaimedDelivery) -> None:
        self._slots.release(claimed)
        self._settled.append(claimed)

    def _keep(self, results: list[DeliveryResult]) -> None:
        """Keep results for the next call of `record`, in the order of their ends."""
        self._results = sorted([*results, *self._results], key=lambda each: each.ended_at)
        self._is_behind = True

    async def _rescue(self) -> None:
        """Return deliveries with expired leases to the queue, at an interval.

        It waits until this process has recorded its own results: when the database was away for longer than a lease,
        all of them look lost, and would be sent once more.
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
        """Rescue each delivery by itself, and put off one that cannot be rescued."""
        for key in await asyncio.to_thread(self._database.read, webhooks.expired_leases):
            try:
                self.lost_leases += await self._write(partial(self._rescue_expired, only=[key]))
            except Exception as error:
                if is_outage(error):
                    raise
                log.exception("delivery %s to endpoint %s cannot be rescued", key[2], key[1])
                await self._write(partial(webhooks.park, key=key))

    def _record(self, tx: Tx, results: list[DeliveryResult]) -> None:
        webhooks.record(tx, results, **self._rules())

    def _rules(self) -> dict[str, Any]:
        settings = self._settings
        return {"retry_delays_s": settings.webhook_waits_s, "disable_after_s": settings.webhook_disable_after_s}

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)
