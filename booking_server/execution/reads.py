"""Run reads so that none of them waits for a slow one of another organization.

Three executors, each with connections of its own, all of them fair between organizations. In the lanes of keys the
callers of requests are looked up, all that wait with one statement, and reads that cost one row are answered too: `GET
/me`, one resource by its id. Lists run in lanes of their own, of which an organization has a part. Both know the
organization of a key from when it was valid last; whether it is valid now is looked up on the connection of the read.
A key that was never seen valid is looked up in a lane apart, so that a flood of wrong ones delays no other caller.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from booking_core.context import Caller
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable
from booking_core.idempotency import Answer
from booking_server.execution.authenticator import Authenticator, Credentials
from booking_server.execution.clients import network_of
from booking_server.execution.fair_executor import SLOW_S, FairExecutor, QueuedJob
from booking_server.execution.futures import UNRESOLVED, Unresolved

LIST_TIMEOUT_S = 2.0
"""Seconds that a statement of a list may take (decision R4)."""
_LIST_TOO_LONG = f"The list took longer than {LIST_TIMEOUT_S:.0f} seconds: narrow it with a filter, or try again."
_LIST_RETRY_AFTER_S = 2
_KEY_LANES = 2
_BATCH = 4
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

    def __init__(
        self, database: Database, authenticator: Authenticator, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._authenticator = authenticator
        driver = database.driver
        self._clock = clock
        self._keys = database.open_readers(_KEY_LANES + 1)
        self._lists_connections = database.open_readers(driver.readers_max, statement_timeout_s=LIST_TIMEOUT_S)
        self._new_keys: FairExecutor[Read] = FairExecutor("new-key", self._run_keyed, lanes=1, batch=_NEW_KEY_BATCH)
        self._known_keys: FairExecutor[Read] = FairExecutor("key", self._run_keyed, lanes=_KEY_LANES, batch=_BATCH)
        self._lists: FairExecutor[Read] = FairExecutor(
            "list",
            self._run_lists,
            lanes=driver.readers,
            lanes_max=driver.readers_max,
            per_tenant=driver.readers_max // 2,
            batch=_BATCH,
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
        executor = self._lists if read.is_list else self._known_keys
        return executor.submit(organization_id, read)

    # In the threads --------------------------------------------------------------------------------------------

    def _run_keyed(self, batch: Queued) -> Results:
        """Look up the callers of a batch, answer what costs one row, and hand the lists on."""
        with self._keys.reading() as tx:
            callers = self._callers(tx, batch)
            return [self._answer(tx, each, caller) for each, caller in zip(batch, callers, strict=True)]

    def _callers(self, tx: Tx, batch: Queued) -> list[Caller | Exception | None]:
        """Return the caller of each read that has one; those that are not known are looked up with one statement."""
        unknown = [each.job.credentials for each in batch if each.job.credentials and not each.job.caller]
        found = iter(self._authenticator.authenticate(tx, unknown) if unknown else ())
        return [each.job.caller or (next(found) if each.job.credentials else None) for each in batch]

    def _answer(
        self, tx: Tx, queued: QueuedJob[Read], caller: Caller | Exception | None
    ) -> Answer | Caller | Exception | Unresolved:
        read = queued.job
        if read.run is None:
            assert caller is not None
            return caller
        if isinstance(caller, Caller) and read.is_list:
            return self._forward(queued, caller)
        return self._result(tx, read.run, caller)

    def _forward(self, queued: QueuedJob[Read], caller: Caller) -> Unavailable | Unresolved:
        try:
            self._lists.forward(caller.organization.id, _with_caller(queued, caller))
        except Unavailable as error:
            return error
        return UNRESOLVED

    def _run_lists(self, batch: Queued) -> Results:
        """Run lists of one organization; when one of them is slow, those after it wait for lanes of their own."""
        results: Results = []
        started_s = self._clock()
        with self._lists_connections.reading() as tx:
            callers = self._callers(tx, batch)
            for each, caller in zip(batch, callers, strict=True):
                is_late = bool(results) and self._clock() - started_s > SLOW_S
                if is_late and isinstance(caller, Caller):
                    break
                assert each.job.run is not None
                results.append(self._result(tx, each.job.run, caller))
        rest = list(zip(batch, callers, strict=True))[len(results) :]
        return [*results, *self._put_back(rest)]

    def _put_back(self, rest: Sequence[tuple[QueuedJob[Read], Caller | Exception | None]]) -> Results:
        later = [(each, caller) for each, caller in rest if isinstance(caller, Caller)]
        if later:
            self._lists.put_back(later[0][1].organization.id, [_with_caller(*each) for each in later])
        return [caller if isinstance(caller, Exception) else UNRESOLVED for _, caller in rest]

    def _result(self, tx: Tx, run: Callable[..., object], caller: Caller | Exception | None) -> Answer | Exception:
        if isinstance(caller, Exception):
            return caller
        try:
            with self._database.translating_errors():
                result = run(tx, caller) if caller else run(tx)
                return Answer(200, result if isinstance(result, bytes) else orjson.dumps(result))
        except Exception as error:  # noqa: BLE001 - the error belongs to this one request
            is_too_long = isinstance(error.__cause__, Exception) and self._database.driver.is_timeout(error.__cause__)
            return Unavailable(_LIST_TOO_LONG, retry_after_s=_LIST_RETRY_AFTER_S) if is_too_long else error


def _with_caller(queued: QueuedJob[Read], caller: Caller) -> QueuedJob[Read]:
    return queued._replace(job=replace(queued.job, caller=caller))
