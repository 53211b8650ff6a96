"""Turns of several processes at the one writer of an SQLite file.

A process that waits for the lock of the file can only look whether it is free, again and again. So it seldom finds it
between two transactions of a process that begins the next one at once, such as an import or a purge.
"""

import threading
import time
from collections.abc import Callable

HELD_MAX_S = 0.01
"""A process that has held the lock for longer than it left it free, by this much, leaves it free before it goes on."""
FREE_MAX_S = 0.05
"""The longest pause: a process that waits looks every few milliseconds."""


class WriterTurns:
    """Leaves the lock to other processes for as long as this one has held it, for processes beside the serving one.

    Args:
        clock: returns monotonic seconds.
        sleep: sleeps for the given number of seconds.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._held_s = 0.0
        """Seconds for which the lock was held, less those for which it was free since."""
        self._since_s = clock()
        """When the lock was last taken or released."""

    def before(self) -> None:
        """Pause before a transaction if it is the turn of others."""
        with self._lock:
            self._held_s = max(0.0, self._held_s - self._elapsed_s())
            pause_s, is_due = min(self._held_s, FREE_MAX_S), self._held_s > HELD_MAX_S
            if is_due:
                self._held_s = 0.0
        if is_due:
            self._sleep(pause_s)

    def begun(self) -> None:
        """Note that the lock was taken."""
        with self._lock:
            self._elapsed_s()

    def ended(self) -> None:
        """Note that the lock was released."""
        with self._lock:
            self._held_s += self._elapsed_s()

    def _elapsed_s(self) -> float:
        """Return the seconds since the last note, and begin anew."""
        now_s = self._clock()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        return elapsed_s
