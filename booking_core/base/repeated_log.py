"""Log lines for repeated failures: one for each period, with the number of failures."""

import logging
import threading
import time
from collections.abc import Callable

PERIOD_S = 60.0


class RepeatedLog:
    """A logger for conditions that every request and every turn of the worker runs into.

    Args:
        clock: gives seconds that never go back.
    """

    def __init__(
        self, log: logging.Logger, *, period_s: float = PERIOD_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._period_s = period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[str, tuple[float, int]] = {}
        """When each condition was logged last, and how often it happened since."""

    def note(self, level: int, condition: str, text: str) -> None:
        """Log the condition, unless it was logged less than a period ago: then count it for the next line."""
        now = self._clock()
        with self._lock:
            at, more = self._logged.get(condition, (float("-inf"), 0))
            is_due = now - at >= self._period_s
            self._logged[condition] = (now, 0) if is_due else (at, more + 1)
        if is_due:
            since = f" ({more} more times since the last line)" if more else ""
            self._log.log(level, "%s%s", text, since)
