"""Webhooks of an organization, and delivery attempts with results that the test chooses."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from booking_core import webhooks
from booking_core.base import tokens
from booking_core.db import tables
from booking_core.db.engine import Database, Tx
from booking_core.db.statements import Statement
from booking_core.models.events import EventType
from booking_core.models.pages import Order
from booking_core.models.webhooks import AttemptError, WantedStatus, WebhookEndpointChange
from booking_core.records import events
from booking_core.records.events import NewEvent
from booking_core.webhooks import ClaimedDelivery, DeliveryResult, filling, following, log, store
from support.databases.databases import wait_for_lock
from support.world.world import World
from webhook_verify import generate_secret

_NEXT_DUE = Statement(
    text("""
SELECT min(CASE WHEN k.next_send_at > due.at THEN k.next_send_at ELSE due.at END) FROM (
    SELECT d.organization_id, d.endpoint_id, d.next_attempt_at AS at
      FROM deliveries d
      JOIN webhook_endpoints e ON e.organization_id = d.organization_id AND e.id = d.endpoint_id
     WHERE d.status = 'queued' AND d.lease_until IS NULL
     UNION ALL
    SELECT c.organization_id, c.endpoint_id, v.created_at
      FROM webhook_cursors c
      JOIN webhook_endpoints e ON e.organization_id = c.organization_id AND e.id = c.endpoint_id
      JOIN webhook_subscriptions s ON s.organization_id = c.organization_id AND s.endpoint_id = c.endpoint_id
      JOIN events v ON v.organization_id = c.organization_id AND v.type = s.event_type
     WHERE e.status = 'enabled' AND s.missed_at IS NULL AND v.sequence > c.served_sequence
       AND v.sequence > s.from_sequence AND v.sequence <= coalesce(s.until_sequence, v.sequence)
     UNION ALL
    SELECT NULL, NULL, lease_until FROM deliveries WHERE lease_until IS NOT NULL) due
  LEFT JOIN webhook_cursors k ON k.organization_id = due.organization_id AND k.endpoint_id = due.endpoint_id
""")
)
REDEEMED, ISSUED = EventType.GIFT_CARD_REDEEMED, EventType.GIFT_CARD_ISSUED
CARD = "00000000-0000-7000-8000-0000000000ca"
"""The resource of events in a test about their order."""


def follow(world: World, endpoint_id: str, *types: str, status: str = "enabled") -> None:
    """Let an inserted endpoint follow the log after its last event."""

    def work(tx: Tx) -> None:
        last = events.lock_sequences(tx, {world.org: (0, 0)})[world.org][1]
        following.begin(tx, world.org, endpoint_id, types, last)
        if status != "enabled":
            following.disable(tx, world.org, endpoint_id, world.clock())

    world.database.write(work)


def queue_rows(world: World) -> None:
    """Make a queued row of each delivery that is still only an event after its endpoint's cursor."""
    world.database.write(lambda tx: filling.fill(tx, ahead=10_000, window=10_000))


