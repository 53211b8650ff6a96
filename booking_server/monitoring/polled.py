"""Runs a function that may block in its own thread, for probes and scrapes."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Found = TypeVar("Found")


class Polled(Generic[Found]):
    """Runs a function in a thread, one call at a time, and keeps its result for a moment: probes need no key, and must
    not become load.

    Args:
        on_failure: returns the result instead of the function that raised, or did not answer in time.
        timeout_s: the time limit of the function.
        kept_s: a result is used again for so many seconds.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], Found],
        on_failure: Callable[[Exception], Found],
        *,
        timeout_s: float,
        kept_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._function = function
        self._on_failure = on_failure
        self._timeout_s = timeout_s
        self._kept_s = kept_s
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, name)
        self._running: asyncio.Future[Found] | None = None
        self._known: tuple[float, Found] | None = None

    async def result(self) -> Found:
        """Return the function's result, or the result of its failure."""
        if self._known and self._clock() - self._known[0] < self._kept_s:
            return self._known[1]
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, self._function)
        try:
            found = await asyncio.wait_for(asyncio.shield(self._running), self._timeout_s)
        except Exception as error:  # noqa: BLE001 - a probe reports any failure
            found = self._on_failure(error)
        self._known = self._clock(), found
        return found

    def close(self) -> None:
        """Let the thread end; a call that hangs is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
