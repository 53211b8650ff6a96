"""The shared parts of one process: the database, the limiter, and the executors that carry out requests in threads."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from booking_core.base.context import Caller, Organization
from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.bookings import CreateRequest
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import SqliteDriver
from booking_core.records.idempotency import Answer
from booking_core.upkeep import secret_keys
from booking_server.adapters.address_guard import AddressGuard
from booking_server.adapters.stripe_intents import Intent, IntentRequest, SandboxIntents, StripeIntents
from booking_server.execution.authenticator import Authenticator, Credentials, KeyUsage
from booking_server.execution.creations import Creations
from booking_server.execution.executor import BatchExecutor, BatchTracer, MixedQueue, OwnerQueue, Place
from booking_server.execution.rate_limit import Limiter, open_limiter
from booking_server.execution.reads import Reads

T = TypeVar("T")
KeyMark = tuple[bytes | None, bytes | None]
"""API key and idempotency key of a request, as sent."""

WRITE_BATCH = 4
"""Writes of one transaction on SQLite, where a write waits for all that share its transaction. Four changes of a party
take 3 ms; the commit with its fsync, which all of them share, takes one or two."""
_LOOK_UP_THREADS = 4
_LOOK_UPS_PER_ORGANIZATION = 2
_WORKER_CONNECTIONS = 2
"""Connections for writes that the worker can use when all threads of the API wait for locks."""
_WRITERS_PER_ORGANIZATION = 2
"""Threads that may write for one organization at a time: its locked rows must not hold all threads."""
CALLS_OF_ONE_MAX = 16
"""Requests at once for one organization that may call Stripe. Stripe answers in half a second: thirty checkouts a
second."""
CALLS_MAX = 1_024
"""These requests at once altogether, which bounds the connections of a process."""
_CALLS_RETRY_AFTER_S = 2


Write = tuple[Callable[[Tx], Any], bool]
"""A transaction that waits for its turn, and whether it must run once although the outcome of its commit is unknown."""


class Tracer(BatchTracer, Protocol):
    """The traces of a process."""

    def traceparent(self) -> str | None: ...


class PaymentCalls:
    """The requests of this process that may call Stripe, and their calls.

    A request has its place before it writes anything. Otherwise requests that come together would write more bookings
    than may wait for Stripe: their seats would be kept for guests who cannot pay yet.

    A call holds neither a thread nor a connection of the database, only a task of the event loop. When Stripe does not
    answer for one organization, only this organization's requests wait.
    """

    def __init__(self, intents: StripeIntents, *, of_one_max: int = CALLS_OF_ONE_MAX) -> None:
        self.intents = intents
        self._of_sandboxes = SandboxIntents()
        self._of_one_max = of_one_max
        self._in_flight: Counter[str] = Counter()

    async def create(self, request: IntentRequest) -> Intent:
        """Make an intent, for a request that has a place.

        Raises:
            IntentRefused: Stripe will never make it.
            Unavailable: Stripe does not answer.
        """
        intents = self._of_sandboxes if request.api_key is None else self.intents
        return await intents.create(request)

    @contextlib.contextmanager
    def place(self, organization: Organization) -> Iterator[None]:
        """Count a request that may call Stripe; a sandbox never does.

        Raises:
            Unavailable: too many requests of the organization, or of all, are under way already.
        """
        if organization.is_sandbox:
            yield
            return
        organization_id = organization.id
        if self._in_flight[organization_id] >= self._of_one_max or self._in_flight.total() >= CALLS_MAX:
            message = "Too many checkouts wait for Stripe at the moment; send the same request again."
            raise Unavailable(message, retry_after_s=_CALLS_RETRY_AFTER_S, reason="queue")
        self._in_flight[organization_id] += 1
        try:
            yield
        finally:
            self._in_flight[organization_id] -= 1
            if not self._in_flight[organization_id]:
                del self._in_flight[organization_id]


class Service:
    """Carries out reads, writes and bookings for all requests of one process.

    Each kind has its own executor. The core is synchronous, so a client that disconnects cannot cancel a transaction
    half way.

    Args:
        limiter: counts the requests, for services that share their clients; by default the one of the settings.
    """

    def __init__(self, settings: Settings, database: Database, limiter: Limiter | None = None) -> None:
        self.settings = settings
        self.database = database
        self.installation = secret_keys.with_link_keys(database, settings.installation())
        self.is_public_address = AddressGuard(settings).is_public_url
        self._keys_in_use: set[KeyMark] = set()
        self.on_commit: list[Callable[[], None]] = []
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
            batch=WRITE_BATCH if database.is_sqlite else 1,
            waiting=MixedQueue() if database.is_sqlite else OwnerQueue(_WRITERS_PER_ORGANIZATION),
        )
        self.creations = Creations(database, self.authenticator)
        # Apart from the writes, which on SQLite all wait for one thread: a write must not wait for another one's DNS.
        self.payment_calls = PaymentCalls(StripeIntents(settings.stripe_base_url))
        self._look_ups: BatchExecutor[Callable[[], Any], Any] = BatchExecutor(
            "look-up",
            lambda functions: [function() for function in functions],
            threads=_LOOK_UP_THREADS,
            batch=1,
            waiting=OwnerQueue(_LOOK_UPS_PER_ORGANIZATION),
        )

    def close(self) -> None:
        """Finish the waiting jobs and close the database."""
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

    async def write(
        self, work: Callable[[Tx], T], *, organization_id: str, is_once: bool, instant: int | None = None
    ) -> T:
        """Run a transaction of the organization and wake the worker.

        Args:
            is_once: the work has no idempotency key: it must not run again when the outcome of its commit is unknown.
            instant: of a sandbox whose clock is ahead.
        """
        traceparent = self._traceparent()

        def run(tx: Tx) -> T:
            tx.traceparent, tx.instant = traceparent, instant
            return work(tx)

        result: T = await self._writes.submit((run, is_once), Place(organization_id))
        self._note_commit()
        return result

    async def create_booking(
        self, credentials: Credentials, prepare: Callable[[Caller], CreateRequest], *, size: int
    ) -> Answer:
        """Authenticate and create a booking in a batch with others that wait, and wake the worker.

        Args:
            size: the bytes of the request's body.
        """
        # A key that is new to this process is looked up separately: a flood of wrong keys does not fill this queue.
        organization_id, caller = self.authenticator.known_organization(credentials), None
        if organization_id is None:
            caller = await self.reads.authenticate(credentials)
            organization_id = caller.organization.id
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
        """Call `on_commit` in the next turn of the event loop: once for a batch, as it wakes all the worker's loops."""
        if not self._is_commit_noted:
            self._is_commit_noted = True
            asyncio.get_running_loop().call_soon(self._call_committed)

    def _call_committed(self) -> None:
        self._is_commit_noted = False
        for call in self.on_commit:
            call()

    @contextlib.contextmanager
    def key_in_use(self, mark: KeyMark) -> Iterator[bool]:
        """Mark an idempotency key as in use while the body runs; yield whether another request uses it already."""
        if mark in self._keys_in_use:
            yield True
            return
        self._keys_in_use.add(mark)
        try:
            yield False
        finally:
            self._keys_in_use.discard(mark)

    async def look_up(self, function: Callable[[], T], *, organization_id: str) -> T:
        """Run a function that waits for DNS, for one request of the organization."""
        result: T = await self._look_ups.submit(function, Place(organization_id))
        return result

    # In the threads --------------------------------------------------------------------------------------------

    def _write_batch(self, writes: Sequence[Write]) -> Sequence[Any]:
        return self.database.write_each([run for run, _ in writes], once=[is_once for _, is_once in writes])
