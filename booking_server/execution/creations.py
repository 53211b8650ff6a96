"""The lanes of bookings: a batch that waits for no lock, and threads that may wait.

One thread books all waiting requests of all organizations in one transaction, so it must not wait. While one
organization rushes, a second thread books for the others. Requests whose departure or numbers another transaction has
locked go to the lane that may wait. A batch there has requests of one organization that wait for the same lock, and an
organization has only a part of the threads. A request whose lock is not free after three seconds is refused (decision
R4) and changes nothing.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from booking_core import bookings
from booking_core.base.context import Caller
from booking_core.base.errors import Unavailable, is_outage
from booking_core.bookings import CreateRequest, Deferred, LockWait
from booking_core.db.engine import Database
from booking_core.records.idempotency import Answer
from booking_server.execution.authenticator import Authenticator, Credentials
from booking_server.execution.executor import RETRY, BatchExecutor, HandOver, OwnerQueue, Place, Unresolved, fill_open

log = logging.getLogger("booking.http")

BATCH = 32
BATCH_BYTES_MAX = 32 * 1024
"""The size of all bodies above which no other booking joins a batch. A long text is checked, compressed and stored in
several rows, and every booking of its batch and of the next one waits for that."""
LOCK_WAIT_S = 3.0
"""The longest wait for locks, from the time when they were found locked."""
BATCH_LOCK_TIMEOUT_MS = 50
"""The longest wait for a lock that the batch does not check in advance, such as the row of a customer whose address
another transaction is changing. After it, the batch fails and is repeated in the lane that may wait."""
WAITING_THREADS = 8
WAITING_THREADS_PER_ORGANIZATION = 2
_TRIES = 3
"""Batches with others that try a request: a lock of another process's batch is free after milliseconds."""
_ALMOST_S = 0.05
"""Requests whose wait ends so soon are refused together."""
_NUMBERS = "numbers"
"""The group of requests that wait for the counters of their organization."""

Result = Answer | Exception | Unresolved


@dataclass(slots=True)
class Creation:
    """A request to create a booking that waits for its batch."""

    credentials: Credentials
    prepare: Callable[[Caller], CreateRequest]
    """Makes the booking of a request, after the checks that come after its key."""
    size: int = 0
    """The bytes of the request's body."""
    traceparent: str | None = None
    """The trace context (W3C) of the request."""
    caller: Caller | Exception | None = None
    """The caller or its refusal; None while its key is not looked up."""
    create: CreateRequest | None = None
    """The prepared booking; None before its first batch."""
    tries: int = 0
    locked_since_s: float = 0.0
    """The time when it was handed over to the lane that may wait."""

    def make(self) -> Exception | None:
        """Prepare the booking of the caller; return the refusal of a request that becomes no booking."""
        if not isinstance(self.caller, Caller):
            return self.caller
        try:
            create = self.prepare(self.caller)
            self.create = replace(create, traceparent=self.traceparent) if self.traceparent else create
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            return error
        return None


