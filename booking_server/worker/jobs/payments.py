"""The job that asks Stripe for the state of payments before and behind the end of their checkouts."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from booking_core.base.context import Installation
from booking_core.base.errors import BookingError
from booking_core.base.settings import Settings
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import IntentUpdate, PaymentCheck
from booking_core.db.due import Processed
from booking_core.db.engine import Database, Tx
from booking_server.adapters.stripe_intents import IntentRefused, SandboxIntents, StripeIntents
from booking_server.worker.jobs.leasing import LeaseJob
from booking_server.worker.jobs.sweep import LOCK_WAIT_MS, Sweep

log = logging.getLogger("booking.stripe")

IN_FLIGHT_MAX = 32
OF_ONE_MAX = 8
"""Calls at once for one organization: the others have the rest while its calls hang."""

Answer = tuple[PaymentCheck, IntentUpdate]
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
        self._installation = installation
        self._intents = intents
        self._of_sandboxes = SandboxIntents()

    def _claim(self, tx: Tx, organization_id: str, booking_ids: Sequence[str]) -> Processed[PaymentCheck]:
        return checkouts.claim(tx, self._installation, organization_id, booking_ids)

    async def carry_out(self, unit: Sequence[PaymentCheck]) -> Result:
        """Return the state of a payment; without an answer the check is due again when its lease has expired."""
        (check,) = unit
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
                await self.checks.settle_each([(check, update)], self._record, _row_of)

    def _record(self, tx: Tx, answers: Sequence[Answer]) -> None:
        tx.limit_lock_waits(LOCK_WAIT_MS)
        for check, update in answers:
            checkouts.settle(tx, self._installation, check, update)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._intents.aclose()


def _row_of(answer: Answer) -> tuple[str, str]:
    return answer[0].organization_id, answer[0].booking_id


def payment_check_job(settings: Settings, database: Database, installation: Installation) -> PaymentCheckJob:
    """Create the job of an installation."""
    return PaymentCheckJob(database, installation, StripeIntents(settings.stripe_base_url))
