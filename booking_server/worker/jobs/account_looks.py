"""The job that asks Stripe for refunds and disputes of each account, whose webhooks may have been lost."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.errors import BookingError, is_outage
from booking_core.base.settings import Settings
from booking_core.bookings import checkouts
from booking_core.bookings.checkouts import DISPUTES_SINCE, AccountLook, DisputeUpdate, IntentUpdate, Update
from booking_core.db.due import Processed
from booking_core.db.engine import Database, Tx
from booking_server.adapters.stripe_intents import IntentRefused, Refunded, StripeIntents
from booking_server.worker.jobs.leasing import LeaseJob
from booking_server.worker.jobs.sweep import LOCK_WAIT_MS, Sweep

log = logging.getLogger("booking.stripe")

IN_FLIGHT_MAX = 4
"""Looks at once: the budget of this job. Each asks for one thing after the other."""


class Account(Protocol):
    """The look-ups of a payment provider."""

    async def refunded(self, api_key: str, since_s: int, until_s: int) -> Refunded: ...

    async def disputes(self, api_key: str, since_s: int) -> list[DisputeUpdate]: ...

    async def look_up(self, api_key: str, intent_id: str) -> IntentUpdate: ...

    async def aclose(self) -> None: ...


class Found(NamedTuple):
    """The states that a look has found."""

    updates: Sequence[Update]
    seen_until: int | None
    """The instant up to which these are all refunds; None: Stripe has not answered."""


Result = tuple[AccountLook, Found]


class AccountLookJob(LeaseJob[AccountLook, Result]):
    """Looks at the accounts of all organizations in turn, one look of each at once."""

    name = "accounts"

    def __init__(self, database: Database, installation: Installation, account: Account) -> None:
        self.looks = Sweep("look_at_accounts", database, checkouts.LOOKS, self._claim, is_lease=True)
        super().__init__(self.looks, in_flight_max=IN_FLIGHT_MAX, of_one_max=1)
        self._installation = installation
        self._account = account

    def _claim(self, tx: Tx, organization_id: str, organization_ids: Sequence[str]) -> Processed[AccountLook]:
        return checkouts.claim_look(tx, self._installation, organization_id, organization_ids)

    def start(self, unit: Sequence[AccountLook]) -> "asyncio.Future[Result]":
        return asyncio.ensure_future(self._look(unit[0]))

    async def _look(self, look: AccountLook) -> Result:
        disputes = await self._disputes(look)
        try:
            found = await self._account.refunded(look.api_key, look.since // SECOND, look.until // SECOND)
            refunds = [update for each in found.intent_ids if (update := await self._payment(look, each))]
        except (BookingError, IntentRefused) as error:
            log.warning("the refunds of %s cannot be looked up at Stripe: %s", look.organization_id, error)
            return look, Found(disputes, None)
        is_whole = found.until_s >= look.until // SECOND
        return look, Found([*disputes, *refunds], look.until if is_whole else found.until_s * SECOND)

    async def _disputes(self, look: AccountLook) -> Sequence[Update]:
        """Return the disputes; none if Stripe does not answer, or the key may not read them."""
        try:
            return await self._account.disputes(look.api_key, (look.until - DISPUTES_SINCE) // SECOND)
        except (BookingError, IntentRefused) as error:
            log.warning("the disputes of %s cannot be looked up at Stripe: %s", look.organization_id, error)
            return ()

    async def _payment(self, look: AccountLook, intent_id: str) -> IntentUpdate | None:
        try:
            return await self._account.look_up(look.api_key, intent_id)
        except IntentRefused:  # it is gone, or of an account that is connected with this one
            return None

    async def settle(self, finished: "Sequence[asyncio.Future[Result]]") -> None:
        """Record the states, one payment after the other, and then the end of each look."""
        for future in finished:
            if error := future.exception():
                log.error("an account could not be looked at", exc_info=error)
                continue
            look, found = future.result()
            self.results["unanswered" if found.seen_until is None else "looked_at"] += 1
            for update in found.updates:
                await self._record(look, update)
            await self.looks.settle(self._end(look, found), [(look.organization_id, look.organization_id)])

    async def _record(self, look: AccountLook, update: Update) -> None:
        """Record a state. One that fails, by a defect, is logged and keeps no other."""

        def write(tx: Tx) -> None:
            tx.limit_lock_waits(LOCK_WAIT_MS)
            checkouts.record_look(tx, self._installation, look.organization_id, update)

        try:
            await self.looks.settle(write, [])
        except Exception as error:
            if is_outage(error):
                raise
            text = "the payment %s of %s, as it is at Stripe, cannot be recorded"
            log.error(text, update.intent_id, look.organization_id, exc_info=error)

    def _end(self, look: AccountLook, found: Found) -> Callable[[Tx], None]:
        return lambda tx: checkouts.settle_look(tx, look, found.seen_until)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._account.aclose()


def account_look_job(settings: Settings, database: Database, installation: Installation) -> AccountLookJob:
    """Create the job of an installation."""
    return AccountLookJob(database, installation, StripeIntents(settings.stripe_base_url))
