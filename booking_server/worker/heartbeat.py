"""The heartbeat of a worker: a row that is written every few seconds while all of its loops have turns."""

import asyncio
from collections.abc import Callable

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.errors import BookingError
from booking_core.db.engine import Database, Tx
from booking_core.upkeep import worker_heartbeats
from booking_server.monitoring.health import STALLED_S
from booking_server.worker import loops

NAME = "the heartbeat"


class Heartbeat:
    """Writes the heartbeat of one worker."""

    def __init__(self, database: Database, turns: loops.Turns, failures: loops.FailureLog) -> None:
        self._database = database
        self._turns = turns
        self._failures = failures
        self._worker_id = tokens.new_id()

    async def run(self, stop: asyncio.Event) -> None:
        """Write heartbeats until `stop` is set, then delete the row."""
        while not stop.is_set():
            await self.beat()
            await loops.sleep(stop, worker_heartbeats.EVERY / SECOND)
        await self._try(lambda tx: worker_heartbeats.remove(tx, self._worker_id))

    async def beat(self) -> None:
        """Write a heartbeat, unless one of the loops has stalled."""
        if not self._turns.stalled(STALLED_S):
            await self._try(lambda tx: worker_heartbeats.beat(tx, self._worker_id))

    async def _try(self, fn: Callable[[Tx], None]) -> None:
        try:
            await asyncio.to_thread(self._database.write, fn)
        except Exception as error:  # noqa: BLE001 - the loops go on, whatever the database does to a heartbeat
            # A database that is away is logged by the loops that need it.
            if not isinstance(error, BookingError):
                self._failures.add(NAME, error)
