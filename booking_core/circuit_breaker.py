"""Keeps callers away from a server that fails, until a probe has found it well again."""

import threading
import time
from collections.abc import Callable

FAILURES_MAX = 3
"""Failures in a row after which nothing is asked any more; one after a probe."""
PAUSE_S = 1.0
"""Seconds until a probe is due; twice as many each time, until a caller has succeeded."""
PAUSE_MAX_S = 30.0


class CircuitBreaker:
    """Counts failures in a row. It is open, so that nothing is asked, until the first probe and after some failures.

    Callers never probe: one of them is told that a probe is due, and lets another thread do it.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = PAUSE_S
        self._probe_due_s = float("-inf")
        self.is_open = True

    def succeeded(self) -> None:
        """Forget the failures before."""
        if self._failures or self._pause_s > PAUSE_S:
            with self._lock:
                self._failures, self._pause_s = 0, PAUSE_S

    def failed(self, *, opens: bool = False) -> bool:
        """Count a failure, and return whether it has opened the breaker.

        Args:
            opens: the failure has cost so much time that no second one is waited for.
        """
        with self._lock:
            self._failures += 1
            if self.is_open or not (opens or self._failures >= FAILURES_MAX):
                return False
            self.is_open = True
            self._wait()
            return True

    def takes_probe(self) -> bool:
        """Return whether the caller has to have a probe made: one caller for each probe that is due."""
        if not self.is_open or self._clock() < self._probe_due_s:
            return False
        with self._lock:
            if not self.is_open or self._clock() < self._probe_due_s:
                return False
            self._probe_due_s = float("inf")  # until this one has ended
            return True

    def probed(self, *, is_well: bool) -> bool:
        """Note the result of a probe, and return whether it has closed the breaker."""
        with self._lock:
            has_closed = is_well and self.is_open
            if is_well and self.is_open:
                self.is_open, self._failures = False, FAILURES_MAX - 1
            elif self.is_open:
                self._wait()
            return has_closed

    def _wait(self) -> None:
        """Let the next probe be due after a pause, and the one after it after a longer one."""
        self._probe_due_s = self._clock() + self._pause_s
        self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s)
