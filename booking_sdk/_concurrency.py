"""The operations that differ between asyncio and threads, for the async client.

`booking_sdk._sync._concurrency` has the same names for the sync client. Both modules are written by hand.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from booking_sdk._attempt_timeout import AttemptTimeout
from booking_sdk._clock import ClientClock

if TYPE_CHECKING:
    import asyncio


def time_limit(timeout: AttemptTimeout) -> AbstractContextManager[object]:
    """Return a context that cancels the attempt at its timeout, wherever it waits."""
    # anyio comes with httpx and supports every event loop that httpx runs on.
    import anyio

    return anyio.fail_after(timeout.total_s)


def shield() -> AbstractContextManager[object]:
    """Return a context that protects its body from a cancellation that is already in progress."""
    import anyio

    return anyio.CancelScope(shield=True)


class Stop:
    """A stop signal for a waiting task."""

    def __init__(self) -> None:
        self.is_set: bool = False
        self._scope: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        """Stop the wait, and cancel a request that is in flight."""
        self.is_set = True
        scope, loop = self._scope, self._loop
        if scope is None:
            return
        if loop is None:
            scope.cancel()
        else:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(scope.cancel)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Cancel the body of the context as soon as the signal is set."""
        # Imported here: a program with the sync client never needs it.
        import asyncio

        import anyio

        with suppress(RuntimeError):  # on trio
            self._loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def sleep(self, clock: ClientClock, seconds: float) -> None:
        """Sleep; `interrupting` ends the sleep early."""
        await clock.async_sleep(seconds)
