"""The job that deletes rows past their retention (decision L8).

Deliveries, deleted endpoints, events and stored answers have retentions of their own; mails with their outbox rows and
holds are kept as long as deliveries. Each batch is a short transaction of one organization, and a turn has a bound, so
that neither requests nor other organizations wait. The age of a row is measured with the retention clock, which follows
the database's clock but never jumps with it.
"""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from booking_core import notifications, webhooks
from booking_core.base.clock import DAY, HOUR, MINUTE, SECOND, elapsed_s, has_passed
from booking_core.base.errors import Unavailable, is_outage
from booking_core.base.repeated_log import RepeatedLog
from booking_core.base.settings import Settings
from booking_core.bookings import storefront
from booking_core.db.due import NIL_ID, DueRows, Owner
from booking_core.db.engine import Database, Tx
from booking_core.records import events, idempotency, parked, retention_clock
from booking_core.records.retention_clock import Measured, Reading
from booking_server.worker.jobs.isolation import FailureIsolation
from booking_server.worker.jobs.job import Job
from booking_server.worker.jobs.rotation import Examine, Rotation

log = logging.getLogger("booking.retention")

BATCH = 2_000
"""Rows of each kind in one turn."""
TRANSACTION_MAX = 500
"""Rows in one transaction: on SQLite, which has one writer, a booking waits for it."""
TRANSACTIONS_MAX = 20
"""Transactions of each kind in one turn, where many organizations have a few old rows each."""
EVERY = MINUTE
PAUSE = SECOND // 4
"""The interval while there is more to delete."""
DRY_RUN_MAX = 20_000
"""Rows of each kind that a dry run counts at most: it deletes them and rolls back."""
_ALL_AT_ONCE = 1_000_000

Purge = Callable[[Tx, str, int], int]
"""Deletes old rows of an organization, at most so many, and returns how many."""
_OF_ALL = NIL_ID
"""Stands for the organization of a purge that knows none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Old rows of one kind."""

    name: str
    organizations: Callable[[Tx, str, int], list[Owner]]
    """Returns organizations behind an id; those count as due that have old rows."""
    purge: Purge

    @property
    def job(self) -> str:
        """Return the name in the table of parked work."""
        return f"purge_{self.name}"


