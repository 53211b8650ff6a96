"""The job that deletes rows past their retention (decision L8).

Deliveries, deleted endpoints, events and stored answers have retentions of their own; mails with their outbox rows and
holds are kept as long as deliveries. Each batch is a short transaction with a pause after it, so that requests and
deliveries are not slowed down. The age of a row is measured with the retention clock, which follows the database's
clock but never jumps with it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from booking_core import events, idempotency, notifications, retention_clock, storefront, webhooks
from booking_core.clock import DAY, MINUTE, SECOND, elapsed_s, has_passed
from booking_core.db.engine import Database, Tx
from booking_core.retention_clock import Measured, Reading
from booking_core.settings import Settings
from booking_server.worker.jobs.isolation import FailureIsolation

log = logging.getLogger("booking.retention")

BATCH = 2_000
"""Rows of each kind in one transaction."""
EVERY = MINUTE
PAUSE = SECOND // 4
"""The interval while there is more to delete."""
DRY_RUN_MAX = 20_000
"""Rows of each kind that a dry run counts at most: it deletes them and rolls back."""

Purge = Callable[[Tx], int]


class RetentionJob:
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

    async def run_once(self) -> int:
        """Delete a batch of each kind when the pause is over, and return the number of rows."""
        now = self._database.clock()
        if not has_passed(self._pause, self._purged_at, now):
            return 0
        counts: list[int] = []
        failures = FailureIsolation()
        for _, purge in await self._purges(await self._advance_clock(), self._batch):
            with failures.isolated():
                counts.append(await asyncio.to_thread(self._database.write, purge))
        self._purged_at, self._pause = now, PAUSE if self._batch in counts else EVERY
        failures.raise_last()
        return sum(counts)

    async def run_all(self, *, dry_run: bool = False) -> dict[str, int]:
        """Delete everything past its retention, batch after batch, and return the number of rows of each kind.

        Args:
            dry_run: only count, at most `DRY_RUN_MAX` of each kind.
        """
        counts: Counter[str] = Counter()
        limit = DRY_RUN_MAX if dry_run else self._batch
        run = self._database.dry_run if dry_run else self._database.write
        for kind, purge in await self._purges(await self._advance_clock(), limit):
            count = limit
            while count == limit:
                count = await asyncio.to_thread(run, purge)
                counts[kind] += count
                if dry_run:
                    break
        return dict(counts)

    async def close(self) -> None:
        """Do nothing: the job holds no resources."""

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

    async def _purges(self, now: int, limit: int) -> list[tuple[str, Purge]]:
        settings = self._settings
        deliveries_before = now - settings.delivery_retention_days * DAY
        events_before = now - settings.event_retention_days * DAY
        answers_before = now - settings.idempotency_retention_days * DAY
        old = await asyncio.to_thread(self._database.read, lambda tx: events.organizations_before(tx, events_before))
        return [
            ("deliveries", lambda tx: webhooks.purge(tx, before=deliveries_before, limit=limit)),
            ("deleted_endpoints", lambda tx: webhooks.purge_endpoints(tx, before=deliveries_before, limit=limit)),
            ("mails", lambda tx: notifications.purge(tx, before=deliveries_before, limit=limit)),
            ("effects", lambda tx: notifications.purge_unmailed(tx, before=deliveries_before, limit=limit)),
            ("holds", lambda tx: storefront.purge_holds(tx, before=deliveries_before, limit=limit)),
            ("stored_answers", lambda tx: idempotency.purge(tx, before=answers_before, limit=limit)),
            *(("events", _purge_events(organization_id, events_before, limit)) for organization_id in old),
        ]


def _purge_events(organization_id: str, before: int, limit: int) -> Purge:
    return lambda tx: events.purge(tx, organization_id, before=before, limit=limit)
