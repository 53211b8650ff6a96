"""The job that sends refunds to the payment gateway."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from booking_core import bookings, payments
from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.db.due import Processed
from booking_core.db.engine import Database, Tx
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_server.adapters.gateways import Gateway, SandboxGateway, StripeAccounts
from booking_server.worker.jobs.leasing import LeaseJob
from booking_server.worker.jobs.sweep import LOCK_WAIT_MS, Sweep

log = logging.getLogger("booking.refunds")

IN_FLIGHT_MAX = 16
"""Calls at once, each in a thread of its own: far below the rate that Stripe allows an account."""
LEASE_S = 45.0
"""Longer than the two calls that a refund takes at most, so that no heartbeat is needed."""
OF_ONE_MAX = 12
"""Calls at once for one organization: a quarter is left for the others while its calls hang."""


class RefundJob(LeaseJob[ClaimedRefund, RefundResult]):
    """Sends the refunds of all organizations to a gateway, or refers them to staff when there is none.

    Those of sandboxes go to the test gateway, whatever gateway there is.

    Args:
        serves: returns whether the gateway makes the refunds of an organization.
    """

    name = "refunds"

    def __init__(
        self,
        database: Database,
        gateway: Gateway | None,
        *,
        lease_s: float = LEASE_S,
        first_delay_s: float = payments.FIRST_RETRY_DELAY_S,
        serves: Callable[[Tx, str], bool] = lambda tx, organization_id: True,
    ) -> None:
        refer = partial(payments.refer_to_staff, lease_s=lease_s)

        def claim(tx: Tx, organization_id: str, refund_ids: Sequence[str]) -> Processed[ClaimedRefund]:
            if not serves(tx, organization_id):
                return refer(tx, organization_id, refund_ids)
            return payments.claim(tx, organization_id, refund_ids, lease_s=lease_s)

        self.claims: Sweep[ClaimedRefund] = Sweep("send_refunds", database, payments.DUE, claim, is_lease=True)
        self.referrals: Sweep[ClaimedRefund] = Sweep("refer_refunds", database, payments.DUE, refer)
        in_use = self.claims if gateway else self.referrals
        super().__init__(in_use, in_flight_max=IN_FLIGHT_MAX, of_one_max=OF_ONE_MAX)
        self._database = database
        self._gateway = gateway
        self._sandbox_gateway = SandboxGateway(database)
        self._lease_s = lease_s
        self._first_wait_s = first_delay_s
        self._threads = ThreadPoolExecutor(IN_FLIGHT_MAX, "refund")
        self._unsettled: list[RefundResult] = []
        """Results that could not be recorded because a row was locked."""

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await asyncio.to_thread(self._threads.shutdown)

    async def carry_out(self, unit: Sequence[ClaimedRefund]) -> RefundResult:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._send, unit[0])

    async def start_due(self, stop: asyncio.Event) -> int:
        """Record the results of before, then lease what is due."""
        unsettled, self._unsettled = self._unsettled, []
        await self._settle(unsettled)
        return await super().start_due(stop)

    async def settle(self, finished: "Sequence[asyncio.Future[RefundResult]]") -> None:
        """Record the results, without calls that raised: their leases expire, and they delay no other result."""
        for error in filter(None, (future.exception() for future in finished)):
            log.error("a refund could not be sent to the gateway", exc_info=error)
        await self._settle([future.result() for future in finished if not future.exception()])

    async def _settle(self, results: Sequence[RefundResult]) -> None:
        """Record results. One whose booking is locked is kept for the next turn while its lease lasts."""
        if not results:
            return
        failed = await self._claims.settle_each(results, self._record, _row_of)
        unrecorded = [result for result, _ in failed]
        self.results.update(each.outcome.value for each in results if each not in unrecorded)
        self._unsettled += [
            each for each, error in failed if isinstance(error, Unavailable) and self._is_leased(each.claimed)
        ]

    def _is_leased(self, claimed: ClaimedRefund) -> bool:
        return self._database.clock() < claimed.at - claimed.ahead + round(self._lease_s * SECOND)

    def _record(self, tx: Tx, results: Sequence[RefundResult]) -> None:
        tx.limit_lock_waits(LOCK_WAIT_MS)
        bookings.settle_refunds(tx, results, first_delay_s=self._first_wait_s)

    def _send(self, claimed: ClaimedRefund) -> RefundResult:
        """Call the gateway, unless the lease has expired.

        A machine that slept for a day would otherwise send an idempotency key that was checked the day before and that
        the gateway has forgotten since.
        """
        if not self._is_leased(claimed):
            return RefundResult(claimed, RefundOutcome.UNKNOWN, reason="lease_lost")
        gateway = self._sandbox_gateway if claimed.is_of_sandbox else self._gateway
        assert gateway is not None, "without a gateway, refunds are referred to staff"
        return gateway.refund(claimed)


def _row_of(result: RefundResult) -> tuple[str, str]:
    return result.claimed.organization_id, result.claimed.id


def refund_job(settings: Settings, database: Database, installation: Installation) -> RefundJob:
    """Create the job of an installation, with the Stripe accounts of its organizations and its own as the gateway."""
    key, base_url = settings.stripe_api_key, settings.stripe_base_url
    accounts = StripeAccounts(database, installation, default_key=key, base_url=base_url)
    return RefundJob(database, accounts, serves=accounts.serves)
