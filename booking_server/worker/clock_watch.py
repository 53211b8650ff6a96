"""Detects jumps of the database's clock by comparing it with this process's monotonic clock (decision 0019).

The database's clock decides which rows are due. After a jump forward everything looks late; after the clock was set
back, rows that were due seem to be due in the future.
"""

import logging
from collections.abc import Callable

from booking_core.clock import DAY, MINUTE, SECOND, elapsed_s

log = logging.getLogger("booking.clock")

JUMP = MINUTE
"""More than this is neither a slewing clock nor a slow query."""
SET_BACK = 2 * SECOND
"""A smaller step back delays due rows by no more than this."""
FIRST_JUMP = DAY
"""A process that starts has only the retention clock to compare with, which is behind after every pause of the
service."""
SETTLE_S = 1800.0
"""The default time to pay for a checkout: a guest who was paying when the clock jumped can still finish."""


class ClockWatch:
    """The clock of one database, watched by one process."""

    def __init__(self, *, elapsed_s: Callable[[], float] = elapsed_s) -> None:
        self.elapsed_s = elapsed_s
        self._last: tuple[int, float, float] | None = None
        """The last reading, and the monotonic seconds before and after it was taken."""
        self._ahead = 0
        """How far the clock has jumped ahead since it was last trusted."""
        self._jumped_at_s = 0.0
        self.must_realign = True
        """Some rows may hold times that were written by a clock ahead of this one. True at the start, to be safe."""

    @property
    def is_settled(self) -> bool:
        """The clock can be trusted about which rows are late."""
        return self._ahead <= JUMP

    def observe(self, now: int, retention_clock: int | None = None, *, read_at_s: float | None = None) -> None:
        """Compare a reading of the clock with the monotonic clock.

        Args:
            retention_clock: its reading, for the first call in a process.
            read_at_s: the monotonic clock just before the reading was requested; the database may have been slow.
        """
        elapsed_s = self.elapsed_s()
        read_at_s = elapsed_s if read_at_s is None else read_at_s
        step = self._step(now, retention_clock, read_at_s, elapsed_s)
        self._last = now, read_at_s, elapsed_s
        self._ahead += step
        if step < -SET_BACK:
            self.must_realign = True
            log.warning("the clock was set back by %.0f s: rows that wait too long become due", -step / SECOND)
        if step > JUMP:
            self._jumped_at_s = elapsed_s
            log.warning("the clock jumped ahead by %.0f s: nothing expires until it settles", step / SECOND)
        elif self.is_settled or elapsed_s - self._jumped_at_s >= SETTLE_S:
            self._ahead = 0

    def _step(self, now: int, retention_clock: int | None, read_at_s: float, elapsed_s: float) -> int:
        """Return the smallest step that explains two readings, each taken at an unknown moment of its request."""
        if self._last is None:
            jump = 0 if retention_clock is None else now - retention_clock
            return jump if jump > FIRST_JUMP else 0
        last, last_read_at_s, last_elapsed_s = self._last
        least = now - last - round((elapsed_s - last_read_at_s) * SECOND)
        most = now - last - round((read_at_s - last_elapsed_s) * SECOND)
        return least if least > 0 else min(most, 0)
