"""An event loop whose clock jumps over waits: a timeout of ten seconds passes in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_QUIET_S = 0.2
"""The real time that the loop waits for sockets and threads before its clock jumps: on loopback they need less."""

ResultT = TypeVar("ResultT")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector with a clock that advances by the timeouts that pass without an event, and by nothing else."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else min(timeout, _QUIET_S))
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop on that selector's clock: a slow machine meets no deadline."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine. Its sleeps and timeouts take no real time."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)