class Creations:
    """Creates bookings for all requests of one process.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(
        self, database: Database, authenticator: Authenticator, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._authenticator = authenticator
        self._clock = clock
        threads = 1 if database.is_sqlite else WAITING_THREADS
        # Separate from other reads: a slow one would hold all bookings.
        self._key_readers = database.open_readers(1, name="booking_keys")
        # The second connection is for bookings of others during a rush.
        self._batch_lane = database.open_lane(2, name="bookings", lock_timeout_ms=BATCH_LOCK_TIMEOUT_MS)
        self._waiting_lane = database.open_lane(threads, name="locked_bookings")
        self.locked = OwnerQueue(WAITING_THREADS_PER_ORGANIZATION)
        """The requests that wait for locks."""
        self.waiting: BatchExecutor[Creation, Answer] = BatchExecutor(
            "book-locked",
            self._create_waiting,
            threads=threads,
            batch=BATCH,
            waiting=self.locked,
            wait_max_s=LOCK_WAIT_S,
            clock=clock,
        )
        # One thread: requests that wait during the commit form the next batch, and a booking in a batch of sixteen
        # costs half as much as in a batch of four. A second thread would only split the same work on the same
        # processor.
        self.batches: BatchExecutor[Creation, Answer] = BatchExecutor(
            "book", self._create_batch, threads=1, batch=BATCH, coalesce=True, overflow=self.waiting, clock=clock
        )
        self.beside_rush: BatchExecutor[Creation, Answer] = BatchExecutor(
            "book-beside", self._create_batch, threads=1, batch=BATCH, overflow=self.waiting, clock=clock
        )
        """Books for other organizations while one of them rushes: they would wait for its current batch and the next.
        SQLite has only one writer, so they would wait anyway."""

    async def create(
        self,
        credentials: Credentials,
        prepare: Callable[[Caller], CreateRequest],
        *,
        size: int,
        organization_id: str | None = None,
        caller: Caller | None = None,
        traceparent: str | None = None,
    ) -> Answer:
        """Create a booking, in a batch with others that wait.

        Args:
            size: the bytes of the request's body.
            organization_id: whose turn it is.
            caller: if it was looked up already; else its key is looked up with the batch.
            traceparent: the trace context (W3C) of the request.
        """
        creation = Creation(credentials, prepare, size, traceparent, caller)
        is_beside = not self._database.is_sqlite and self.batches.is_rushed_by_another(organization_id)
        return await (self.beside_rush if is_beside else self.batches).submit(creation, Place(organization_id))

    def close(self) -> None:
        """Finish what waits."""
        self.batches.close()
        self.beside_rush.close()
        self.waiting.close()

    # In the thread of the batch --------------------------------------------------------------------------------------

    def _create_batch(self, waiting: Sequence[Creation]) -> list[Result]:
        creations = _within_bytes(waiting)
        self._look_up([creation for creation in creations if creation.caller is None])
        decided: list[Result | None] = [self._decided(creation) for creation in creations]
        results: list[Result] = fill_open(
            decided, lambda places: self._create_all([creations[place] for place in places])
        )
        return results + [RETRY] * (len(waiting) - len(creations))

    def _look_up(self, creations: Sequence[Creation]) -> None:
        """Look up the callers of requests, before the transaction of their bookings begins."""
        if not creations:
            return
        with self._key_readers.reading() as tx:
            callers = self._authenticator.authenticate(tx, [creation.credentials for creation in creations])
        for creation, caller in zip(creations, callers, strict=True):
            creation.caller = caller

    def _decided(self, creation: Creation) -> Exception | HandOver | None:
        """Return the refusal of a request that becomes no booking, or the hand-over of a request whose lock others wait
        for."""
        refusal = creation.make() if creation.create is None else None
        create = creation.create
        if create is None:
            return refusal
        for departure_id in (None, create.request.departure_id):
            if _place(create, departure_id) in self.locked:
                return self._hand_over(creation, departure_id)
        return None

    def _create_all(self, creations: Sequence[Creation]) -> list[Result]:
        """Create all bookings in one transaction. When it fails, they are tried again in the lane that may wait, where
        a failure affects only one organization."""
        try:
            creates = _requests(creations)
            outcomes = self._database.write(lambda tx: bookings.create_many(tx, creates), lane=self._batch_lane)
        except Exception as error:  # noqa: BLE001 - returned to its one request, or every request is run again
            if is_outage(error) or (len(creations) == 1 and not _is_locked(error)):
                return [error] * len(creations)
            log.warning("a batch of %d bookings failed and is run by organization: %r", len(creations), error)
            return [self._hand_over(creation) for creation in creations]
        has_progressed = not all(isinstance(outcome, Deferred) for outcome in outcomes)
        return [
            self._deferred(creation, outcome, has_progressed) if isinstance(outcome, Deferred) else outcome
            for creation, outcome in zip(creations, outcomes, strict=True)
        ]

    def _deferred(self, creation: Creation, outcome: Deferred, has_progressed: bool) -> Unresolved:
        """Retry a request whose lock is taken with the next batch, unless it was tried before or was alone."""
        creation.tries += 1
        if has_progressed and creation.tries < _TRIES:
            return RETRY
        return self._hand_over(creation, outcome.departure_id)

    def _hand_over(self, creation: Creation, departure_id: str | None = None) -> HandOver:
        creation.locked_since_s = self._clock()
        assert creation.create is not None
        return HandOver(_place(creation.create, departure_id))

    # In a thread that may wait ---------------------------------------------------------------------------------------

    def _create_waiting(self, creations: Sequence[Creation]) -> Sequence[Result]:
        """Create the bookings of one organization that wait for the same lock; when they fail, one by one."""
        creates = _requests(creations)
        until_s = min(creation.locked_since_s for creation in creations) + LOCK_WAIT_S
        lock_wait = LockWait(until_s, self._clock)
        try:
            outcomes = self._database.write(
                lambda tx: bookings.create_many(tx, creates, lock_wait=lock_wait), lane=self._waiting_lane
            )
        except Exception as error:  # noqa: BLE001 - returned to its one request, or every request is run again
            if _is_locked(error):
                return [self._timed_out(creation, error) for creation in creations]
            if is_outage(error) or len(creations) == 1:
                return [error] * len(creations)
            return [
                HandOver(Place(creation.create.organization_id, id(creation)))
                for creation in creations
                if creation.create
            ]
        return [RETRY if isinstance(outcome, Deferred) else outcome for outcome in outcomes]

    def _timed_out(self, creation: Creation, error: Exception) -> Exception | Unresolved:
        """Refuse a request whose wait has ended; a later request continues to wait."""
        left_s = creation.locked_since_s + LOCK_WAIT_S - self._clock()
        return error if left_s < _ALMOST_S else RETRY


def _within_bytes(creations: Sequence[Creation]) -> Sequence[Creation]:
    """Return the first of the requests: as many as a batch has, at least one."""
    sizes = accumulate(creation.size for creation in creations)
    return creations[: 1 + sum(size <= BATCH_BYTES_MAX for size in sizes)]


def _requests(creations: Sequence[Creation]) -> list[CreateRequest]:
    return [creation.create for creation in creations if creation.create]


def _place(create: CreateRequest, departure_id: str | None) -> Place:
    """Return the place of requests that wait for a departure, or for the counters of the organization."""
    return Place(create.organization_id, departure_id or _NUMBERS)


def _is_locked(error: Exception) -> bool:
    return isinstance(error, Unavailable) and error.is_locked
