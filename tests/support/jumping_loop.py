"""An event loop whose clock jumps over waits: a timeout of ten seconds passes in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_QUIET_S = 0.05
"""The real time that the loop waits for sockets before its clock jumps: a loopback connection needs less."""

ResultT = TypeVar("ResultT")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that counts the part of a timeout that it did not wait."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else min(timeout, _QUIET_S))
        if not ready and timeout is not None and timeout > _QUIET_S:
            self.skipped_s += timeout - _QUIET_S
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop on that selector's clock."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.skipped_s


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine. Its sleeps and timeouts take no real time."""
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)
