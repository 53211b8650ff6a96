"""A semaphore that is fair: its permits go to threads in the order in which they asked."""

import threading
from collections import deque


class FairSemaphore:
    """Permits that threads acquire and release.

    A released permit is handed to the thread that has waited longest. The semaphore of the standard library only wakes
    that thread, and the one that has released it may acquire it again first: on SQLite, which has one writer, a lane
    that always has work would keep it from all others.
    """

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        """A lock for each thread that waits, which is released to hand it a permit."""

    @property
    def free(self) -> int:
        """Return the number of permits that no thread has."""
        return self._free

    @property
    def waiting(self) -> int:
        """Return the number of threads that wait for a permit."""
        return len(self._waiting)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire a permit, as `threading.Semaphore` does; return False if none was handed over in time."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if not blocking:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        return turn.acquire(timeout=-1 if timeout is None else timeout) or not self._has_given_up(turn)

    def _has_given_up(self, turn: threading.Lock) -> bool:
        """Stop waiting; return False if a permit was handed over just then."""
        with self._lock:
            if turn not in self._waiting:
                return False
            self._waiting.remove(turn)
            return True

    def release(self) -> None:
        """Hand the permit to the thread that has waited longest, or set it free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
