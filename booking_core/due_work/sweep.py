"""Process the due rows of all organizations: a batch of each in turn, and around what cannot be processed.

A batch is one short transaction. When it fails, its rows are processed one by one; a row that still fails is parked
(`due_work.parked`), logged once, and tried again later. A row that another transaction has locked is passed over and
found again by the next pass. So neither a large backlog nor a broken row of one organization delays the rows of
another, or its own other rows.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from booking_core.base.errors import Unavailable, is_outage
from booking_core.db.engine import Database, Tx
from booking_core.due_work import parked
from booking_core.due_work.parked import ParkedRow
from booking_core.due_work.rows import NIL_ID, DuePage, DueRow, DueWork, Owner, Processed

log = logging.getLogger("booking.jobs")

BATCH = 50
"""Rows in one transaction. Bookings wait for it: for its locks, and on SQLite, which has one writer, for all of it."""
BATCHES_MAX = 40
"""Transactions of one turn. Then other work of the same job has its turn, and this work continues after it."""
LOCK_WAIT_MS = 100
"""The time that a batch waits for a lock. A row that stays locked is found again by the next pass."""
FAILURES_MAX = 5
"""Rows in a row that fail before their organization is parked as a whole: the cause is hardly in the rows."""
EXAMINED_AT_ONCE = 500
"""Organizations that one statement examines."""

T = TypeVar("T")
ResultT = TypeVar("ResultT")
Process = Callable[[Tx, str, Sequence[str]], Processed[T]]
"""Processes due rows of an organization, by their keys. It checks again that they are due, and skips locked ones."""


@dataclass(slots=True)
class SweepBatch(Generic[T]):
    """The rows of a batch that were processed, and their results."""

    finished: list[str] = field(default_factory=list)
    remaining: list[str] = field(default_factory=list)
    results: list[T] = field(default_factory=list)
    last: str | None = None
    """The row that was tried last, when the others were not tried."""
    has_more: bool = False
    """The organization may have more due rows that can be processed in this turn."""

    @property
    def count(self) -> int:
        return len(self.finished) + len(self.remaining)

    def add(self, processed: Processed[T]) -> None:
        self.finished += processed.finished
        self.remaining += processed.remaining
        self.results += processed.results


@dataclass(slots=True)
class _Pass:
    """The position of a pass over the due rows of an organization."""

    after: DueRow | None = None
    has_remaining: bool = False
    """Rows were left that another pass has to process."""


class Sweep(Generic[T]):
    """Work of one kind, for all organizations.

    Args:
        name: of the job in the table of parked rows and in log lines.
        limit: rows of a batch.
        is_lease: rows are only leased, and are done when `settle` has run.
        observe: takes the results of each batch of a turn, for metrics.
    """

    def __init__(
        self,
        name: str,
        database: Database,
        work: DueWork,
        process: Process[T],
        *,
        limit: int = BATCH,
        is_lease: bool = False,
        observe: Callable[[Sequence[T]], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.has_more = False
        """The last turn ended with due rows left."""
        self._database = database
        self._work = work
        self._process = process
        self._limit = limit
        self._is_lease = is_lease
        self._observe = observe
        self._unresolved: set[tuple[str, str]] = set()
        """Organizations with leased rows, and parked rows."""
        self._last_served = NIL_ID
        """The organization that was served last, in this process: the next turn continues after it."""
        self._passes: dict[str, _Pass] = {}
        self._failures: Counter[str] = Counter()
        """Rows of each organization that failed since the last that did not."""
        self._offsets: dict[str, int] = {}
        """By how much the clocks of sandboxes were ahead when they were last found with due rows."""

    async def run_turn(self, stop: asyncio.Event, *, batches: int = BATCHES_MAX) -> int:
        """Process a batch of each organization in turn until nothing is left; return the number of rows.

        It ends after `batches` transactions, and when `stop` is set after the one in hand. Each round begins with a
        look for organizations: an organization whose first row becomes due now waits for one round, not for a backlog.
        """
        total, unfinished, finished = 0, list[str](), set[str]()
        waiting = deque(await self.organizations(batches))
        while waiting and batches > 0 and not stop.is_set():
            organization_id = waiting.popleft()
            batch = await self.run_batch(organization_id)
            self._observe(batch.results)
            total, batches = total + batch.count, batches - 1
            if batch.has_more:
                unfinished.append(organization_id)
            else:
                finished.add(organization_id)
            if unfinished and not waiting and batches > 0:
                waiting, unfinished = await self._next_round(finished, batches), []
        self.has_more = bool(waiting or unfinished)
        return total

    async def _next_round(self, finished: Set[str], batches: int) -> deque[str]:
        """Return the organizations with due rows now, without those that this turn has finished."""
        organization_ids = await self.organizations(batches + len(finished))
        return deque(organization_id for organization_id in organization_ids if organization_id not in finished)

    async def organizations(self, limit: int) -> list[str]:
        """Return the organizations with due rows that come next, at most `limit`."""
        owners = await asyncio.to_thread(self._database.read, lambda tx: list(islice(self._due(tx), limit)))
        self._offsets = {owner.id: owner.clock_offset for owner in owners if owner.clock_offset}
        return [owner.id for owner in owners]

    def _due(self, tx: Tx) -> Iterator[Owner]:
        """Yield the organizations with due rows, beginning after the organization that was served last."""
        last = self._last_served
        yield from self._due_between(tx, last, None)
        if last != NIL_ID:
            yield from self._due_between(tx, NIL_ID, last)

    def _due_between(self, tx: Tx, after: str, last: str | None) -> Iterator[Owner]:
        while page := self._work.organizations(tx, after=after, limit=EXAMINED_AT_ONCE):
            for owner in page:
                if last is not None and owner.id > last:
                    return
                if owner.is_due:
                    yield owner
            if len(page) < EXAMINED_AT_ONCE:
                return
            after = page[-1].id

    def _set_clock(self, tx: Tx, organization_id: str) -> None:
        """Let the statements of a transaction take the instant of a sandbox whose clock is ahead for the present."""
        offset = self._offsets.get(organization_id)
        if offset:
            tx.instant = tx.now() + offset

    async def run_batch(self, organization_id: str, *, limit: int | None = None) -> SweepBatch[T]:
        """Process the next due rows of an organization in one transaction, or if that fails one by one."""
        self._last_served = organization_id
        position = self._passes.setdefault(organization_id, _Pass())
        page, parked_rows = await self._find(organization_id, position, limit or self._limit)
        if not page.rows and position.after is not None:  # the pass has ended: the next one begins
            position.after = None
            page, parked_rows = await self._find(organization_id, position, limit or self._limit)
        batch: SweepBatch[T] = SweepBatch()
        if not _waits(parked_rows, organization_id):
            await self._process_keys(organization_id, [row.key for row in page.rows], parked_rows, batch)
            batch.has_more = self._advance(organization_id, page, batch)
        return batch

    async def _find(self, organization_id: str, position: _Pass, limit: int) -> tuple[DuePage, Mapping[str, ParkedRow]]:
        def read(tx: Tx) -> tuple[DuePage, Mapping[str, ParkedRow]]:
            self._set_clock(tx, organization_id)
            page = self._work.find(tx, organization_id, after=position.after, limit=limit)
            subjects = [*(row.key for row in page.rows), organization_id]
            return page, parked.find(tx, self.name, organization_id, subjects) if page.rows else {}

        return await asyncio.to_thread(self._database.read, read)

    def _advance(self, organization_id: str, page: DuePage, batch: SweepBatch[T]) -> bool:
        """Move the pass past the rows that were tried, and return whether the organization continues in this turn."""
        position = self._passes[organization_id]
        position.has_remaining |= bool(batch.remaining)
        if batch.last is not None:
            position.after = next(row for row in page.rows if row.key == batch.last)
            return False
        position.after = page.after
        if page.after is None:
            del self._passes[organization_id]
            return position.has_remaining and batch.count > 0
        return True

    # One batch ---------------------------------------------------------------------------------------------------

    async def _process_keys(
        self, organization_id: str, due_keys: Sequence[str], parked_rows: Mapping[str, ParkedRow], batch: SweepBatch[T]
    ) -> None:
        """Process the rows that do not wait in one transaction, or if that fails one by one."""
        keys = [key for key in due_keys if not _waits(parked_rows, key)]
        error = await self._try(organization_id, keys, parked_rows, batch) if keys else None
        if error is None:
            return
        for key in keys:
            if len(keys) > 1:
                error = await self._try(organization_id, [key], parked_rows, batch)
            if error is not None:
                await self._fail(organization_id, key, error, batch)
            if batch.last is not None:
                return

    async def _try(
        self, organization_id: str, keys: Sequence[str], parked_rows: Mapping[str, ParkedRow], batch: SweepBatch[T]
    ) -> Exception | None:
        """Process rows in one transaction, and return its error, unless the database is unavailable for all."""

        def write(tx: Tx) -> Processed[T]:
            tx.limit_lock_waits(LOCK_WAIT_MS)
            self._set_clock(tx, organization_id)
            processed = self._process(tx, organization_id, keys)
            self._unpark(tx, organization_id, parked_rows, processed)
            return processed

        try:
            batch.add(await asyncio.to_thread(self._database.write, write))
        except Exception as error:
            if is_outage(error):
                raise
            return error
        self._failures.pop(organization_id, None)
        return None

    async def _fail(self, organization_id: str, key: str, error: Exception, batch: SweepBatch[T]) -> None:
        """Park a row, and with the last of many that failed in a row its organization."""
        await self.park(organization_id, key, error)
        self._failures[organization_id] += 1
        if self._failures[organization_id] >= FAILURES_MAX:
            batch.last = key
            del self._failures[organization_id]
            await self.park(organization_id, organization_id, error)

    def _unpark(
        self, tx: Tx, organization_id: str, parked_rows: Mapping[str, ParkedRow], processed: Processed[T]
    ) -> None:
        repaired = parked_rows.keys() & {*processed.finished, *processed.remaining, organization_id}
        if self._is_lease:
            self._unresolved |= {(organization_id, subject_id) for subject_id in repaired}
        elif repaired:
            parked.remove(tx, self.name, organization_id, repaired)

    async def settle(self, write: Callable[[Tx], None], rows: Sequence[tuple[str, str]]) -> None:
        """Run a transaction that completes leased rows, and unpark them.

        Args:
            rows: each with its organization.
        """
        repaired = {pair for owner, row_id in rows for pair in ((owner, row_id), (owner, owner))} & self._unresolved

        def settle(tx: Tx) -> None:
            write(tx)
            for organization_id, subject_id in sorted(repaired):
                parked.remove(tx, self.name, organization_id, [subject_id])

        await asyncio.to_thread(self._database.write, settle)
        self._unresolved -= repaired  # only now: the transaction may have run twice, or failed

    async def settle_each(
        self,
        results: Sequence[ResultT],
        write: Callable[[Tx, Sequence[ResultT]], None],
        row_of: Callable[[ResultT], tuple[str, str]],
    ) -> list[tuple[ResultT, Exception]]:
        """Record results together, or if that fails one by one; park the rows of failed results, and return those
        results.

        Args:
            row_of: returns the organization and the id of the row of a result.
        """
        try:
            await self.settle(lambda tx: write(tx, results), [row_of(result) for result in results])
        except Exception as error:
            if is_outage(error):
                raise
            if len(results) > 1:
                return [failed for result in results for failed in await self.settle_each([result], write, row_of)]
            await self.park(*row_of(results[0]), error)
            return [(results[0], error)]
        return []

    async def park(self, organization_id: str, subject_id: str, error: Exception) -> None:
        """Park what failed; a row that is locked, or whose database is busy, is only passed over."""
        if isinstance(error, Unavailable):
            return

        def write(tx: Tx) -> bool:
            return parked.park(tx, self.name, organization_id, subject_id, error)

        if await asyncio.to_thread(self._database.write, write):
            of = "all rows" if subject_id == organization_id else subject_id
            text = "%s: %s of organization %s cannot be processed and is parked"
            log.error(text, self.name, of, organization_id, exc_info=error)


def _waits(parked_rows: Mapping[str, ParkedRow], subject_id: str) -> bool:
    return subject_id in parked_rows and parked_rows[subject_id].is_waiting
