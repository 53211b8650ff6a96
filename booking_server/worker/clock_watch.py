"""Steps of the clock, as far as one process can see them (decision 0019).

The database's clock decides what is due. A process that compares it with its own monotonic clock sees when somebody
sets it: a leap forward makes everything look late, a step back leaves what was due a step away.
"""

import logging
from collections.abc import Callable

from booking_core.clock import DAY, MINUTE, SECOND, elapsed_s

log = logging.getLogger("booking.clock")

LEAP = MINUTE
"""More than this is no slewing and no slow query."""
SET_BACK = 2 * SECOND
"""What is due waits no longer than this for a smaller step."""
FIRST_LEAP = DAY
"""At its start a process knows only the retention clock, which is behind after every pause of the service."""
SETTLES_S = 1800.0
"""As long as a checkout is held unless said: who was paying when the clock leapt still can."""


class ClockWatch:
    """The clock of one database, watched by one process."""

    def __init__(self, *, elapsed_s: Callable[[], float] = elapsed_s) -> None:
        self.elapsed_s = elapsed_s
        self._seen: tuple[int, float, float] | None = None
        self._ahead = 0
        """How far the clock has leapt since it was last believed."""
        self._leapt_at_s = 0.0
        self.must_realign = True
        """There may be instants that a clock wrote which was ahead of this one; nobody knows at the start."""

    @property
    def is_settled(self) -> bool:
        """Whether the clock can be believed about what is late."""
        return self._ahead <= LEAP

    def look(self, now: int, observed: int | None = None, *, asked_s: float | None = None) -> None:
        """Compare the clock with the monotonic one.

        Args:
            observed: the retention clock, for the first look of a process.
            asked_s: the monotonic clock when the database was asked; it may have taken its time.
        """
        elapsed_s = self.elapsed_s()
        asked_s = elapsed_s if asked_s is None else asked_s
        step = self._step(now, observed, asked_s, elapsed_s)
        self._seen = now, asked_s, elapsed_s
        self._ahead += step
        if step < -SET_BACK:
            self.must_realign = True
            log.warning("the clock was set back by %.0f s: what it made wait becomes due", -step / SECOND)
        if step > LEAP:
            self._leapt_at_s = elapsed_s
            log.warning("the clock leapt ahead by %.0f s: nothing is given up for being late meanwhile", step / SECOND)
        elif self.is_settled or elapsed_s - self._leapt_at_s >= SETTLES_S:
            self._ahead = 0

    def _step(self, now: int, observed: int | None, asked_s: float, elapsed_s: float) -> int:
        """Return by how much the clock was set at least; nobody knows when between two readings it was read."""
        if self._seen is None:
            return now - observed if observed is not None and now - observed > FIRST_LEAP else 0
        last, last_asked_s, last_s = self._seen
        least = now - last - round((elapsed_s - last_asked_s) * SECOND)
        most = now - last - round((asked_s - last_s) * SECOND)
        return least if least > 0 else min(most, 0)
