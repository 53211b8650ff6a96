"""Time and randomness as one object, which a test can replace."""

import random
import time
from contextlib import suppress
from queue import Empty, SimpleQueue


class ClientClock:
    """The clock of the machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        """Return the current time in unix seconds."""
        return time.time()

    def random(self) -> float:
        """Return a random number from 0 to 1."""
        return random.random()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, wake: "SimpleQueue[None]", seconds: float) -> None:
        """Sleep until something is put into the queue, at most the given time."""
        with suppress(Empty):
            wake.get(timeout=seconds)

    async def async_sleep(self, seconds: float) -> None:
        # anyio comes with httpx and supports every event loop that httpx runs on.
        import anyio

        await anyio.sleep(seconds)


SYSTEM = ClientClock()
