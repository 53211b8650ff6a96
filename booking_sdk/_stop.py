"""A way to end a wait from outside: from another task, from another thread or from a signal handler."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from booking_sdk._clock import Clock


class StopInThread:
    """Stop a thread that waits. A request that is under way is waited for; it has a timeout of its own."""

    def __init__(self) -> None:
        self.is_set: bool = False
        # A put is allowed within a signal handler, which a lock or a threading.Event is not.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """End the wait."""
        self.is_set = True
        self._wake.put(None)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Do nothing: what blocks a thread cannot be ended."""
        yield

    def sleep(self, clock: Clock, seconds: float) -> None:
        """Wait that long, or until it is set."""
        clock.wait(self._wake, seconds)


class StopInLoop:
    """Stop a task that waits."""

    def __init__(self) -> None:
        self.is_set: bool = False
        self._scope: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self) -> None:
        """End the wait, and a request that is under way."""
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
        """End what is awaited within as soon as it is set."""
        import anyio

        with suppress(RuntimeError):  # on trio
            self._loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    async def sleep(self, clock: Clock, seconds: float) -> None:
        """Wait that long, unless `interrupting` ends it."""
        await clock.async_sleep(seconds)
