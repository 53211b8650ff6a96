"""The shared parts of one process: the database, the limiter, and the executors that carry out requests in threads."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from booking_core.base.context import Caller
from booking_core.base.settings import Settings
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import SqliteDriver
from booking_core.records.idempotency import Answer
from booking_core.upkeep import secret_keys
from booking_server.adapters.address_guard import AddressGuard
from booking_server.adapters.stripe_intents import StripeIntents
from booking_server.execution.authenticator import Authenticator, Credentials, counted
from booking_server.execution.creations import Creations
from booking_server.execution.executor import BatchExecutor, BatchTracer
from booking_server.execution.key_usage import KeyUsage
from booking_server.execution.payment_calls import PaymentCalls
from booking_server.execution.queues import MixedQueue, OwnerQueue, Place, SeparateQueue
from booking_server.execution.rate_limit import Limiter, open_limiter
from booking_server.execution.reads import Reads

T = TypeVar("T")
Mark = tuple[bytes | None, bytes | None]
"""API key and idempotency key of a request, as sent."""

_BATCH = 32
WRITE_S = 0.008
"""Seconds of processor time after which a transaction of several writes begins no further one, on SQLite, where a write
waits for all that share its transaction: eighty notes take as long as twelve changes of a party. What all of them cost
together, the commit with its fsync, takes one or two milliseconds."""
_LOOK_UP_THREADS = 4
_LOOK_UPS_PER_ORGANIZATION = 2
_WORKER_CONNECTIONS = 2
"""Connections for writes that are left to the worker when all threads of the API wait for locks."""
_WRITERS_PER_ORGANIZATION = 2
"""Threads that may write for one organization at a time: its locked rows must not hold all threads."""


@dataclass(frozen=True, slots=True)
class Write:
    """A transaction that waits for its turn."""

    work: Callable[[Tx], Any]
    is_once: bool
    """The work has no idempotency key, so it must not run again when the outcome of its commit is unknown."""
    traceparent: str | None = None
    """The trace context (W3C) of the request."""
    instant: int | None = None
    """The present instant, where it is not the database's."""

    def run(self, tx: Tx) -> Any:
        """Do the work."""
        tx.traceparent, tx.instant = self.traceparent, self.instant
        return self.work(tx)


class Tracer(BatchTracer, Protocol):
    """The traces of a process."""

    def traceparent(self) -> str | None: ...


class _Marked:
    """The time for which a mark is in use."""

    __slots__ = ("_mark", "_running")

    def __init__(self, running: set[Mark], mark: Mark) -> None:
        self._running = running
        self._mark = mark

    def __enter__(self) -> None:
        self._running.add(self._mark)

    def __exit__(self, *_: object) -> None:
        self._running.discard(self._mark)


