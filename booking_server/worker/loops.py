"""Waiting and failure handling of the worker's loops."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from booking_core.base.errors import BookingError, Unavailable
from booking_core.base.repeated_log import RepeatedLog

log = logging.getLogger("booking.worker")

BACKOFF_S = 0.5
BACKOFF_MAX_S = 5.0
"""The longest pause between two attempts, so that a database that is back is noticed within this time."""


class FailureLog:
    """Logs failed turns, and a database that is away only once for a period."""

    def __init__(self) -> None:
        self._repeated = RepeatedLog(log)

    def add(self, name: str, error: BaseException) -> None:
        """Log the failure of a turn of the named loop."""
        if isinstance(error, Unavailable) and error.fault:
            return  # the database logs such a fault itself, once for all callers
        if isinstance(error, BookingError):
            self._repeated.note(logging.WARNING, name, f"the database is away, {name} waits: {error}")
        else:
            log.error("a turn of %s failed", name, exc_info=error)


class Turns:
    """The last turn of each loop of a worker, by which a loop that hangs is detected.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_s: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Note that the named loop begins a turn."""
        self._at_s[name] = self._clock()

    def ages_s(self) -> dict[str, float]:
        """Return the seconds since each loop began its last turn."""
        now_s = self._clock()
        return {name: now_s - at_s for name, at_s in self._at_s.items()}

    def stalled(self, seconds: float) -> list[str]:
        """Return the loops that began no turn for so long."""
        return [name for name, age_s in self.ages_s().items() if age_s >= seconds]


def backoff_s(failures: int) -> float:
    """Return the pause in seconds after this many failed turns in a row."""
    return float(min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(failures - 1, 10)))


async def back_off(stop: asyncio.Event, failures: int) -> None:
    """Sleep before the next attempt, whatever is committed meanwhile; return early on `stop`."""
    await sleep(stop, backoff_s(failures))


async def sleep(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, and return early on `stop`."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def wait_for_change(changed: asyncio.Event, stop: asyncio.Event, poll_s: float) -> None:
    """Wait until `changed` or `stop` is set, at most for `poll_s` seconds."""
    waiting = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(changed.wait())}
    _, pending = await asyncio.wait(waiting, timeout=poll_s, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
