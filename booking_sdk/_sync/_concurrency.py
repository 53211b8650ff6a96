"""The operations that differ between asyncio and threads, for the sync client.

`booking_sdk._concurrency` has the same names for the async client. Both modules are written by hand.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue

from booking_sdk._attempt_timeout import AttemptTimeout
from booking_sdk._clock import ClientClock


def time_limit(timeout: AttemptTimeout) -> AbstractContextManager[object]:
    """Return a context that does nothing: blocking reads and writes check the timeout themselves."""
    return nullcontext()


def shield() -> AbstractContextManager[object]:
    """Return a context that does nothing: a thread cannot be cancelled."""
    return nullcontext()


class Stop:
    """A stop signal for a waiting thread. A request that is in flight ends by its own timeout."""

    def __init__(self) -> None:
        self.is_set: bool = False
        # A signal handler may call SimpleQueue.put; it may not use a lock or a threading.Event.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Stop the wait."""
        self.is_set = True
        self._wake.put(None)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Run the body unchanged: a blocked thread cannot be interrupted."""
        yield

    def sleep(self, clock: ClientClock, seconds: float) -> None:
        """Sleep, at most until the signal is set."""
        clock.wait(self._wake, seconds)
