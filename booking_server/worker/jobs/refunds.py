"""The job that sends refunds to the payment gateway."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from booking_core import payments
from booking_core.clock import SECOND
from booking_core.db.engine import Database
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_core.settings import Settings
from booking_server.worker.jobs.leasing import LeaseJob

log = logging.getLogger("booking.refunds")

IN_FLIGHT_MAX = 16
"""Calls at once, each in a thread of its own: far below the rate that Stripe allows an account."""
LEASE_S = 45.0
"""Longer than the two calls that a refund takes at most, so that no heartbeat is needed."""
TURN_S = 5.0
_REFERRED_AT_ONCE = 100


class Gateway(Protocol):
    """A payment provider. Threads may share it."""

    def refund(self, claimed: ClaimedRefund) -> RefundResult:
        """Make a refund, or find out its state. Blocks, and raises for no answer or failure of the provider."""


class RefundJob(LeaseJob[ClaimedRefund, RefundResult]):
    """Sends the refunds of all organizations to a gateway, or refers them to staff when there is none."""

    name = "refunds"

    def __init__(
        self,
        database: Database,
        gateway: Gateway | None,
        *,
        lease_s: float = LEASE_S,
        first_delay_s: float = payments.FIRST_RETRY_DELAY_S,
        turn_s: float = TURN_S,
    ) -> None:
        super().__init__(database, in_flight_max=IN_FLIGHT_MAX, turn_s=turn_s)
        self._gateway = gateway
        self._lease_s = lease_s
        self._first_wait_s = first_delay_s
        self._threads = ThreadPoolExecutor(IN_FLIGHT_MAX, "refund")

    async def run_once(self) -> int:
        return await (super().run_once() if self._gateway else self._refer_to_staff())

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def claim(self, limit: int) -> tuple[list[ClaimedRefund], int]:
        claimed = await self._write(lambda tx: payments.claim(tx, limit=limit, lease_s=self._lease_s))
        return claimed, len(claimed)

    def start(self, unit: ClaimedRefund) -> "asyncio.Future[RefundResult]":
        lease_ends_at = self._database.clock() + round(self._lease_s * SECOND)
        return asyncio.get_running_loop().run_in_executor(self._threads, self._send, unit, lease_ends_at)

    async def settle(self, finished: "Sequence[asyncio.Future[RefundResult]]") -> None:
        results = _results(finished)
        await self._write(lambda tx: payments.settle(tx, results, first_delay_s=self._first_wait_s))

    async def _refer_to_staff(self) -> int:
        total = 0
        while referred := await self._write(lambda tx: payments.refer_to_staff(tx, limit=_REFERRED_AT_ONCE)):
            total += referred
        return total

    def _send(self, claimed: ClaimedRefund, lease_ends_at: int) -> RefundResult:
        """Call the gateway, unless the lease has expired.

        A machine that slept for a day would otherwise send an idempotency key that was checked the day before and that
        the gateway has forgotten since.
        """
        assert self._gateway is not None
        if self._database.clock() >= lease_ends_at:
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="lease_lost")
        return self._gateway.refund(claimed)


def _results(finished: "Sequence[asyncio.Future[RefundResult]]") -> list[RefundResult]:
    """Return the results, without calls that raised: their leases expire, and they delay no other result."""
    results = []
    for future in finished:
        if error := future.exception():
            log.error("a refund could not be sent to the gateway", exc_info=error)
        else:
            results.append(future.result())
    return results


def refund_job(settings: Settings, database: Database) -> RefundJob:
    """Create the job of an installation, with Stripe as its gateway when a key is set."""
    if settings.stripe_api_key is None:
        return RefundJob(database, None)
    # An installation without a key does not pay for importing the Stripe library.
    from booking_server.adapters.stripe import StripeGateway

    return RefundJob(database, StripeGateway(settings.stripe_api_key, settings.stripe_base_url))
