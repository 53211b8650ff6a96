"""The worker's side of the delivery table: claims due deliveries, records results and rescues expired leases."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from booking_core import webhooks
from booking_core.clock import SECOND, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.errors import BookingError
from booking_core.settings import Settings
from booking_core.webhooks import ClaimedDelivery, DeliveryResult
from booking_server.worker.clock_watch import ClockWatch
from booking_server.worker.slots import Slots

T = TypeVar("T")

RESCUE_EVERY = 5 * SECOND
_NEVER_S = 10**9


class DeliveryQueue:
    """The deliveries that this process has claimed, and the results that it has not recorded yet."""

    def __init__(
        self, settings: Settings, database: Database, installation: Installation, watch: ClockWatch | None
    ) -> None:
        self._settings = settings
        self._database = database
        self._installation = installation
        self._watch = watch
        self._slots = Slots()
        self._results: list[DeliveryResult] = []
        self._rescued_at = 0
        self._is_behind = False
        """Results could not be recorded, since the database was away."""

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    async def claim(self) -> list[ClaimedDelivery]:
        """Lease due deliveries for the free slots."""
        await self._rescue()
        if self._slots.free <= 0:
            return []
        limits = self._slots.limits()
        lease_s = webhooks.lease_s(self._settings.webhook_deadline_s)
        claimed = await self._write(
            lambda tx: webhooks.claim(tx, self._installation, **limits._asdict(), lease_s=lease_s)
        )
        for each in claimed:
            self._slots.take(each)
        return claimed

    def add_result(self, result: DeliveryResult) -> None:
        """Keep the result of an attempt for the next call of `record`."""
        self._results.append(result)

    def abandon(self, claimed: ClaimedDelivery) -> None:
        """Free the slot of an attempt without a result: its lease expires, and it is rescued."""
        self._slots.release(claimed)

    async def record(self) -> None:
        """Record all results in one transaction; keep them for the next call when that fails."""
        results, self._results = self._results, []
        if not results:
            return
        try:
            await self._write(lambda tx: self._record(tx, results))
        except BaseException as error:
            self._results = results + self._results
            self._is_behind = isinstance(error, BookingError)
            raise
        self._is_behind = False
        for result in results:
            self._slots.release(result.claimed)

    async def _rescue(self) -> None:
        """Return deliveries with expired leases to the queue, at an interval.

        It waits until this process has recorded its own results: when the database was away for longer than a lease,
        all of them look lost, and would be sent once more.
        """
        now = self._database.clock()
        if not self._is_behind and has_passed(RESCUE_EVERY, self._rescued_at, now):
            self._rescued_at = now
            retry_delays_s = self._settings.webhook_waits_s
            await self._write(lambda tx: webhooks.rescue_expired_leases(tx, retry_delays_s=retry_delays_s))

    def _record(self, tx: Tx, results: list[DeliveryResult]) -> None:
        # An endpoint must not be disabled because the clock has jumped ahead.
        is_settled = self._watch is None or self._watch.is_settled
        disable_after_s = self._settings.webhook_disable_after_s if is_settled else _NEVER_S
        webhooks.record(tx, results, retry_delays_s=self._settings.webhook_waits_s, disable_after_s=disable_after_s)

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)
