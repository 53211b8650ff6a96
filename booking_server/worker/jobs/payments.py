"""The jobs that ask Stripe for the state of payments, before and after the end of their checkouts, and send refunds."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from booking_core import bookings, payments
from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.errors import BookingError, Unavailable
from booking_core.base.settings import Settings
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentUpdate, PaymentCheck
from booking_core.db.engine import Database, Tx
from booking_core.due_work.rows import Processed
from booking_core.due_work.sweep import LOCK_WAIT_MS, Sweep
from booking_core.payments import ClaimedRefund, RefundOutcome, RefundResult
from booking_server.adapters.gateways import SandboxGateway, StripeAccounts
from booking_server.adapters.stripe_intents import IntentRefused, SandboxIntents, StripeIntents
from booking_server.worker.jobs.leasing import LeaseJob

# Payments -------------------------------------------------------------------------------------------------------------

log = logging.getLogger("booking.stripe")

CHECKS_IN_FLIGHT_MAX = 32
CHECKS_OF_ONE_MAX = 8
"""Calls at once for one organization: the others have the rest while its calls hang."""

StripeAnswer = tuple[PaymentCheck, IntentUpdate]
CheckResult = tuple[PaymentCheck, IntentUpdate | None]


class PaymentCheckJob(LeaseJob[PaymentCheck, CheckResult]):
    """Looks up the payments whose checks are due, of all organizations, and cancels the payments of abandoned
    checkouts."""

    name = "payments"

    def __init__(self, database: Database, installation: Installation, intents: StripeIntents) -> None:
        self.checks = Sweep("check_payments", database, checkouts.DUE, self._claim, is_lease=True)
        super().__init__(self.checks, in_flight_max=CHECKS_IN_FLIGHT_MAX, of_one_max=CHECKS_OF_ONE_MAX)
        self._installation = installation
        self._intents = intents
        self._of_sandboxes = SandboxIntents()

    def _claim(self, tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> Processed[PaymentCheck]:
        return checkouts.claim(tx, self._installation, organization_id, booking_ids)

    async def carry_out(self, unit: Sequence[PaymentCheck]) -> CheckResult:
        """Return the state of a payment; without an answer the check is due again when its lease has expired."""
        (check,) = unit
        intents = self._of_sandboxes if check.is_of_sandbox else self._intents
        ask = intents.cancel if check.must_cancel else intents.look_up
        try:
            return check, await ask(check.api_key, check.intent_id)
        except (BookingError, IntentRefused) as error:
            text = "the payment %s of booking %s cannot be looked up: %s"
            log.warning(text, check.intent_id, check.booking_id, error)
            return check, None

    async def settle(self, finished: "Sequence[asyncio.Future[CheckResult]]") -> None:
        """Record the states, one payment after the other: a failure affects no other payment."""
        for future in finished:
            if error := future.exception():
                log.error("a payment could not be looked up", exc_info=error)
                continue
            check, update = future.result()
            self.results["unknown" if update is None else update.state.value] += 1
            if update is not None:
                await self.checks.settle_each([(check, update)], self._record, _row_of_check)

    def _record(self, tx: Tx, answers: Sequence[StripeAnswer]) -> None:
        tx.limit_lock_waits(LOCK_WAIT_MS)
        for check, update in answers:
            checkouts.settle(tx, self._installation, check, update)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._intents.aclose()


def _row_of_check(answer: StripeAnswer) -> tuple[str, str]:
    return answer[0].organization_id, answer[0].booking_id


def payment_check_job(settings: Settings, database: Database, installation: Installation) -> PaymentCheckJob:
    """Create the job of an installation."""
    return PaymentCheckJob(database, installation, StripeIntents(settings.stripe_base_url))


# Refunds --------------------------------------------------------------------------------------------------------------

refunds_log = logging.getLogger("booking.refunds")

REFUNDS_IN_FLIGHT_MAX = 16
"""Calls at once, each in a separate thread: far below the rate that Stripe allows an account."""
LEASE_S = 45.0
"""Longer than the two calls that a refund takes at most: no heartbeat is needed."""
REFUNDS_OF_ONE_MAX = 12
"""Calls at once for one organization: a quarter is left for the others while its calls hang."""


class RefundJob(LeaseJob[ClaimedRefund, RefundResult]):
    """Sends the refunds of all organizations to a gateway. Refunds of sandboxes always go to the test gateway.

    Args:
        serves: returns whether the gateway makes the refunds of an organization; else they are referred to staff.
    """

    name = "refunds"

    def __init__(
        self,
        database: Database,
        gateway: StripeAccounts,
        *,
        lease_s: float = LEASE_S,
        first_delay_s: float = payments.FIRST_RETRY_DELAY_S,
        serves: Callable[[Tx, str], bool] = lambda tx, organization_id: True,
    ) -> None:
        def claim(tx: Tx, organization_id: str, refund_ids: Sequence[str]) -> Processed[ClaimedRefund]:
            has_gateway = serves(tx, organization_id)
            return payments.claim(tx, organization_id, refund_ids, lease_s=lease_s, has_gateway=has_gateway)

        self.claims = Sweep("send_refunds", database, payments.DUE, claim, is_lease=True)
        super().__init__(self.claims, in_flight_max=REFUNDS_IN_FLIGHT_MAX, of_one_max=REFUNDS_OF_ONE_MAX)
        self._database = database
        self._gateway = gateway
        self._sandbox_gateway = SandboxGateway(database)
        self._lease_s = lease_s
        self._first_wait_s = first_delay_s
        self._threads = ThreadPoolExecutor(REFUNDS_IN_FLIGHT_MAX, "refund")
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
        """Record the earlier results, then lease due refunds."""
        unsettled, self._unsettled = self._unsettled, []
        await self._settle(unsettled)
        return await super().start_due(stop)

    async def settle(self, finished: "Sequence[asyncio.Future[RefundResult]]") -> None:
        """Record the results, without calls that raised: their leases expire, and they delay no other result."""
        for error in filter(None, (future.exception() for future in finished)):
            refunds_log.error("a refund could not be sent to the gateway", exc_info=error)
        await self._settle([future.result() for future in finished if not future.exception()])

    async def _settle(self, results: Sequence[RefundResult]) -> None:
        """Record results. One whose booking is locked is kept for the next turn while its lease lasts."""
        if not results:
            return
        failed = await self.claims.settle_each(results, self._record, _row_of_refund)
        unrecorded = [result for result, _ in failed]
        self.results.update(result.outcome.value for result in results if result not in unrecorded)
        self._unsettled += [
            result for result, error in failed if isinstance(error, Unavailable) and self._is_leased(result.claimed)
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
        return gateway.refund(claimed)


def _row_of_refund(result: RefundResult) -> tuple[str, str]:
    return result.claimed.organization_id, result.claimed.id


def refund_job(settings: Settings, database: Database, installation: Installation) -> RefundJob:
    """Create the job of an installation, with the Stripe accounts of its organizations and its own as the gateway."""
    key, base_url = settings.stripe_api_key, settings.stripe_base_url
    accounts = StripeAccounts(database, installation, default_key=key, base_url=base_url)
    return RefundJob(database, accounts, serves=accounts.serves)
