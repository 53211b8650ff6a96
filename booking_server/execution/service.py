"""The shared parts of one process: the database, the limiter, and the executors that carry out requests in threads."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from booking_core import bookings, secret_keys
from booking_core.bookings import CreateRequest, Deferred
from booking_core.context import Caller
from booking_core.db.engine import Database, Tx
from booking_core.db.sqlite import SqliteDriver
from booking_core.errors import is_outage
from booking_core.idempotency import Answer
from booking_core.settings import Settings
from booking_server.adapters.address_guard import AddressGuard
from booking_server.execution.authenticator import Authenticator, Credentials
from booking_server.execution.executor import RETRY, BatchExecutor, Retry
from booking_server.execution.key_usage import KeyUsage
from booking_server.execution.rate_limit import open_limiter
from booking_server.execution.reads import Reads

log = logging.getLogger("booking.http")

T = TypeVar("T")

_BATCH = 32
_LOOK_UP_THREADS = 4


@dataclass(frozen=True, slots=True)
class Write:
    """A transaction that waits for its turn."""

    work: Callable[[Tx], Answer]
    is_once: bool
    """The work has no idempotency key, so it must not run again when the outcome of its commit is unknown."""


@dataclass(slots=True)
class Creation:
    """A booking that waits for its batch."""

    credentials: Credentials
    prepare: Callable[[Caller], CreateRequest]
    """Makes the booking of a request, after the checks that come after its key."""
    caller: Caller | None = None
    """Looked up already: its key was new to this process."""
    create: CreateRequest | None = None
    """Prepared already: it was put off once."""


class Service:
    """Carries out reads, writes and bookings for all requests of one process.

    Each kind has an executor of its own. The core is synchronous, so a client that hangs up cannot cancel a
    transaction half way.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self.settings = settings
        self.database = database
        self.installation = secret_keys.with_link_keys(database, settings.installation())
        self.is_public_address = AddressGuard(settings).is_public_url
        self.running: set[tuple[str, str]] = set()
        """API key and idempotency key, as sent, of each request that runs now."""
        self.committed: Callable[[], None] = lambda: None
        """Called on the event loop after a request that may have written something to be delivered."""
        self.key_usage = KeyUsage(database)
        self.authenticator = Authenticator(
            self.installation, open_limiter(settings.rate_limit_store), self.key_usage, settings.rate_limit
        )
        driver = database.driver
        if isinstance(driver, SqliteDriver):
            driver.checkpoints = True  # this process serves the file
        self.reads = Reads(database, self.authenticator)
        self._writes: BatchExecutor[Write, Answer] = BatchExecutor(
            "write", self._write_batch, threads=driver.writers, batch=_BATCH if database.is_sqlite else 1
        )
        # One thread: what waits while it commits is the next batch, and a booking in a batch of sixteen costs half of
        # what it costs in one of four. A second thread would only split what there is to do on the same processor.
        self._creations: BatchExecutor[Creation, Answer] = BatchExecutor(
            "book", self._create_batch, threads=1, batch=_BATCH, coalesce=True
        )
        # Apart from the writes, which on SQLite all wait for one thread: a write must not wait for another one's DNS.
        self._look_ups: BatchExecutor[Callable[[], Any], Any] = BatchExecutor(
            "look-up", _call_each, threads=_LOOK_UP_THREADS, batch=1
        )

    def close(self) -> None:
        """Finish what waits and close the database."""
        for executor in (self._look_ups, self._creations, self._writes, self.reads):
            executor.close()
        self.database.close()

    async def authenticate(self, credentials: Credentials) -> Caller:
        """Return the caller of a request, counted against its rate limit."""
        return await self.reads.authenticate(credentials)

    async def write(self, work: Callable[[Tx], Answer], *, is_once: bool) -> Answer:
        """Run a transaction and wake the worker."""
        answer = await self._writes.submit(Write(work, is_once))
        self.committed()
        return answer

    async def create_booking(self, credentials: Credentials, prepare: Callable[[Caller], CreateRequest]) -> Answer:
        """Authenticate and create a booking in a batch with others that wait, and wake the worker."""
        # A key that is new to this process is looked up apart, so that a flood of wrong ones does not fill this queue.
        is_known = self.authenticator.known_organization(credentials) is not None
        caller = None if is_known else await self.authenticate(credentials)
        answer = await self._creations.submit(Creation(credentials, prepare, caller))
        self.committed()
        return answer

    @contextlib.contextmanager
    def marked(self, mark: tuple[str, str]) -> Iterator[None]:
        """Mark an idempotency key as in use while its request runs in this process."""
        self.running.add(mark)
        try:
            yield
        finally:
            self.running.discard(mark)

    async def look_up(self, function: Callable[[], T]) -> T:
        """Run a function that waits for DNS."""
        found: T = await self._look_ups.submit(function)
        return found

    # In the threads --------------------------------------------------------------------------------------------

    def _callers(self, tx: Tx, credentials: Sequence[Credentials | None]) -> list[Caller | Exception | None]:
        """Return the caller of each request that has credentials; all keys are looked up with one statement."""
        found = iter(self.authenticator.authenticate(tx, [each for each in credentials if each]))
        return [next(found) if each else None for each in credentials]

    def _write_batch(self, writes: Sequence[Write]) -> Sequence[Answer | Exception]:
        return self.database.write_each([each.work for each in writes], once=[each.is_once for each in writes])

    def _create_batch(self, waiting: Sequence[Creation]) -> list[Answer | Exception | Retry]:
        prepared = self._prepared(waiting)
        creates = [each for each in prepared if isinstance(each, CreateRequest)]
        outcomes = iter(self._create_all(creates) if creates else ())
        return [
            _settled(creation, each, next(outcomes)) if isinstance(each, CreateRequest) else each
            for creation, each in zip(waiting, prepared, strict=True)
        ]

    def _prepared(self, waiting: Sequence[Creation]) -> list[CreateRequest | Exception]:
        """Return the bookings to create, checked before their transaction begins, or their refusals."""
        with self.database.reading() as tx:
            callers = self._callers(tx, [None if each.create or each.caller else each.credentials for each in waiting])
        return [
            each.create or _prepare(each, each.caller or found) for each, found in zip(waiting, callers, strict=True)
        ]

    def _create_all(self, creates: Sequence[CreateRequest]) -> Sequence[Answer | Exception | Deferred]:
        """Create all bookings in one transaction; when it fails, one by one, so that one bad request hurts no other."""
        try:
            return self.database.write(lambda tx: bookings.create_many(tx, creates))
        except Exception as error:  # noqa: BLE001 - returned to its one request, or every request is run alone
            if len(creates) == 1 or (is_outage(error)):
                return [error] * len(creates)
            log.warning("a batch of %d bookings failed and is run one by one: %r", len(creates), error)
            return [self._create_all([create])[0] for create in creates]


def _prepare(creation: Creation, caller: Caller | Exception | None) -> CreateRequest | Exception:
    if not isinstance(caller, Caller):
        return caller or AssertionError("a booking without credentials")
    try:
        return creation.prepare(caller)
    except Exception as error:  # noqa: BLE001 - the error belongs to this one request
        return error


def _settled(
    creation: Creation, create: CreateRequest, outcome: Answer | Exception | Deferred
) -> Answer | Exception | Retry:
    if not isinstance(outcome, Deferred):
        return outcome
    creation.create = replace(create, blocking=True)
    return RETRY


def _call_each(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    return [_call(function) for function in functions]


def _call(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the error belongs to this one request
        return error
