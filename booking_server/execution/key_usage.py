"""When each key was last used: known to the minute, without a write for each request (decision K4)."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator

from booking_core import keys
from booking_core.clock import HOUR, MINUTE
from booking_core.context import Caller
from booking_core.db.engine import Database
from booking_core.errors import Unavailable
from booking_core.repeated_log import RepeatedLog

log = logging.getLogger("booking.uses")

FLUSH_S = 15.0
"""What a process that is killed forgets at most."""


class Uses:
    """The uses that a process has seen and not yet written down."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failed = RepeatedLog(log)
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], int] = {}
        """The minute, by organization and key."""

    def note(self, caller: Caller) -> None:
        """Remembers that the key is used now, unless it is known to have been used in this minute."""
        minute = caller.at - caller.at % MINUTE
        last = caller.key.last_used_at or 0
        if not minute <= last <= minute + HOUR:  # further ahead is of a clock that was set back since
            with self._lock:
                self._seen[caller.organization.id, caller.key.id] = minute

    def flush(self) -> None:
        """Writes down what was noted since the last time; what cannot be written is kept for the next.

        Raises:
            Unavailable: the database is away or too busy.
        """
        with self._lock:
            seen, self._seen = self._seen, {}
        if not seen:
            return
        try:
            self._database.write(lambda tx: keys.touch(tx, [(*key, at) for key, at in sorted(seen.items())]))
        except BaseException:
            with self._lock:
                self._seen = seen | self._seen  # what was noted meanwhile is newer
            raise

    @contextlib.asynccontextmanager
    async def flushing(self, every_s: float = FLUSH_S) -> AsyncIterator[None]:
        """Flushes again and again for as long as one is inside, and a last time at the end."""
        task = asyncio.create_task(self._keep_flushing(every_s))
        try:
            yield
        finally:
            task.cancel()
            await self._try_to_flush()

    async def _keep_flushing(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._try_to_flush()

    async def _try_to_flush(self) -> None:
        try:
            await asyncio.to_thread(self.flush)
        except Exception as error:  # noqa: BLE001 - when a key was used is worth no outage, and is tried again
            if isinstance(error, Unavailable) and error.fault:
                return  # the database logs it, once for everything that runs into it
            text = f"when keys were used could not be written down, and is kept: {error}"
            self._failed.note(logging.WARNING, type(error).__name__, text)
