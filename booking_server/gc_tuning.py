"""How often Python looks for cycles, in a process that serves or delivers."""

import contextlib
import gc
from collections.abc import Iterator

_YOUNG_OBJECTS = 20_000
"""How many new containers Python makes before it looks for cycles among them; its own figure is 700. A batch of
bookings makes some thousands, all of which go by themselves, and looking for cycles took a tenth of the time."""


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """What was loaded for the service is never searched for cycles, and what is new more seldom."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
