"""Ctrl-C at a moment of the command's choosing."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def put_off() -> Iterator[Callable[[], None]]:
    """Put Ctrl-C off until the yielded function is called, which then raises KeyboardInterrupt. A second Ctrl-C ends
    what runs at once."""
    pressed = threading.Event()

    def press(_number: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # it gets no signals
        yield check
        return
    before = signal.signal(signal.SIGINT, press)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
