"""Stores of seen event ids, for deduplication: the protocol, and a store in memory."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol
else:
    Protocol = object

# Six attempts span 10 h 36 min; with a shorter claim the last of them would count as new.
SHORTEST_TTL = 12 * 3600.0

# A delivery can be retried by hand while its log is kept.
DEFAULT_TTL = 30 * 86_400.0


class SeenStore(Protocol):
    """A store of seen event ids, shared by all processes of a receiver."""

    def claim(self, event_id: str, ttl: float) -> bool:
        """Claim an event for `ttl` seconds, atomically. Return False when it is already claimed."""

    def release(self, event_id: str) -> None:
        """Release an event after its handler failed: the next attempt is then handled."""


class ProgressStore(SeenStore, Protocol):
    """A SeenStore that tells events that are being handled from events that were handled.

    `claim` raises EventInProgress while another delivery of the event is being handled. Such a claim is short: if the
    process is killed, the next attempt is handled.
    """

    def complete(self, event_id: str, ttl: float) -> None:
        """Remember for `ttl` seconds that the event was handled."""


class MemorySeenStore:
    """A SeenStore in memory, for one process. Thread-safe; its content is lost when the process ends.

    Beyond `max_events` the oldest claim is dropped.
    """

    def __init__(self, max_events: int = 100_000, *, clock: Callable[[], float] = time.monotonic) -> None:
        # Imported here: a receiver with another store does not pay for these imports.
        from collections import OrderedDict
        from threading import Lock

        if max_events < 1:
            raise ValueError("max_events must be at least 1")
        self._max_events = max_events
        self._clock = clock
        self._lock = Lock()
        self._ends_at: OrderedDict[str, float] = OrderedDict()

    def claim(self, event_id: str, ttl: float) -> bool:
        now = self._clock()
        with self._lock:
            if self._ends_at.get(event_id, now) > now:
                return False
            self._ends_at.pop(event_id, None)
            self._make_room(now)
            self._ends_at[event_id] = now + ttl
            return True

    def release(self, event_id: str) -> None:
        with self._lock:
            self._ends_at.pop(event_id, None)

    def _make_room(self, now: float) -> None:
        """Delete expired claims, and the oldest claims while the store is full."""
        while self._ends_at:
            event_id, ends_at = next(iter(self._ends_at.items()))
            if ends_at > now and len(self._ends_at) < self._max_events:
                return
            del self._ends_at[event_id]
