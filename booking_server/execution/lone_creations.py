"""The booking of a request that comes alone, or beside a rush: a transaction of the event loop, with two round trips.

A batch in a thread serves many requests at once. One that comes alone has nothing to share, and pays for it: two
hand-overs between threads, and a round trip each for its key and for the numbers. Here the key is looked up in the
transaction of the booking, beside what is locked and read for the caller that the key had last. When it has another one
by now, or when the loop would have to wait for anything but these two responses, the request goes to the batch
(decisions/0076).

While batches have requests of one organization only, one of another organization is made so beside them: it would wait
for the batch in hand and for the next one, and the two have no row in common (decisions/0078).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from booking_core import bookings
from booking_core.bookings import CreateRequest, Deferred
from booking_core.context import Caller
from booking_core.db import loop_writes
from booking_core.db.engine import Database, Pool, Query, Tx
from booking_core.errors import BookingError, Unavailable
from booking_core.idempotency import Answer
from booking_server.execution.authenticator import Authenticator
from booking_server.execution.creation import Creation
from booking_server.execution.executor import BatchExecutor


class _NotAlone(Exception):
    """Ends a transaction whose request is to be decided in a batch."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A booking that is prepared for the caller that its key had last."""

    creation: Creation
    create: CreateRequest
    key: tuple[Query[Caller | BookingError], ...]
    """The query that looks the key up; none where it was looked up already."""
    begun_s: float
    vacate: Callable[..., None]
    """Gives the place back."""

    def queries(self, database: Database) -> list[Query[Any]]:
        return [*self.key, *bookings.first_queries(database.dialect, (self.create,))]


class LoneCreations:
    """Creates bookings on the event loop while no others wait, run or are expected, or only those of one organization.

    Args:
        batches: the executor of all other bookings, whose place each of these takes, or which it overtakes.
        lane: the connection of the batches, and another one.
    """

    def __init__(
        self, database: Database, authenticator: Authenticator, batches: BatchExecutor[Creation, Answer], lane: Pool
    ) -> None:
        self._database = database
        self._authenticator = authenticator
        self._batches = batches
        self._lane = lane
        self._running: set[asyncio.Task[Answer | None]] = set()
        self._opening: asyncio.Future[None] | None = None

    def begin(self, creation: Creation, organization_id: str | None) -> "asyncio.Task[Answer | None] | None":
        """Begin a booking, and return the task of its answer; None where the request is to be submitted to the batches,
        which a task that returns None leaves to its caller too.

        The task raises the refusal of the request.
        """
        vacate = self._place(organization_id)
        if vacate is None:
            return None
        attempt = self._prepared(creation, vacate)
        if attempt is None:
            vacate()
            return None
        running = asyncio.ensure_future(self._run(attempt))
        self._running.add(running)
        running.add_done_callback(self._ended)
        return running

    def _place(self, organization_id: str | None) -> Callable[..., None] | None:
        """Take the place of the batches, or one beside them, and return the function that gives it back; None where
        there is none."""
        if not loop_writes.is_possible(self._database):
            return None
        if self._batches.occupy():
            return self._batches.vacate
        return self._batches.end_overtaking if self._batches.overtake(organization_id) else None

    def _ended(self, task: "asyncio.Task[Answer | None]") -> None:
        self._running.discard(task)
        _note_end(task)  # of a client that has hung up, nothing else asks for it

    def _prepared(self, creation: Creation, vacate: Callable[..., None]) -> _Attempt | None:
        """Prepare a booking for the last caller of its key; None without one, and if it is to be refused."""
        authenticator, credentials, caller = self._authenticator, creation.credentials, creation.caller
        key: tuple[Query[Caller | BookingError], ...] = ()
        try:
            if caller is None:
                caller = authenticator.last_caller(credentials)
                key = (authenticator.look_up_query(credentials),)
            if not isinstance(caller, Caller):
                return None
            create = creation.made_for(caller)
        except Exception:  # noqa: BLE001 - the batch refuses it, after a look-up of its key
            return None
        has_hold = create.hold_key is not None  # which takes more statements
        return None if has_hold else _Attempt(creation, create, key, time.monotonic(), vacate)

    async def _run(self, attempt: _Attempt) -> Answer | None:
        is_left = False
        try:
            answer = await self._answer(attempt)
            is_left = answer is None
            return answer
        finally:
            attempt.vacate(has_run=not is_left)

    async def _answer(self, attempt: _Attempt) -> Answer | None:
        """Return the answer, or raise the refusal; None where the request is left to the batches."""
        try:
            return await loop_writes.write_on_loop(
                self._database,
                attempt.queries(self._database),
                lambda tx, found: self._decide(attempt, tx, found),
                lane=self._lane,
            )
        except loop_writes.NotOnLoop:
            self._open_connection()
            return None
        except _NotAlone:
            return None
        except Unavailable as error:
            if error.is_locked:
                return None
            raise

    def _open_connection(self) -> None:
        """Let a thread open another connection for the requests to come, where none is idle."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._lane.open_one))
            self._opening.add_done_callback(_note_end)

    def _decide(self, attempt: _Attempt, tx: Tx, found: Sequence[Any]) -> Answer:
        if self._opening is None:  # while this transaction has the connection that is open
            self._open_connection()
        create = attempt.create
        if attempt.key:
            create = self._admitted(attempt, found[0])
            found = found[1:]
        (result,) = bookings.decide_many(tx, (create,), found)
        if isinstance(result, Deferred):
            raise _NotAlone
        if isinstance(result, BookingError):
            raise result
        return result

    def _admitted(self, attempt: _Attempt, found: Caller | BookingError) -> CreateRequest:
        """Return the booking for the caller of the key, as it is now.

        Raises:
            BookingError: the key or the organization is refused.
            _NotAlone: the booking was prepared for a caller that differs.
        """
        creation, prepared = attempt.creation, attempt.create.caller
        caller = creation.caller = self._authenticator.admit(creation.credentials, found, attempt.begun_s)
        if (caller.organization, caller.key) != (prepared.organization, prepared.key):
            raise _NotAlone
        return replace(attempt.create, caller=caller)


def _note_end(ended: "asyncio.Future[Any]") -> None:
    """Note how a future has ended that nothing else may ask: an error would be logged as one that was never seen."""
    if not ended.cancelled():
        ended.exception()
