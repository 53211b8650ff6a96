"""The chore that forgets what is past its retention: deliveries and events, deleted endpoints, stored answers (decision
L8); and, for as long as the log of deliveries, mails with what owed them, and holds.

In batches, each a short transaction, with a pause after each: whoever reads or books in the meantime notices nothing,
and neither do deliveries, which this leaves to their own task.
"""

import asyncio
from collections.abc import Callable

from booking_core import events, idempotency, notifications, storefront, webhooks
from booking_core.clock import DAY, MINUTE, SECOND
from booking_core.db.engine import Database, Tx
from booking_core.settings import Settings

BATCH = 2_000
"""Rows of each kind, in one transaction."""
EVERY = MINUTE
PAUSE = SECOND // 4
"""While there is more."""

Purge = Callable[[Tx], int]


class Purging:
    """What is old, of all organizations."""

    name = "purging"

    def __init__(self, settings: Settings, database: Database, *, batch: int = BATCH) -> None:
        self._settings = settings
        self._database = database
        self._batch = batch
        self._due_at = 0

    async def run_once(self) -> int:
        """Forgets a batch of each kind when it is time, and gives how much that was."""
        now = self._database.clock()
        if now < self._due_at:
            return 0
        purged = [await asyncio.to_thread(self._database.write, purge) for purge in await self._purges(now)]
        self._due_at = now + (PAUSE if self._batch in purged else EVERY)
        return sum(purged)

    async def _purges(self, now: int) -> list[Purge]:
        settings, limit = self._settings, self._batch
        deliveries_before = now - settings.delivery_retention_days * DAY
        events_before = now - settings.event_retention_days * DAY
        answers_before = now - settings.idempotency_retention_days * DAY
        old = await asyncio.to_thread(self._database.read, lambda tx: events.organizations_before(tx, events_before))
        return [
            lambda tx: webhooks.purge(tx, before=deliveries_before, limit=limit),
            lambda tx: webhooks.purge_endpoints(tx, before=deliveries_before, limit=limit),
            lambda tx: notifications.purge(tx, before=deliveries_before, limit=limit),
            lambda tx: notifications.purge_unmailed(tx, before=deliveries_before, limit=limit),
            lambda tx: storefront.purge_holds(tx, before=deliveries_before, limit=limit),
            lambda tx: idempotency.purge(tx, before=answers_before, limit=limit),
            *(_of_organization(organization_id, events_before, limit) for organization_id in old),
        ]

    async def close(self) -> None:
        """Nothing is held open."""


def _of_organization(organization_id: str, before: int, limit: int) -> Purge:
    return lambda tx: events.purge(tx, organization_id, before=before, limit=limit)
