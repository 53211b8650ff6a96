"""A clock that tests control."""

import time
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TypeVar

from booking_sdk._clock import ClientClock
from booking_sdk._sync.client import BookingClient
from booking_sdk.client import AsyncBookingClient

ClientT = TypeVar("ClientT", AsyncBookingClient, BookingClient)


class ManualClock(ClientClock):
    """A clock that only `advance` and sleeps move. A sleep returns at once.

    `sleeps` lists the sleeps in seconds. Random numbers are always 0.5, so a delay with jitter is half of its maximum.
    """

    def __init__(self, at: datetime | None = None) -> None:
        self._wall_s = time.time() if at is None else at.timestamp()
        self._monotonic_s = 0.0
        self.sleeps: list[float] = []

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._wall_s, UTC)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._wall_s += seconds
        self._monotonic_s += seconds

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall(self) -> float:
        return self._wall_s

    def random(self) -> float:
        return 0.5

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    def wait(self, wake: "SimpleQueue[None]", seconds: float) -> None:
        self.sleep(seconds)

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


def on_clock(client: ClientT, clock: ManualClock) -> ClientT:
    """Return a copy of a client on another clock: its retries and feeds do not wait.

        client = on_clock(BookingClient(...), ManualClock())

    Args:
        client: The client.
        clock: The clock for retries, deadlines and feeds.
    """
    moved = client.with_options()
    moved._clock = clock
    return moved
