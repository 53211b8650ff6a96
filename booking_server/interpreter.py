"""The interpreter's settings of a process that serves requests: how soon one thread gets it from another."""

import contextlib
import sys
from collections.abc import Iterator

SWITCH_S = 0.001
"""The seconds after which a thread that waits for the interpreter gets it; Python's own default is 0.005. The thread of
the bookings gives it up at every round trip to the database. Beside an event loop that always has something to do it
waited as long each time, and a batch has more round trips than it takes milliseconds."""


@contextlib.contextmanager
def frequent_switches() -> Iterator[None]:
    """Let threads that wait for the interpreter have it soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
