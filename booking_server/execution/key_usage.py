"""Records when each API key was last used: to the minute, without a write for each request (decision K4)."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator

from booking_core.base.clock import HOUR, MINUTE
from booking_core.base.context import Caller
from booking_core.base.errors import Unavailable
from booking_core.base.repeated_log import RepeatedLog
from booking_core.db.engine import Database
from booking_core.organizations import keys

log = logging.getLogger("booking.key_usage")

FLUSH_S = 15.0
"""The interval between two writes, and so the most that a killed process loses."""


class KeyUsage:
    """The uses of keys that this process has seen and not yet written to the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failures = RepeatedLog(log)
        self._lock = threading.Lock()
        self._unwritten: dict[tuple[str, str], int] = {}
        """The minute of the last use, by organization and key."""

    def note(self, caller: Caller) -> None:
        """Remember that the key is used now, unless the database already has a use in this minute."""
        minute = caller.at - caller.at % MINUTE
        last = caller.key.last_used_at or 0
        # A last use more than an hour ahead was written by a clock that has been set back since.
        if not minute <= last <= minute + HOUR:
            with self._lock:
                self._unwritten[caller.organization.id, caller.key.id] = minute

    def flush(self) -> None:
        """Write the remembered uses to the database; keep them when that fails.

        Raises:
            Unavailable: the database is away or too busy.
        """
        with self._lock:
            uses, self._unwritten = self._unwritten, {}
        if not uses:
            return
        try:
            self._database.write(lambda tx: keys.touch(tx, [(*key, at) for key, at in sorted(uses.items())]))
        except BaseException:
            with self._lock:
                self._unwritten = uses | self._unwritten  # a use that was noted meanwhile is newer
            raise

    @contextlib.asynccontextmanager
    async def flushing(self, every_s: float = FLUSH_S) -> AsyncIterator[None]:
        """Flush at an interval while the body runs, and once more at its end."""
        task = asyncio.create_task(self._flush_forever(every_s))
        try:
            yield
        finally:
            task.cancel()
            await self._try_flush()

    async def _flush_forever(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await asyncio.to_thread(self.flush)
        except Exception as error:  # noqa: BLE001 - the time of a use is worth no outage, and is tried again
            if isinstance(error, Unavailable) and error.fault:
                return  # the database logs such a fault itself, once for all callers
            text = f"the last uses of keys could not be written and are kept: {error}"
            self._failures.note(logging.WARNING, type(error).__name__, text)
