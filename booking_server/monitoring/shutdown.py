"""Announce a shutdown: a process is unready from SIGTERM on, and keeps its sockets open for a while.

A load balancer learns by its next probe that a process is unready. Until then it sends requests, which would find a
closed port if the process closed it at once.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def announced(announce: Callable[[], None], delay_s: float) -> Iterator[None]:
    """Call `announce` at SIGTERM, and the handler that was set before after a delay, or at the next SIGTERM.

    Outside the main thread, and where no handler is set, nothing is changed.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    handler = announcing(announce, previous, delay_s, asyncio.get_running_loop())
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, previous)


def announcing(
    announce: Callable[[], None], previous: Callable[..., Any], delay_s: float, loop: asyncio.AbstractEventLoop
) -> Callable[..., None]:
    """Return the handler of SIGTERM."""
    is_announced = False

    def handle(number: int, frame: Any) -> None:
        nonlocal is_announced
        announce()
        if is_announced or not delay_s:
            previous(number, frame)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay_s, previous, number, None)
        is_announced = True

    return handle
