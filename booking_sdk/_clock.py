"""Time and chance, as arguments: a test brings its own, and nothing waits."""

import random
import time
from contextlib import suppress
from queue import Empty, SimpleQueue


class Clock:
    """The machine's."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def random(self) -> float:
        """From 0 to 1."""
        return random.random()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, wake: "SimpleQueue[None]", seconds: float) -> None:
        """Sleep until something is put into the queue, at most that long."""
        with suppress(Empty):
            wake.get(timeout=seconds)

    async def async_sleep(self, seconds: float) -> None:
        # httpx brings it, and it sleeps on whichever event loop httpx itself runs on.
        import anyio

        await anyio.sleep(seconds)


SYSTEM = Clock()
