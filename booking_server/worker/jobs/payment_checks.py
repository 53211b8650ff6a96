"""The job that asks Stripe for the state of payments before and behind the end of their checkouts."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from booking_core.base.context import Installation
from booking_core.base.errors import BookingError, is_outage
from booking_core.base.settings import Settings
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentUpdate, PaymentCheck
from booking_core.db.due import Processed
from booking_core.db.engine import Database, Tx
from booking_server.adapters.sandbox import SandboxIntents
from booking_server.adapters.stripe_intents import IntentRefused, StripeIntents
from booking_server.worker.jobs.leasing import LeaseJob
from booking_server.worker.jobs.sweep import LOCK_WAIT_MS, Sweep

log = logging.getLogger("booking.stripe")

IN_FLIGHT_MAX = 32
OF_ONE_MAX = 8
"""Calls at once for one organization: the others have the rest while its calls hang."""

Result = tuple[PaymentCheck, IntentUpdate | None]


class Intents(Protocol):
    """The look-ups of a payment provider."""

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate: ...

    async def cancel(self, api_key: str, intent_id: str) -> IntentUpdate: ...

    async def aclose(self) -> None: ...


class PaymentCheckJob(LeaseJob[PaymentCheck, Result]):
    """Looks up the payments of all organizations whose checks are due, and cancels those of abandoned checkouts."""

    name = "payments"

    def __init__(self, database: Database, installation: Installation, intents: Intents) -> None:
        self.checks = Sweep("check_payments", database, checkouts.DUE, self._claim, is_lease=True)
        super().__init__(self.checks, in_flight_max=IN_FLIGHT_MAX, of_one_max=OF_ONE_MAX)
        self._database = database
        self._installation = installation
        self._intents = intents
        self._of_sandboxes = SandboxIntents()

    def _claim(self, tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> Processed[PaymentCheck]:
        return checkouts.claim(tx, self._installation, organization_id, booking_ids)

    def start(self, unit: Sequence[PaymentCheck]) -> "asyncio.Future[Result]":
        return asyncio.ensure_future(self._ask(unit[0]))

    async def _ask(self, check: PaymentCheck) -> Result:
        """Return the state of a payment; without an answer the check is due again when its lease has expired."""
        intents: Intents | SandboxIntents = self._of_sandboxes if check.is_of_sandbox else self._intents
        ask = intents.cancel if check.must_cancel else intents.look_up
        try:
            return check, await ask(check.api_key, check.intent_id)
        except (BookingError, IntentRefused) as error:
            text = "the payment %s of booking %s cannot be looked up: %s"
            log.warning(text, check.intent_id, check.booking_id, error)
            return check, None

    async def settle(self, finished: "Sequence[asyncio.Future[Result]]") -> None:
        """Record the states, one payment after the other, so that none fails for another."""
        for future in finished:
            if error := future.exception():
                log.error("a payment could not be looked up", exc_info=error)
                continue
            check, update = future.result()
            self.results["unknown" if update is None else update.state.value] += 1
            if update is not None:
                await self._record(check, update)

    async def _record(self, check: PaymentCheck, update: IntentUpdate) -> None:
        def write(tx: Tx) -> None:
            tx.limit_lock_waits(LOCK_WAIT_MS)
            checkouts.settle(tx, self._installation, check, update)

        try:
            await self.checks.settle(write, [(check.organization_id, check.booking_id)])
        except Exception as error:
            if is_outage(error):
                raise
            await self.checks.park(check.organization_id, check.booking_id, error)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._intents.aclose()


def payment_check_job(settings: Settings, database: Database, installation: Installation) -> PaymentCheckJob:
    """Create the job of an installation."""
    return PaymentCheckJob(database, installation, StripeIntents(settings.stripe_base_url))
