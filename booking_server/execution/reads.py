"""Run reads so that none of them waits for a slow one of another organization.

Three executors, each with connections of its own. A request that comes with a key that was valid before is looked up
in the lanes of keys, all keys that wait with one statement, and there a read that costs one row is answered too: `GET
/me`, one resource by its id. A list goes on in the lanes of lists, in which an organization has a part. A key that this
process has not seen to be valid is looked up in a lane apart, so that a flood of wrong ones delays no other caller.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import orjson

from booking_core.context import Caller
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable
from booking_core.idempotency import Answer
from booking_server.execution.authenticator import Authenticator, Credentials
from booking_server.execution.clients import network_of
from booking_server.execution.fair_executor import FairExecutor, QueuedJob
from booking_server.execution.futures import UNRESOLVED, Unresolved

LIST_TIMEOUT_S = 2.0
"""Seconds that a statement of a list may take (decision R4)."""
_LIST_TOO_LONG = f"The list took longer than {LIST_TIMEOUT_S:.0f} seconds: narrow it with a filter, or try again."
_KEY_LANES = 2
_KEY_BATCH = 8
_NEW_KEY_BATCH = 32


@dataclass(frozen=True, slots=True)
class Read:
    """A read that waits for a connection, and for its caller where it has credentials."""

    credentials: Credentials | None
    run: Callable[..., object] | None
    """Gets the transaction, and the caller where there are credentials; returns a dict for JSON, or JSON bytes. Without
    it the caller itself is the result."""
    is_list: bool = False
    caller: Caller | None = None


Queued = Sequence[QueuedJob[Read]]
Results = list[Answer | Caller | Exception | Unresolved]


class Reads:
    """Carries out the reads of one process."""

    def __init__(self, database: Database, authenticator: Authenticator) -> None:
        self._database = database
        self._authenticator = authenticator
        driver = database.driver
        keys = database.open_readers(_KEY_LANES + 1)
        self._lists_connections = database.open_readers(driver.readers_max, statement_timeout_s=LIST_TIMEOUT_S)
        self._new_keys: FairExecutor[Read] = FairExecutor(
            "new-key", self._with_connection(keys.reading), lanes=1, batch=_NEW_KEY_BATCH
        )
        self._known_keys: FairExecutor[Read] = FairExecutor(
            "key", self._with_connection(keys.reading), lanes=_KEY_LANES, batch=_KEY_BATCH
        )
        self._lists: FairExecutor[Read] = FairExecutor(
            "list",
            self._run_list,
            lanes=driver.readers,
            lanes_max=driver.readers_max,
            per_tenant=driver.readers_max // 2,
        )

    def close(self) -> None:
        """Finish what waits."""
        for executor in (self._new_keys, self._known_keys, self._lists):
            executor.close()

    async def authenticate(self, credentials: Credentials) -> Caller:
        """Return the caller of a request, counted against its rate limit."""
        caller: Caller = await self._submit(credentials, Read(credentials, None))
        return caller

    async def read(self, query: Callable[[Tx], object]) -> Answer:
        """Run a query that needs no caller, and return its result with status 200."""
        answer: Answer = await self._lists.submit("", Read(None, query, is_list=True))
        return answer

    async def read_for(
        self, credentials: Credentials, query: Callable[[Tx, Caller], object], *, is_list: bool
    ) -> Answer:
        """Authenticate and run a query for the caller, and return its result with status 200.

        Args:
            is_list: the query may cost more than the look-up of a row.

        Raises:
            Unavailable: there are too many reads before it, or the list took longer than it may.
        """
        answer: Answer = await self._submit(credentials, Read(credentials, query, is_list))
        return answer

    def _submit(self, credentials: Credentials, read: Read) -> "asyncio.Future[Any]":
        organization_id = self._authenticator.known_organization(credentials)
        if organization_id is None:
            return self._new_keys.submit(network_of(credentials.address), read)
        return self._known_keys.submit(organization_id, read)

    # In the threads --------------------------------------------------------------------------------------------

    def _with_connection(self, reading: Callable[[], AbstractContextManager[Tx]]) -> Callable[[Queued], Results]:
        def run(batch: Queued) -> Results:
            with reading() as tx:
                return self._run_keyed(tx, batch)

        return run

    def _run_keyed(self, tx: Tx, batch: Queued) -> Results:
        """Look up the callers of a batch with one statement, answer what is cheap, and hand on the lists."""
        callers = self._authenticator.authenticate(tx, [each.job.credentials for each in batch if each.job.credentials])
        return [self._answer(tx, each, caller) for each, caller in zip(batch, callers, strict=True)]

    def _answer(
        self, tx: Tx, queued: QueuedJob[Read], caller: Caller | Exception
    ) -> Answer | Caller | Exception | Unresolved:
        read = queued.job
        if isinstance(caller, Exception) or read.run is None:
            return caller
        if not read.is_list:
            return self._result(tx, read.run, caller)
        listing = Read(read.credentials, read.run, is_list=True, caller=caller)
        try:
            self._lists.forward(caller.organization.id, queued._replace(job=listing))
        except Unavailable as error:
            return error
        return UNRESOLVED

    def _run_list(self, batch: Queued) -> Results:
        with self._lists_connections.reading() as tx:
            return [self._result(tx, each.job.run, each.job.caller) for each in batch if each.job.run]

    def _result(self, tx: Tx, run: Callable[..., object], caller: Caller | None) -> Answer | Exception:
        try:
            with self._database.translating_errors():
                result = run(tx, caller) if caller else run(tx)
                return Answer(200, result if isinstance(result, bytes) else orjson.dumps(result))
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            is_too_long = error.__cause__ is not None and self._is_timeout(error.__cause__)
            return Unavailable(_LIST_TOO_LONG, retry_after_s=int(LIST_TIMEOUT_S)) if is_too_long else error

    def _is_timeout(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and self._database.driver.is_timeout(error)