class Service:
    """Carries out reads, writes and bookings for all requests of one process.

    Each kind has an executor of its own. The core is synchronous, so a client that hangs up cannot cancel a
    transaction half way.

    Args:
        limiter: counts the requests, for services that share their clients; by default that of the settings.
        clock: returns the seconds by which transactions of several writes are limited: of the thread's processor time.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        limiter: Limiter | None = None,
        *,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock = clock
        self.settings = settings
        self.database = database
        self.installation = secret_keys.with_link_keys(database, settings.installation())
        self.is_public_address = AddressGuard(settings).is_public_url
        self.running: set[Mark] = set()
        """The marks of the requests that run now."""
        self.committed: Callable[[], None] = lambda: None
        """Called on the event loop after requests that may have written something to be delivered."""
        self._is_commit_noted = False
        self._tracer: Tracer | None = None
        self.key_usage = KeyUsage(database)
        self.authenticator = Authenticator(
            self.installation, limiter or open_limiter(settings.rate_limit_store), self.key_usage, settings.rate_limit
        )
        driver = database.driver
        if isinstance(driver, SqliteDriver):
            driver.checkpoints = True  # this process serves the file
        self.reads = Reads(database, self.authenticator)
        self._writes: BatchExecutor[Write, Any] = BatchExecutor(
            "write",
            self._write_batch,
            threads=1 if database.is_sqlite else driver.writers - _WORKER_CONNECTIONS,
            batch=_BATCH if database.is_sqlite else 1,
            waiting=MixedQueue() if database.is_sqlite else SeparateQueue(_WRITERS_PER_ORGANIZATION),
        )
        self.creations = Creations(database, self.authenticator)
        # Apart from the writes, which on SQLite all wait for one thread: a write must not wait for another one's DNS.
        self.payment_calls = PaymentCalls(StripeIntents(settings.stripe_base_url))
        self._look_ups: BatchExecutor[Callable[[], Any], Any] = BatchExecutor(
            "look-up",
            _call_each,
            threads=_LOOK_UP_THREADS,
            batch=1,
            waiting=OwnerQueue(_LOOK_UPS_PER_ORGANIZATION),
        )

    def close(self) -> None:
        """Finish what waits and close the database."""
        for executor in (self._look_ups, self.creations, self._writes, self.reads):
            executor.close()
        self.database.close()

    @property
    def executors(self) -> Sequence[BatchExecutor[Any, Any]]:
        """Return all executors, for metrics."""
        creations = self.creations.batches, self.creations.beside_rush, self.creations.waiting
        return (*self.reads.executors, *creations, self._writes, self._look_ups)

    def trace(self, tracer: Tracer | None) -> None:
        """Make spans of all batches of requests that are recorded, or none from now on."""
        self._tracer, self.database.is_traced = tracer, tracer is not None
        for executor in self.executors:
            executor.tracer = tracer

    def _traceparent(self) -> str | None:
        return self._tracer.traceparent() if self._tracer else None

    async def authenticate(self, credentials: Credentials) -> Caller:
        """Return the caller of a request, counted against its rate limit."""
        return await self.reads.authenticate(credentials)

    async def write(
        self, work: Callable[[Tx], T], *, organization_id: str, is_once: bool, instant: int | None = None
    ) -> T:
        """Run a transaction of the organization and wake the worker.

        Args:
            instant: that of a sandbox whose clock is ahead.
        """
        write = Write(work, is_once, self._traceparent(), instant)
        result: T = await self._writes.submit(write, Place(organization_id))
        self._note_commit()
        return result

    async def create_booking(
        self, credentials: Credentials, prepare: Callable[[Caller], CreateRequest], *, size: int
    ) -> Answer:
        """Authenticate and create a booking in a batch with others that wait, and wake the worker.

        Args:
            size: the bytes of the request's body.
        """
        # A key that is new to this process is looked up apart, so that a flood of wrong ones does not fill this queue.
        organization_id, caller = self.authenticator.known_organization(credentials), None
        if organization_id is None:
            caller = await self.authenticate(credentials)
            organization_id = caller.organization.id
        elif coming := self.authenticator.count_ahead(credentials):
            await counted(credentials, coming)
        answer = await self.creations.create(
            credentials,
            prepare,
            size=size,
            organization_id=organization_id,
            caller=caller,
            traceparent=self._traceparent(),
        )
        self._note_commit()
        return answer

    def _note_commit(self) -> None:
        """Call `committed` in the next turn of the event loop: once for a batch, as it wakes all the worker's loops."""
        if not self._is_commit_noted:
            self._is_commit_noted = True
            asyncio.get_running_loop().call_soon(self._call_committed)

    def _call_committed(self) -> None:
        self._is_commit_noted = False
        self.committed()

    def marked(self, mark: Mark) -> "_Marked":
        """Mark an idempotency key as in use while its request runs in this process."""
        return _Marked(self.running, mark)

    async def look_up(self, function: Callable[[], T], *, organization_id: str) -> T:
        """Run a function that waits for DNS, for one request of the organization."""
        found: T = await self._look_ups.submit(function, Place(organization_id))
        return found

    # In the threads --------------------------------------------------------------------------------------------

    def _write_batch(self, writes: Sequence[Write]) -> Sequence[Any]:
        once = [each.is_once for each in writes]
        return self.database.write_each([each.run for each in writes], once=once, limit_s=WRITE_S, clock=self._clock)


def _call_each(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    return [_call(function) for function in functions]


def _call(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the error belongs to this one request
        return error
