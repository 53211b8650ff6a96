"""What falls due by the clock alone: checkouts that nobody paid, departures that too few booked, keys that expire."""

import asyncio
from collections.abc import Callable

from booking_core import bookings, keys, storefront
from booking_core.caller import Installation
from booking_core.clock import HOUR, MINUTE, SECOND, has_passed
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable

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

    def __init__(self, database: Database, installation: Installation) -> None:
        self._database = database
        self._paces: dict[Sweep, int] = {
            lambda tx: storefront.abandon_due(tx, installation, limit=BATCH): ABANDON_EVERY,
            lambda tx: bookings.cancel_under_minimum(tx, installation): MINIMUM_EVERY,
            lambda tx: bookings.cancel_on(tx, installation): ABANDON_EVERY,
            lambda tx: keys.warn_expiring(tx, limit=BATCH): KEYS_EVERY,
        }
        self._swept_at = dict.fromkeys(self._paces, 0)

    async def run_once(self) -> int:
        """Does all that is due, and gives how much that was. A sweep that fails keeps no other from its turn."""
        now, done = self._database.clock(), 0
        failed: Exception | None = None
        for sweep, pace in self._paces.items():
            if has_passed(pace, self._swept_at[sweep], now):
                try:
                    done += await self._in_batches(sweep)
                except Exception as error:  # told when the others have had their turn
                    if isinstance(error, Unavailable) and error.for_all:
                        raise
                    failed = error
                self._swept_at[sweep] = now
        if failed:
            raise failed
        return done

    async def _in_batches(self, sweep: Sweep) -> int:
        done = 0
        while count := await asyncio.to_thread(self._database.write, sweep):
            done += count
        return done

    async def close(self) -> None:
        """Nothing is held open."""
