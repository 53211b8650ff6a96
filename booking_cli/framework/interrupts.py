"""Handle Ctrl-C where a command can stop safely."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def defer() -> Iterator[Callable[[], None]]:
    """Defer Ctrl-C until the yielded function is called, which then raises KeyboardInterrupt.

    A second Ctrl-C raises KeyboardInterrupt at once.
    """
    pressed = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    def raise_if_interrupted() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield raise_if_interrupted
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield raise_if_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
