"""The job that deletes rows past their retention (decision L8).

Deliveries, deleted endpoints, events and stored answers have separate retentions; mails with their outbox rows and
holds are kept as long as deliveries. Each batch is a short transaction of one organization, and a turn has a bound:
neither requests nor other organizations wait. The age of a row is measured with the retention clock, which follows the
database's clock but never jumps with it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from booking_core import notifications, webhooks
from booking_core.base.clock import DAY, HOUR, MINUTE, SECOND, elapsed_s, has_passed
from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import Settings
from booking_core.bookings import reservations, storefront
from booking_core.db.engine import Database, Tx
from booking_core.due_work import parked
from booking_core.due_work.rows import DuePage, DueRow, DueRows, Owner, Processed
from booking_core.due_work.sweep import Sweep
from booking_core.records import events, idempotency, retention_clock
from booking_core.records.retention_clock import ClockReading, Measured
from booking_server.worker.jobs.periodic import FailureIsolation, Job

log = logging.getLogger("booking.retention")

LIMIT = 100
"""Rows in one transaction: on SQLite, which has one writer, a booking waits for it."""
TRANSACTIONS_MAX = 20
"""Transactions of each kind in one turn."""
EVERY = MINUTE
PAUSE = SECOND // 4
"""The interval while there is more to delete."""
DRY_RUN_MAX = 20_000
"""Rows of each kind that a dry run counts at most: it deletes them and rolls back."""
RESERVATION_DAYS = 1
"""Reservations that were not booked are kept for a day: no booking leads an erasure to their guests."""
PARKED_MAX = 500
"""Parked rows that one turn deletes."""
_ALL_AT_ONCE = 1_000_000

PurgeBefore = Callable[..., int]
"""Deletes rows of an organization, or of all, that are older than `before`, at most `limit`; returns how many."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Old rows of one kind. The due work of an organization is one row: the organization itself."""

    name: str
    before: Callable[[], int]
    """Returns the instant before which rows are old."""
    examine: Callable[..., list[Owner]]
    """Returns the organizations after `after` with rows up to `until`, at most `limit`."""
    purge: PurgeBefore

    def organizations(self, tx: Tx, *, after: str, limit: int) -> list[Owner]:
        owners = self.examine(tx, after=after, limit=limit, until=self.before() - 1)
        return [Owner(owner.id, owner.is_due) for owner in owners]  # without the clocks of sandboxes

    def find(self, tx: Tx, organization_id: str, *, after: DueRow | None, limit: int) -> DuePage:
        return DuePage([DueRow(0, organization_id)], None)

    def delete(self, tx: Tx, organization_id: str, limit: int) -> int:
        return self.purge(tx, organization_id, before=self.before(), limit=limit)


