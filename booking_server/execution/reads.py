"""Run reads so that none of them waits for a slow one of another organization.

Three executors, each with separate connections, all of them fair between organizations. In the lanes of keys the
callers of requests are looked up, all that wait with one statement, and reads that cost one row are answered too: `GET
/me`, one resource by its id. Lists run in separate lanes; an organization has at most half of them. Both know the
organization of a key from when it was valid last; whether it is valid now is looked up on the connection of the read.
A key that was never seen valid is looked up in a lane apart: a flood of wrong ones delays no other caller.

Reads for guests' pages, checkouts and Stripe's webhooks have no API key, and use the same lanes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from booking_core.base.context import Caller
from booking_core.base.errors import ApiKeyInvalid, ApiKeyMissing, Unavailable
from booking_core.db.engine import Database, Tx
from booking_core.records.idempotency import Answer
from booking_server.execution.authenticator import Authenticator, Credentials, network_of
from booking_server.execution.executor import RETRY, BatchExecutor, HandOver, OwnerQueue, Place

T = TypeVar("T")

LIST_TIMEOUT_S = 2.0
"""Seconds that a statement of a list may take (decision R4)."""
_LIST_TOO_LONG = f"The list took longer than {LIST_TIMEOUT_S:.0f} seconds: narrow it with a filter, or try again."
_LIST_RETRY_AFTER_S = 2
_KEY_THREADS = 2
_KEY_BATCH = 32
"""Reads of keys that are answered together. Each costs one row at most, and one statement looks up all their keys."""
LIST_THREADS = 4
_LIST_BATCH = 8
LIST_TURN_S = 0.02
"""The seconds after which a batch of lists begins no further one: the others wait for the next turn of their
organization."""
WRONG_KEY_PAUSE_S = 0.001
"""The pause of the lane for new keys after each request with a wrong one, or none. Guesses on many connections take the
interpreter from all other requests otherwise, before the limits of their addresses end it."""


@dataclass(slots=True)
class Read:
    """A read that waits for a connection, and for its caller where it has credentials."""

    credentials: Credentials | None
    run: Callable[[Tx, Any], object]
    """Returns the result; gets the caller where there are credentials, and else None."""
    is_list: bool = False
    caller: Caller | Exception | None = None
    """The caller or its refusal, once its key was looked up."""


class Reads:
    """Carries out the reads of one process."""

    def __init__(
        self,
        database: Database,
        authenticator: Authenticator,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._database = database
        self._authenticator = authenticator
        self._clock = clock
        self._pause = pause
        self._new_keys_free_s = 0.0
        """The time before which the lane for new keys pauses."""
        self._keys = database.open_readers(_KEY_THREADS + 1, name="keys")
        self._lists_connections = database.open_readers(LIST_THREADS, name="lists", statement_timeout_s=LIST_TIMEOUT_S)
        self.lists: BatchExecutor[Read, Any] = BatchExecutor(
            "list", self._run_lists, threads=LIST_THREADS, batch=_LIST_BATCH, waiting=OwnerQueue(LIST_THREADS // 2)
        )
        self._known_keys: BatchExecutor[Read, Any] = BatchExecutor(
            "key", self._run_keyed, threads=_KEY_THREADS, batch=_KEY_BATCH, overflow=self.lists
        )
        self._new_keys: BatchExecutor[Read, Any] = BatchExecutor(
            "new-key", self._run_new_keys, threads=1, batch=_KEY_BATCH, overflow=self.lists
        )

    def close(self) -> None:
        """Finish the waiting jobs."""
        for executor in (self._new_keys, self._known_keys, self.lists):
            executor.close()

    @property
    def executors(self) -> "Sequence[BatchExecutor[Read, Any]]":
        """Return the executors, for metrics."""
        return self._known_keys, self._new_keys, self.lists

    async def authenticate(self, credentials: Credentials) -> Caller:
        """Return the caller of a request, counted against its rate limit."""
        caller: Caller = await self._submit(credentials, Read(credentials, lambda _, caller: caller))
        return caller

    def read_for(
        self, credentials: Credentials, query: Callable[[Tx, Caller], object], *, is_list: bool
    ) -> Awaitable[Answer]:
        """Authenticate and run a query for the caller; its result, with status 200, is to be awaited.

        Args:
            query: returns a dict for JSON, JSON bytes, or an answer.
            is_list: the query may cost more than the look-up of a row.

        Raises:
            Unavailable: there are too many reads before it, or the list took longer than it may.
        """
        return self._submit(credentials, Read(credentials, lambda tx, caller: as_answer(query(tx, caller)), is_list))

    async def read(self, query: Callable[[Tx], object]) -> Answer:
        """Run a query that needs no caller, and return its result with status 200."""
        return await self._submit_raw(self.lists, Place(), lambda tx: as_answer(query(tx)))

    async def read_of(self, organization_id: str, query: Callable[[Tx], T], *, is_list: bool) -> T:
        """Run a query of an organization that needs no API key, such as the query of a guest's page, and return its
        result.

        Args:
            is_list: the query may cost more than the look-up of a row.

        Raises:
            Unavailable: as `read_for`.
        """
        return await self._submit_raw(self.lists if is_list else self._known_keys, Place(organization_id), query)

    async def read_from(self, address: str, query: Callable[[Tx], T]) -> T:
        """Run a query that costs one row for a client that is not known yet, fair between the networks of such clients,
        and return its result.

        Raises:
            Unavailable: there are too many reads before it.
        """
        return await self._submit_raw(self._new_keys, Place(network_of(address)), query)

    async def _submit_raw(self, executor: BatchExecutor[Read, Any], place: Place, query: Callable[[Tx], T]) -> T:
        result: T = await executor.submit(Read(None, lambda tx, _: query(tx)), place)
        return result

    def _submit(self, credentials: Credentials, read: Read) -> "asyncio.Future[Any]":
        organization_id = self._authenticator.known_organization(credentials)
        if organization_id is None:
            return self._new_keys.submit(read, Place(network_of(credentials.address)))
        executor = self.lists if read.is_list else self._known_keys
        return executor.submit(read, Place(organization_id))

    # In the threads --------------------------------------------------------------------------------------------

    def _run_keyed(self, reads: Sequence[Read]) -> list[Any]:
        """Look up the callers of a batch, answer the reads of one row, and hand the lists over."""
        with self._keys.reading() as tx:
            self._look_up(tx, reads)
            return [
                HandOver(Place(read.caller.organization.id))
                if read.is_list and isinstance(read.caller, Caller)
                else self._result(tx, read)
                for read in reads
            ]

    def _run_new_keys(self, reads: Sequence[Read]) -> list[Any]:
        """Run reads as `_run_keyed`, after the pause for the wrong keys of the batch before."""
        pause_s = self._new_keys_free_s - self._clock()
        if pause_s > 0:
            self._pause(pause_s)
        results = self._run_keyed(reads)
        wrong = sum(isinstance(result, (ApiKeyInvalid, ApiKeyMissing)) for result in results)
        self._new_keys_free_s = self._clock() + wrong * WRONG_KEY_PAUSE_S
        return results

    def _run_lists(self, reads: Sequence[Read]) -> list[Any]:
        with self._lists_connections.reading() as tx:
            self._look_up(tx, reads)
            turn_ends_s = self._clock() + LIST_TURN_S
            first, *others = reads
            results = [self._result(tx, first)]
            results += [self._result(tx, read) if self._clock() < turn_ends_s else RETRY for read in others]
            return results

    def _look_up(self, tx: Tx, reads: Sequence[Read]) -> None:
        """Look up the keys of a batch with one statement."""
        unknown = [(read, read.credentials) for read in reads if read.credentials and not read.caller]
        if unknown:
            callers = self._authenticator.authenticate(tx, [credentials for _, credentials in unknown])
            for (read, _), caller in zip(unknown, callers, strict=True):
                read.caller = caller

    def _result(self, tx: Tx, read: Read) -> Any:
        """Return the result of a read or its error."""
        if isinstance(read.caller, Exception):
            return read.caller
        tx.instant = _own_instant(read.caller)
        try:
            with self._database.translating_errors():
                return read.run(tx, read.caller)
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            is_too_long = isinstance(error.__cause__, Exception) and self._database.driver.is_timeout(error.__cause__)
            if is_too_long:
                return Unavailable(_LIST_TOO_LONG, retry_after_s=_LIST_RETRY_AFTER_S, reason="list_timeout")
            return error


def _own_instant(caller: Caller | None) -> int | None:
    """Return the instant of a sandbox whose clock is ahead, for the statements of its read."""
    return caller.at if caller and caller.organization.clock_offset else None


def as_answer(result: object, status: int = 200) -> Answer:
    """Return the answer of a read or command from its result: a dict for JSON, JSON bytes, None for no body, or the
    answer itself."""
    if isinstance(result, Answer):
        return result
    if result is None:
        return Answer(status, b"")
    return Answer(status, result if isinstance(result, bytes) else orjson.dumps(result))
