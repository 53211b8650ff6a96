"""Settings of the interpreter in a process that serves requests or delivers webhooks."""

import contextlib
import gc
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


_YOUNG_OBJECTS = 20_000
"""Python searches for cycles after this many new containers; its default is 700. A batch of bookings makes some
thousands, and reference counting frees all of them: the search took a tenth of the time."""


@contextlib.contextmanager
def reduced_collection() -> Iterator[None]:
    """Exclude all loaded objects from the search for cycles, and search new ones less often."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
