"""Connections that are opened when needed, up to a bound, and lent to threads in the order of their requests."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from booking_core.base.errors import Unavailable
from booking_core.db.driver import Connection

POOL_TIMEOUT_S = 5.0


class FairSemaphore:
    """Permits that threads acquire and release.

    A released permit is handed to the thread that has waited longest. The semaphore of the standard library only wakes
    that thread, and the releasing thread may acquire it again first: on SQLite, which has one writer, a lane that
    always has work would keep it from all others.
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

    def acquire(self, timeout: float) -> bool:
        """Acquire a permit, as `threading.Semaphore` does; return False if none was handed over in time."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        return turn.acquire(timeout=timeout) or not self._has_given_up(turn)

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


class Pool:
    """Connections that are opened when needed, up to a bound, and reused: the last returned first."""

    def __init__(self, name: str, size: int, connect: Callable[[], Connection]) -> None:
        self.name = name
        self.size = size
        self._idle: list[Connection] = []
        self._connect = connect
        self._permits = FairSemaphore(size)
        self._closed = False

    @property
    def in_use(self) -> int:
        """Return the number of connections that are lent now."""
        return self.size - self._permits.free

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection for the time of the block; a broken one is discarded then.

        Raises:
            Unavailable: no connection was returned in time.
        """
        if not self._permits.acquire(POOL_TIMEOUT_S):
            raise Unavailable(for_all=True)
        try:
            connection = self._alive() or self._connect()
            try:
                yield connection
            finally:
                self._keep(connection)
        finally:
            self._permits.release()

    def _alive(self) -> Connection | None:
        """Return an idle connection that is alive, if there is one: a server that was restarted has closed them all."""
        while connection := self._popped():
            if not (connection.broken or connection.was_closed_by_server):
                return connection
            _discard(connection)
        return None

    def _popped(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _keep(self, connection: Connection) -> None:
        if connection.broken:
            _discard(connection)
            return
        self._idle.append(connection)
        if self._closed:  # `close` may have run since the connection was lent
            self.close()

    def close(self) -> None:
        """Close the idle connections; a lent one is closed when it is returned."""
        self._closed = True
        while connection := self._popped():
            connection.close()


def _discard(connection: Connection) -> None:
    with contextlib.suppress(Exception):  # a broken connection may fail to close  # noqa: BLE001, RUF100
        connection.close()
