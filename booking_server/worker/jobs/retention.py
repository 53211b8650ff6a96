"""The chore that forgets what is past its retention: deliveries and events, deleted endpoints, stored answers (decision
L8); and, for as long as the log of deliveries, mails with what owed them, and holds.

In batches, each a short transaction, with a pause after each: whoever reads or books in the meantime notices nothing,
and neither do deliveries, which this leaves to their own task. How old something is, is said by the retention clock,
which follows the database's clock and never leaps with it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from booking_core import events, idempotency, notifications, retention_clock, storefront, webhooks
from booking_core.clock import DAY, MINUTE, SECOND, elapsed_s, has_passed
from booking_core.db.engine import Database, Tx
from booking_core.errors import Unavailable
from booking_core.retention_clock import Measured, Reading
from booking_core.settings import Settings

log = logging.getLogger("booking.purging")

BATCH = 2_000
"""Rows of each kind, in one transaction."""
EVERY = MINUTE
PAUSE = SECOND // 4
"""While there is more."""
REHEARSED = 20_000
"""Rows of each kind that a rehearsal counts: it deletes them, and undoes that."""

Purge = Callable[[Tx], int]


class Purging:
    """What is old, of all organizations."""

    name = "purging"

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
        self._is_held_back = False
        self._purged_at = 0
        self._pause = EVERY

    async def run_once(self) -> int:
        """Forgets a batch of each kind when it is time, and gives how much that was. One that fails keeps no other from
        being forgotten."""
        now = self._database.clock()
        if not has_passed(self._pause, self._purged_at, now):
            return 0
        purged: list[int] = []
        failed: Exception | None = None
        for _, purge in await self._purges(await self._believed(), self._batch):
            try:
                purged.append(await asyncio.to_thread(self._database.write, purge))
            except Exception as error:  # told when the others have had their turn
                if isinstance(error, Unavailable) and error.for_all:
                    raise
                failed = error
        self._purged_at, self._pause = now, PAUSE if self._batch in purged else EVERY
        if failed:
            raise failed
        return sum(purged)

    async def _believed(self) -> int:
        """Move the retention clock, and return what it says."""
        elapsed_s = self._elapsed_s()
        advance = lambda tx: retention_clock.advance(tx, self._measured, elapsed_s)  # noqa: E731
        reading: Reading = await asyncio.to_thread(self._database.write, advance)
        self._measured = reading.measured
        self._tell(reading)
        return reading.at

    def _tell(self, reading: Reading) -> None:
        """Log when the clock has run away from what purges believe, and when they agree again."""
        is_held_back = reading.behind > DAY
        if is_held_back and not self._is_held_back:
            days = reading.behind / DAY
            log.warning("the clock is %.1f days ahead of what has been observed: less is deleted meanwhile", days)
        if self._is_held_back and not is_held_back:
            log.info("the clock agrees with what has been observed again")
        self._is_held_back = is_held_back

    async def run_all(self, *, is_rehearsal: bool = False) -> dict[str, int]:
        """Delete all that is past its retention, batch after batch, and return how much of each kind that was.

        Args:
            is_rehearsal: only count, at most `REHEARSED` of each kind.
        """
        counts: Counter[str] = Counter()
        limit = REHEARSED if is_rehearsal else self._batch
        carry_out = self._database.dry_run if is_rehearsal else self._database.write
        for kind, purge in await self._purges(await self._believed(), limit):
            purged = limit
            while purged == limit:
                purged = await asyncio.to_thread(carry_out, purge)
                counts[kind] += purged
                if is_rehearsal:
                    break
        return dict(counts)

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
            *(("events", _of_organization(organization_id, events_before, limit)) for organization_id in old),
        ]

    async def close(self) -> None:
        """Nothing is held open."""


def _of_organization(organization_id: str, before: int, limit: int) -> Purge:
    return lambda tx: events.purge(tx, organization_id, before=before, limit=limit)