class RetentionJob(Job):
    """Deletes the old rows of all organizations."""

    name = "retention"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        batch: int = BATCH,
        elapsed_s: Callable[[], float] = elapsed_s,
    ) -> None:
        self._settings = settings
        self._database = database
        self._batch = batch
        self._elapsed_s = elapsed_s
        self._measured: Measured | None = None
        self._is_clock_ahead = False
        self._purged_at = 0
        self._pause = EVERY
        self._rotations: defaultdict[str, Rotation] = defaultdict(Rotation)
        self._parked_log = RepeatedLog(log, period_s=HOUR / SECOND)

    async def run_turn(self, stop: asyncio.Event) -> int:
        """Delete a share of each kind when the pause is over, and return the number of rows."""
        now = self._database.clock()
        if not has_passed(self._pause, self._purged_at, now):
            return 0
        counts: Counter[str] = Counter()
        has_more, failures = False, FailureIsolation()
        for kind in self.kinds(await self._advance_clock()):
            with failures.isolated():
                count, is_more = await self._purge_some(kind, self._batch - counts[kind.name], stop)
                counts[kind.name] += count
                has_more |= is_more
        self._purged_at, self._pause = now, PAUSE if has_more else EVERY
        await self._tidy_parked(now)
        failures.raise_last()
        return sum(counts.values())

    async def run_all(self, *, dry_run: bool = False) -> dict[str, int]:
        """Delete everything past its retention, batch after batch, and return the number of rows of each kind.

        Args:
            dry_run: only count, at most `DRY_RUN_MAX` of each kind.
        """
        counts: Counter[str] = Counter()
        for kind in self.kinds(await self._advance_clock()):
            for organization_id in await self._owners(kind, Rotation(), _ALL_AT_ONCE):
                if dry_run:
                    counts[kind.name] += await self._count(kind, organization_id, DRY_RUN_MAX - counts[kind.name])
                else:
                    while count := await self._purge_one(kind, organization_id, self._limit):
                        counts[kind.name] += count
        return dict(counts)

    @property
    def _limit(self) -> int:
        """Return the number of rows of a transaction."""
        return min(self._batch, TRANSACTION_MAX)

    async def _purge_some(self, kind: Kind, most: int, stop: asyncio.Event) -> tuple[int, bool]:
        """Delete old rows of the organizations in turn; return how many, at most `most`, and whether there are more."""
        rotation, total, last = self._rotations[kind.name], 0, None
        waiting = deque(await self._owners(kind, rotation, TRANSACTIONS_MAX))
        share = max(1, most // max(1, len(waiting)))
        for _ in range(TRANSACTIONS_MAX):
            if not waiting or stop.is_set() or total >= most:
                break
            organization_id, limit = waiting.popleft(), min(share, self._limit, most - total)
            try:
                count = await self._purge_one(kind, organization_id, limit)
            except Unavailable as error:
                if is_outage(error):
                    raise
                last, count = error, 0
            rotation.was_served(organization_id)
            total += count
            if count == limit:
                waiting.append(organization_id)
        if last:
            raise last
        return total, bool(waiting)

    async def _owners(self, kind: Kind, rotation: Rotation, limit: int) -> list[str]:
        def read(tx: Tx) -> list[str]:
            examine: Examine = lambda after, at_once: kind.organizations(tx, after, at_once)  # noqa: E731
            return [owner.id for owner in rotation.due(examine, limit)]

        return await asyncio.to_thread(self._database.read, read)

    async def _purge_one(self, kind: Kind, organization_id: str, limit: int) -> int:
        """Delete old rows of one organization in one transaction; park the organization when it fails."""

        def write(tx: Tx) -> int:
            if organization_id == _OF_ALL:
                return kind.purge(tx, organization_id, limit)
            known = parked.find(tx, kind.job, organization_id, [organization_id])
            if any(row.is_waiting for row in known.values()):
                return 0
            if known:
                parked.remove(tx, kind.job, organization_id, known)
            return kind.purge(tx, organization_id, limit)

        try:
            return await asyncio.to_thread(self._database.write, write)
        except Exception as error:
            if isinstance(error, Unavailable) or organization_id == _OF_ALL:
                raise
            await self._park(kind, organization_id, error)
            return 0

    async def _park(self, kind: Kind, organization_id: str, error: Exception) -> None:
        park = lambda tx: parked.park(tx, kind.job, organization_id, organization_id, error)  # noqa: E731
        if await asyncio.to_thread(self._database.write, park):
            text = "old %s of organization %s cannot be deleted: parked"
            log.error(text, kind.name, organization_id, exc_info=error)

    async def _count(self, kind: Kind, organization_id: str, limit: int) -> int:
        return await asyncio.to_thread(self._database.dry_run, lambda tx: kind.purge(tx, organization_id, limit))

    async def _tidy_parked(self, now: int) -> None:
        """Delete parked rows that are no longer due, and log the number of the others once an hour."""
        forget = lambda tx: parked.purge(tx, before=now - DAY, limit=TRANSACTION_MAX)  # noqa: E731
        if counts := await asyncio.to_thread(self._database.read, parked.count):
            await asyncio.to_thread(self._database.write, forget)
            listed = ", ".join(f"{job} {count}" for job, count in counts.items())
            self._parked_log.note(logging.WARNING, "parked", f"parked rows ({listed}): `booking doctor` names them")

    async def _advance_clock(self) -> int:
        """Advance the retention clock and return its reading."""
        elapsed_s = self._elapsed_s()
        advance = lambda tx: retention_clock.advance(tx, self._measured, elapsed_s)  # noqa: E731
        reading: Reading = await asyncio.to_thread(self._database.write, advance)
        self._measured = reading.measured
        self._log_difference(reading)
        return reading.at

    def _log_difference(self, reading: Reading) -> None:
        """Log when the clock runs ahead of the retention clock, and when the two agree again."""
        is_ahead = reading.behind > DAY
        if is_ahead and not self._is_clock_ahead:
            days = reading.behind / DAY
            log.warning("the clock is %.1f days ahead of the retention clock: fewer rows are deleted meanwhile", days)
        if self._is_clock_ahead and not is_ahead:
            log.info("the clock and the retention clock agree again")
        self._is_clock_ahead = is_ahead

    def kinds(self, now: int) -> Sequence[Kind]:
        """Return what is purged at an instant of the retention clock."""
        settings = self._settings
        deliveries_before = now - settings.delivery_retention_days * DAY
        events_before = now - settings.event_retention_days * DAY
        answers_before = now - settings.idempotency_retention_days * DAY

        def old(name: str, work: DueRows, purge: _PurgeBefore, before: int) -> Kind:
            find = lambda tx, after, limit: work.organizations(tx, after=after, limit=limit, until=before - 1)  # noqa: E731
            return Kind(name, find, lambda tx, owner, limit: purge(tx, owner, before=before, limit=limit))

        unmailed, mails = notifications.ENDED_UNMAILED, notifications.ENDED_MAILS
        return [
            _of_all("deliveries", webhooks.purge, deliveries_before),
            _of_all("deleted_endpoints", webhooks.purge_endpoints, deliveries_before),
            *(old("mails", work, notifications.purge, deliveries_before) for work in mails),
            *(old("effects", work, notifications.purge_unmailed, deliveries_before) for work in unmailed),
            old("holds", storefront.OLD_HOLDS, storefront.purge_holds, deliveries_before),
            old("stored_answers", idempotency.OLD, idempotency.purge, answers_before),
            Kind(
                "events",
                lambda tx, after, limit: events.organizations_before(tx, events_before, after=after, limit=limit),
                lambda tx, owner, limit: events.purge(tx, owner, before=events_before, limit=limit),
            ),
        ]


_PurgeBefore = Callable[..., int]


def _of_all(name: str, purge: _PurgeBefore, before: int) -> Kind:
    """Return a kind whose purge knows no organizations: there is one entry, behind no id."""

    def organizations(_: Tx, after: str, limit: int) -> list[Owner]:
        return [Owner(_OF_ALL, is_due=True)]

    return Kind(name, organizations, lambda tx, _, limit: purge(tx, before=before, limit=limit))