class RetentionJob(Job):
    """Deletes the old rows of all organizations."""

    name = "retention"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        limit: int = LIMIT,
        transactions: int = TRANSACTIONS_MAX,
        elapsed_s: Callable[[], float] = elapsed_s,
    ) -> None:
        self._database = database
        self._limit = limit
        self._transactions = transactions
        self._elapsed_s = elapsed_s
        self._measured: Measured | None = None
        self._is_clock_ahead = False
        self._purged_at = 0
        self._pause = EVERY
        self._parked_log = RepeatedLog(log, period_s=HOUR / SECOND)
        self.at = 0
        """The reading of the retention clock."""
        self.kinds = self._kinds(settings)
        deliveries = self._before(settings.delivery_retention_days)
        self._of_all: dict[str, Callable[..., int]] = {
            "deliveries": lambda tx, limit: webhooks.purge(tx, before=deliveries(), limit=limit),
            "deleted_endpoints": lambda tx, limit: webhooks.purge_endpoints(tx, before=deliveries(), limit=limit),
        }
        """The purges of deliveries, which know no organizations."""
        self._counts: Counter[str] = Counter()
        """The deleted rows by kind."""
        self._sweeps = [self._sweep(kind) for kind in self.kinds]

    def _sweep(self, kind: Kind) -> Sweep[int]:
        def process(tx: Tx, organization_id: str, keys: Sequence[str]) -> Processed[int]:
            count = kind.delete(tx, organization_id, self._limit)
            is_full = count == self._limit
            return Processed(() if is_full else keys, remaining=keys if is_full else (), results=[count])

        def count(counts: Sequence[int]) -> None:
            self._counts[kind.name] += sum(counts)

        return Sweep(f"purge_{kind.name}", self._database, kind, process, observe=count)

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Delete a share of each kind after the pause, and return the number of rows."""
        now = self._database.clock()
        if not has_passed(self._pause, self._purged_at, now):
            return 0
        await self._advance_clock()
        self._counts.clear()
        failures = FailureIsolation()
        has_more = await self._delete(stop, self._transactions, failures)
        self._purged_at, self._pause = now, PAUSE if has_more else EVERY
        await self._tidy_parked(now)
        failures.raise_last()
        return self._counts.total()

    async def _delete(self, stop: asyncio.Event, transactions: int, failures: FailureIsolation) -> bool:
        """Delete old rows of each kind in so many transactions, and return whether there may be more."""
        has_more = False
        for name in self._of_all:
            with failures.isolated():
                has_more |= await self._delete_of_all(name, stop, transactions)
        for sweep in self._sweeps:
            with failures.isolated():
                await sweep.run_turn(stop, batches=transactions)
                has_more |= sweep.has_more
        return has_more

    async def _delete_of_all(self, name: str, stop: asyncio.Event, transactions: int) -> bool:
        purge = partial(self._of_all[name], limit=self._limit)
        for _ in range(transactions):
            if stop.is_set():
                break
            count = await asyncio.to_thread(self._database.write, purge)
            self._counts[name] += count
            if count < self._limit:
                return False
        return True

    async def run_all(self, *, dry_run: bool = False) -> dict[str, int]:
        """Delete everything past its retention, batch after batch, and return the number of rows of each kind.

        Args:
            dry_run: only count, at most `DRY_RUN_MAX` of each kind.
        """
        await self._advance_clock()
        self._counts.clear()
        failures = FailureIsolation()
        if dry_run:
            await self._count_all()
        else:
            await self._delete(asyncio.Event(), _ALL_AT_ONCE, failures)
        failures.raise_last()
        return dict(self._counts)

    async def _count_all(self) -> None:
        for name, purge in self._of_all.items():
            self._counts[name] += await self._count(partial(purge, limit=DRY_RUN_MAX))
        for kind, sweep in zip(self.kinds, self._sweeps, strict=True):
            for owner in await sweep.organizations(_ALL_AT_ONCE):
                limit = DRY_RUN_MAX - self._counts[kind.name]
                self._counts[kind.name] += await self._count(partial(kind.delete, organization_id=owner, limit=limit))

    async def _count(self, purge: Callable[[Tx], int]) -> int:
        return await asyncio.to_thread(self._database.dry_run, purge)

    async def _tidy_parked(self, now: int) -> None:
        """Delete parked rows that are no longer due, and log the number of the others once an hour."""
        forget = lambda tx: parked.purge(tx, before=now - DAY, limit=PARKED_MAX)  # noqa: E731
        if counts := await asyncio.to_thread(self._database.read, parked.count):
            await asyncio.to_thread(self._database.write, forget)
            listed = ", ".join(f"{job} {count}" for job, count in counts.items())
            self._parked_log.note(logging.WARNING, "parked", f"parked rows ({listed}): `booking doctor` names them")

    async def _advance_clock(self) -> None:
        elapsed_s = self._elapsed_s()
        advance = lambda tx: retention_clock.advance(tx, self._measured, elapsed_s)  # noqa: E731
        reading: ClockReading = await asyncio.to_thread(self._database.write, advance)
        self._measured, self.at = reading.measured, reading.at
        self._log_difference(reading)

    def _log_difference(self, reading: ClockReading) -> None:
        """Log when the clock runs ahead of the retention clock, and when the two agree again."""
        is_ahead = reading.behind > DAY
        if is_ahead and not self._is_clock_ahead:
            days = reading.behind / DAY
            log.warning("the clock is %.1f days ahead of the retention clock: fewer rows are deleted meanwhile", days)
        if self._is_clock_ahead and not is_ahead:
            log.info("the clock and the retention clock agree again")
        self._is_clock_ahead = is_ahead

    # Old rows ------------------------------------------------------------------------------------------------------

    def _before(self, days: int) -> Callable[[], int]:
        return lambda: self.at - days * DAY

    def _kinds(self, settings: Settings) -> Sequence[Kind]:
        deliveries = self._before(settings.delivery_retention_days)
        answers = self._before(settings.idempotency_retention_days)

        def old(name: str, before: Callable[[], int], work: DueRows, purge: PurgeBefore | None = None) -> Kind:
            return Kind(name, before, work.organizations, purge or work.purge)

        return [
            *(old("mails", deliveries, work, notifications.purge) for work in notifications.ENDED_MAILS),
            *(old("effects", deliveries, work) for work in notifications.ENDED_UNMAILED),
            old("holds", deliveries, storefront.OLD_HOLDS, storefront.purge_holds),
            old("reservations", self._before(RESERVATION_DAYS), reservations.UNBOOKED),
            old("stored_answers", answers, idempotency.OLD),
            Kind("events", self._before(settings.event_retention_days), _with_old_events, events.purge),
        ]


def _with_old_events(tx: Tx, *, after: str, limit: int, until: int) -> list[Owner]:
    return events.organizations_before(tx, until + 1, after=after, limit=limit)
