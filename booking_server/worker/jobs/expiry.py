"""What falls due by the clock alone: checkouts that nobody paid, departures that too few booked, keys that expire."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from booking_core import bookings, keys, retention_clock, storefront
from booking_core.clock import HOUR, MINUTE, SECOND, has_passed
from booking_core.context import Installation
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable
from booking_server.worker.clock_watch import ClockWatch

log = logging.getLogger("booking.clock")

BATCH = 50
ABANDON_EVERY = SECOND
"""Checkouts that expired keep seats from others. Not at every turn: each booking wakes the worker, and what comes with
a rush must not stand in its way."""
MINIMUM_EVERY = MINUTE
KEYS_EVERY = HOUR
"""Whoever is told a week ahead does not mind an hour."""

Sweep = Callable[[Tx], int]


class Sweeping:
    """Several sweeps, each at its own pace, in short transactions."""

    name = "sweeping"

    def __init__(
        self,
        database: Database,
        installation: Installation,
        *,
        watch: ClockWatch | None = None,
        realign: Sequence[Sweep] = (),
    ) -> None:
        """Without a watch the clock is believed as it is.

        Args:
            realign: brings back what a clock that was set back has left too far ahead.
        """
        self._database = database
        self._watch = watch
        self._realign = realign
        self._looked_at = 0
        cancel_on: Sweep = lambda tx: bookings.cancel_on(tx, installation)  # noqa: E731
        self._paces: dict[Sweep, int] = {
            lambda tx: storefront.abandon_due(tx, installation, limit=BATCH): ABANDON_EVERY,
            lambda tx: bookings.cancel_under_minimum(tx, installation): MINIMUM_EVERY,
            cancel_on: ABANDON_EVERY,
            lambda tx: keys.warn_expiring(tx, limit=BATCH): KEYS_EVERY,
        }
        self._swept_at = dict.fromkeys(self._paces, 0)
        self._whatever_the_clock_says = {cancel_on}
        """What goes on with what was begun; every other sweep does what cannot be undone because it is late."""

    async def run_once(self) -> int:
        """Does all that is due, and gives how much that was. A sweep that fails keeps no other from its turn."""
        now, done = self._database.clock(), 0
        await self._look(now)
        failed: Exception | None = None
        for sweep in self._due(now):
            try:
                done += await self._in_batches(sweep)
            except Exception as error:  # told when the others have had their turn
                if isinstance(error, Unavailable) and error.for_all:
                    raise
                failed = error
            self._swept_at[sweep] = now
        if failed:
            raise failed
        return done + await self._bring_back()

    async def _look(self, now: int) -> None:
        """Compare the database's clock with this process's own, as often as anything may be swept."""
        if self._watch is not None and has_passed(ABANDON_EVERY, self._looked_at, now):
            asked_s = self._watch.elapsed_s()
            shown, observed = await asyncio.to_thread(self._database.read, retention_clock.read)
            self._watch.look(shown, observed, asked_s=asked_s)
            self._looked_at = now

    def _due(self, now: int) -> list[Sweep]:
        is_settled = self._watch is None or self._watch.is_settled
        return [
            sweep
            for sweep, pace in self._paces.items()
            if has_passed(pace, self._swept_at[sweep], now) and (is_settled or sweep in self._whatever_the_clock_says)
        ]

    async def _bring_back(self) -> int:
        """Realign what a clock wrote that was ahead of this one, when there may be such."""
        if self._watch is None or not self._watch.must_realign:
            return 0
        self._watch.must_realign = False  # set again when the clock is set back meanwhile
        try:
            done = sum([await self._in_batches(realign) for realign in self._realign])
        except BaseException:
            self._watch.must_realign = True
            raise
        if done:
            log.warning("%d instants lay too far ahead and were brought back", done)
        return done

    async def _in_batches(self, sweep: Sweep) -> int:
        done = 0
        while count := await asyncio.to_thread(self._database.write, sweep):
            done += count
        return done

    async def close(self) -> None:
        """Nothing is held open."""
