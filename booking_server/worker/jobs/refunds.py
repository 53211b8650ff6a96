"""The chore that gives money back: what is due is leased, sent to the gateway, and settled.

No transaction is open during a call, and a slow answer holds up no other refund: as soon as one is settled, its place
is taken by the next.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from booking_core import payments
from booking_core.clock import SECOND
from booking_core.db.engine import Database, Tx
from booking_core.payments import Answered, Claimed, Outcome
from booking_core.settings import Settings

log = logging.getLogger("booking.refunds")

T = TypeVar("T")

IN_FLIGHT = 16
"""Calls at once, each with a thread of its own: far below what Stripe allows an account."""
LEASE_S = 45.0
"""Longer than the two calls that a refund takes at most, so that no heartbeat is needed."""
TURN_S = 5.0
"""After so long a turn takes nothing new, so that a worker that is asked to stop does."""
_REFERRED_AT_ONCE = 100


class Gateway(Protocol):
    """Makes one refund, or says what became of it; blocks, and never raises for what the other side does."""

    def refund(self, claimed: Claimed) -> Answered: ...


class Refunding:
    """The refunds of all organizations. Without a gateway they are left to staff."""

    name = "refunds"

    def __init__(
        self,
        database: Database,
        gateway: Gateway | None,
        *,
        lease_s: float = LEASE_S,
        first_wait_s: float = payments.FIRST_WAIT_S,
        turn_s: float = TURN_S,
    ) -> None:
        self._database = database
        self._gateway = gateway
        self._lease_s = lease_s
        self._first_wait_s = first_wait_s
        self._turn_s = turn_s
        self._threads = ThreadPoolExecutor(IN_FLIGHT, "refund")

    async def run_once(self) -> int:
        """Settles all that is due now, as far as a turn goes, and gives how many attempts that took."""
        if self._gateway is None:
            return await self._refer()
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._turn_s
        claimed, done = await self._claim(IN_FLIGHT), 0
        under_way: set[asyncio.Future[Answered]] = set()
        try:
            while claimed or under_way:
                done += len(claimed)
                under_way.update(self._start(self._gateway, each) for each in claimed)
                finished, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                await self._settle(_answers(finished))
                claimed = await self._claim(IN_FLIGHT - len(under_way)) if loop.time() < ends_at else []
            return done
        finally:
            if under_way:  # the database is away: what is being sent is sent again, with the same key
                await asyncio.wait(under_way)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _refer(self) -> int:
        done = 0
        while referred := await self._write(lambda tx: payments.refer(tx, limit=_REFERRED_AT_ONCE)):
            done += referred
        return done

    async def _claim(self, limit: int) -> list[Claimed]:
        return await self._write(lambda tx: payments.claim(tx, limit=limit, lease_s=self._lease_s))

    async def _settle(self, answers: list[Answered]) -> None:
        await self._write(lambda tx: payments.settle(tx, answers, first_wait_s=self._first_wait_s))

    def _start(self, gateway: Gateway, claimed: Claimed) -> "asyncio.Future[Answered]":
        ends_at = self._database.clock() + round(self._lease_s * SECOND)
        return asyncio.get_running_loop().run_in_executor(self._threads, self._send, gateway, claimed, ends_at)

    def _send(self, gateway: Gateway, claimed: Claimed, ends_at: int) -> Answered:
        """Not any more once its lease has passed: a machine that slept for a day would send a key that was looked at
        the day before, and that the gateway has forgotten since."""
        if self._database.clock() >= ends_at:
            return Answered(claimed, Outcome.UNKNOWN, reason="lease_lost")
        return gateway.refund(claimed)

    async def _write(self, fn: Callable[[Tx], T]) -> T:
        return await asyncio.to_thread(self._database.write, fn)


def _answers(finished: "Iterable[asyncio.Future[Answered]]") -> list[Answered]:
    """What was answered. A fault of ours leaves a lease that runs out, and takes nobody else's answer with it."""
    answers = []
    for each in finished:
        if fault := each.exception():
            log.error("a refund could not be asked for", exc_info=fault)
        else:
            answers.append(each.result())
    return answers


def refunding(settings: Settings, database: Database) -> Refunding:
    """The chore of an installation; its gateway is Stripe, when a key is set."""
    if settings.stripe_api_key is None:
        return Refunding(database, None)
    from booking_server.adapters.stripe import StripeGateway  # costs what nobody without a key needs to pay

    return Refunding(database, StripeGateway(settings.stripe_api_key, settings.stripe_base_url))