@dataclass
class Hooks:
    """The endpoints, events and attempts of an organization."""

    world: World
    secrets: dict[str, str] = field(default_factory=dict)
    """The current secret of each endpoint."""

    @property
    def database(self) -> Database:
        return self.world.database

    def endpoint(self, *types: EventType, events: int = 0, **columns: Any) -> str:
        """Create an enabled endpoint, by default of redeemed gift cards, and publish that number of them."""
        now = self.world.clock()
        row = {"url": "https://receiver.example/hook", "status": "enabled", "enabled_at": now, "created_at": now}
        endpoint_id = self.world.insert(tables.webhook_endpoints, **(row | {"updated_at": now} | columns))
        follow(self.world, endpoint_id, *(types or (REDEEMED,)), status=columns.get("status", "enabled"))
        self.secret(endpoint_id)
        if events:
            self.publish(times=events)
        return endpoint_id

    def secret(self, endpoint_id: str, **columns: Any) -> str:
        secret = self.secrets[endpoint_id] = generate_secret()
        secret_id = tokens.new_id()
        place = (self.world.org, endpoint_id, secret_id)
        sealed = self.world.installation.secret_keys.seal("webhook_secret", secret.encode(), *place)
        row = {"id": secret_id, "endpoint_id": endpoint_id, "secret_sealed": sealed, "created_at": self.world.clock()}
        self.world.insert(tables.webhook_secrets, **(row | columns))
        return secret

    def publish_in(
        self, tx: Tx, resource_id: str | None = None, *, kind: EventType = REDEEMED, times: int = 1
    ) -> list[str]:
        """Publish events about one gift card, or each about a different one, in a transaction of the test."""
        new_events = [NewEvent(kind, resource_id or tokens.new_id(), b'{"id":"card"}') for _ in range(times)]
        return events.publish(tx, self.world.organization, new_events, at=self.world.clock())

    def publish(self, resource_id: str | None = None, **options: Any) -> list[str]:
        return self.database.write(lambda tx: self.publish_in(tx, resource_id, **options))

    # The client ------------------------------------------------------------------------------------------------

    def change(self, endpoint_id: str, **fields: Any) -> None:
        request, caller = WebhookEndpointChange(**fields), self.world.caller()
        self.database.write(lambda tx: webhooks.change(tx, caller, endpoint_id, request, is_public=lambda _: True))

    def disable(self, endpoint_id: str) -> None:
        self.change(endpoint_id, status=WantedStatus.DISABLED)

    def enable(self, endpoint_id: str) -> None:
        self.change(endpoint_id, status=WantedStatus.ENABLED)

    def delete(self, endpoint_id: str) -> None:
        caller = self.world.caller()
        self.database.write(lambda tx: webhooks.delete(tx, caller, endpoint_id))

    def ping(self, endpoint_id: str) -> None:
        caller = self.world.caller()
        self.database.write(lambda tx: webhooks.send_test(tx, caller, endpoint_id))

    def retry(self, endpoint_id: str, delivery_id: str) -> dict[str, Any]:
        caller = self.world.caller()
        return self.database.write(lambda tx: webhooks.retry(tx, caller, endpoint_id, delivery_id))

    # The worker ------------------------------------------------------------------------------------------------

    def claim(self, **options: Any) -> list[ClaimedDelivery]:
        defaults: dict[str, Any] = {"free": 64, "in_flight": {}, "slow_free": 32, "per_endpoint": 100}
        return self.database.write(lambda tx: webhooks.claim(tx, self.world.installation, **(defaults | options)))

    def one(self, **options: Any) -> ClaimedDelivery:
        (claimed,) = self.claim(**options)
        return claimed

    def record(self, *attempts: DeliveryResult, **options: Any) -> None:
        arguments: dict[str, Any] = {"jitter": lambda: 0.0} | options
        self.database.write(lambda tx: webhooks.record(tx, attempts, **arguments))

    def result(
        self, claimed: ClaimedDelivery, error: AttemptError | None = None, status: int | None = None, **over: Any
    ) -> DeliveryResult:
        status = status or (200 if error is None else 500 if error is AttemptError.HTTP_STATUS else None)
        values: dict[str, Any] = {
            "started_at": self.world.clock(),
            "duration_ms": 84,
            "response_status": status,
            "response_excerpt": None if status is None else "said",
        }
        return DeliveryResult(claimed, **(values | over), error=error)

    def succeed(self, *claimed: ClaimedDelivery, **options: Any) -> None:
        self.record(*(self.result(delivery) for delivery in claimed), **options)

    def fail(self, *claimed: ClaimedDelivery, error: AttemptError = AttemptError.HTTP_STATUS, **options: Any) -> None:
        self.record(*(self.result(delivery, error) for delivery in claimed), **options)

    def fail_until_dead(self, attempts: int = 6) -> None:
        """Send the queued deliveries until their last attempt has failed."""
        for _ in range(attempts):
            self.fail(*self.claim(free=1000))
            self.world.clock.at = self.next_due_at() or self.world.clock.at

    def rescue(self, **options: Any) -> int:
        arguments: dict[str, Any] = {"jitter": lambda: 0.0} | options
        return self.database.write(lambda tx: webhooks.rescue_expired_leases(tx, **arguments))

    def next_due_at(self) -> int | None:
        """Return when the first delivery may be claimed or rescued; None while nothing is queued."""
        row = self.database.read(lambda tx: tx.first(_NEXT_DUE))
        return None if row is None or row[0] is None else int(row[0])

    def commit_when_awaited(self, work: Callable[[Tx], object], waiting: Callable[[], object]) -> None:
        """Run a transaction of PostgreSQL, which ends when a function in a thread waits for its locks."""
        thread = threading.Thread(target=waiting)
        with self.database.writing() as tx:
            work(tx)
            thread.start()
            wait_for_lock(self.world.url)
        thread.join()

    # Contents --------------------------------------------------------------------------------------------------

    def rows(self, endpoint_id: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of deliveries in the order of their events."""
        rows = [row for row in self.world.rows(tables.deliveries) if endpoint_id in (None, row["endpoint_id"])]
        return sorted(rows, key=lambda row: row["event_sequence"])

    def deliveries(self, endpoint_id: str | None = None) -> list[dict[str, Any]]:
        """Return the deliveries as the API shows them, in the order of their events. The rows have all columns."""
        hooks = [row["id"] for row in self.world.rows(tables.webhook_endpoints) if endpoint_id in (None, row["id"])]
        deliveries = self.database.read(lambda tx: [row for hook in hooks for row in self._log(tx, hook)])
        return sorted(deliveries, key=lambda row: row["event_sequence"])

    def _log(self, tx: Tx, endpoint_id: str) -> list[dict[str, Any]]:
        rows = {row["event_sequence"]: row for row in self.rows(endpoint_id)}
        if store.get(tx, self.world.org, endpoint_id) is None:
            return list(rows.values())
        query = log.LogQuery(Order.ASC, None, 10_000, None, None, None)
        every = log.find(tx, self.world.org, endpoint_id, query)
        without_row = {sequence: {"event_sequence": sequence} | row._asdict() for sequence, row in every}
        return [*(without_row | rows).values()]

    def delivery(self, delivery_id: str | None = None) -> dict[str, Any]:
        (row,) = [row for row in self.deliveries() if delivery_id in (None, row["id"])]
        return row

    def attempts(self) -> list[dict[str, Any]]:
        """Return the attempts in the order of their numbers."""
        return sorted(self.world.rows(tables.attempts), key=lambda row: row["number"])

    def row(self, endpoint_id: str) -> dict[str, Any]:
        return self.world.row(tables.webhook_endpoints, endpoint_id)

    def cursor(self, endpoint_id: str) -> dict[str, Any]:
        (row,) = [row for row in self.world.rows(tables.webhook_cursors) if row["endpoint_id"] == endpoint_id]
        return row

    def event_types(self) -> list[str]:
        """Return the types of the published events, in order."""
        return [row["type"] for row in sorted(self.world.rows(tables.events), key=lambda row: row["sequence"])]
