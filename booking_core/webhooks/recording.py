"""Records the results of delivery attempts, and rescues deliveries whose leases have expired.

A batch is decided in memory, result by result, and then written with a few statements.
"""

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from booking_core.db.engine import Tx
from booking_core.db.tables import attempts, deliveries, webhook_endpoints
from booking_core.models.events import EventType, ResourceType
from booking_core.models.limits import WEBHOOK_DISABLE_AFTER_S, WEBHOOK_WAITS_S
from booking_core.models.webhooks import AttemptError, DeliveryStatus
from booking_core.records import events, outbox
from booking_core.records.events import NewEvent
from booking_core.records.outbox import OutboxKind
from booking_core.webhooks import following, queue, rules, store
from booking_core.webhooks.claiming import ClaimedDelivery
from booking_core.webhooks.queue import LockedDeliveries
from booking_core.webhooks.rules import DeliveryState, EndpointHealth, EndpointRow, LeasedDelivery

log = logging.getLogger("booking.webhooks")

_HEALTH = ("consecutive_failures", "last_success_at", "last_failure_at", "last_timed_out", "warned_hours")
"""The columns of an endpoint that an attempt changes."""

RowKey = tuple[str, str]
"""(organization id, id of a delivery or an endpoint)."""


class DeliveryResult(NamedTuple):
    """The result of an attempt."""

    claimed: ClaimedDelivery
    started_at: int
    duration_ms: int
    response_status: int | None
    response_excerpt: str | None
    error: AttemptError | None
    """None: it succeeded."""

    @property
    def ended_at(self) -> int:
        return self.started_at + self.duration_ms * 1000


def record(
    tx: Tx,
    results: Sequence[DeliveryResult],
    *,
    retry_delays_s: Sequence[int] = WEBHOOK_WAITS_S,
    disable_after_s: int = WEBHOOK_DISABLE_AFTER_S,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Record a batch of results: two statements on PostgreSQL, and a few more when events are published or endpoints
    disabled.

    The attempt itself is always recorded. It changes its delivery and its endpoint only while its lease is the
    delivery's last: a worker that was stopped for a minute changes nothing that another worker has settled since.

    Args:
        retry_delays_s: seconds between attempts, by how many the delivery has had.
        disable_after_s: seconds without a success after which a failing endpoint is disabled.
        jitter: returns 0 to 1, the share of the longest jitter that is added to a delay.
    """
    if not results:
        return
    locked = queue.lock(tx, (_key(result.claimed) for result in results))
    batch = _Batch(tx, locked, retry_delays_s, disable_after_s, jitter)
    for result in sorted(results, key=lambda result: result.ended_at):
        batch.settle(result)
    batch.write()


def _key(claimed: ClaimedDelivery) -> queue.DeliveryKey:
    return claimed.organization_id, claimed.endpoint_id, claimed.delivery_id


def rescue_expired_leases(
    tx: Tx,
    *,
    only: Sequence[queue.DeliveryKey] | None = None,
    retry_delays_s: Sequence[int] = WEBHOOK_WAITS_S,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Queue deliveries again whose leases have expired, at most 500, and return how many.

    The attempt is made again at once and is not used up. The third expired lease in a row counts as a failure of the
    delivery, not of its endpoint: a delivery that crashes every worker is retried less often, and is dead in the end.

    Args:
        only: the leases to look at, as `queue.expired_leases` returns them; by default all.
    """
    expired = queue.expired_leases(tx) if only is None else only
    if not expired:
        return 0
    locked = queue.lock(tx, expired, skip_locked=True)
    batch = _Batch(tx, locked, retry_delays_s, WEBHOOK_DISABLE_AFTER_S, jitter)
    for delivery in locked.deliveries.values():
        batch.rescue(delivery)
    batch.write()
    return len(batch.settled)


class _Batch:
    """Deliveries that are settled together: `settle` and `rescue` decide in memory, `write` sends the statements."""

    def __init__(
        self,
        tx: Tx,
        locked: LockedDeliveries,
        retry_delays_s: Sequence[int],
        disable_after_s: int,
        jitter: Callable[[], float],
    ) -> None:
        self.tx = tx
        self.locked = locked
        self.retry_delays_s = retry_delays_s
        self.disable_after_s = disable_after_s
        self.jitter = jitter
        self.settled: list[tuple[LeasedDelivery, DeliveryState]] = []
        self.ats = {owner: row.instant(locked.at) for owner, row in locked.organizations.items()}
        """The present instant of each organization."""
        self.endpoints = dict(locked.endpoints)
        self.health: dict[RowKey, tuple[EndpointHealth, int]] = {}

    def settle(self, result: DeliveryResult) -> None:
        """Keep the result of an attempt, and apply it to its delivery and its endpoint, unless another lease has
        followed."""
        claimed, columns = result.claimed, _columns(result)
        self.tx.update(attempts, organization_id=claimed.organization_id, id=claimed.attempt_id, **columns)
        delivery = self.locked.deliveries.get((claimed.organization_id, claimed.delivery_id))
        if delivery is None or delivery.lease_token != claimed.lease_token:
            return
        state = self._after_failure(delivery) if result.error else rules.after_success(delivery, self._at(delivery))
        state = state._replace(last_response_status=result.response_status, last_error=result.error)
        self.settled.append((delivery, state))
        if rules.affects_endpoint(delivery):
            self._assess((delivery.organization_id, delivery.endpoint_id), result.error)

    def _at(self, delivery: LeasedDelivery) -> int:
        return self.ats[delivery.organization_id]

    def _after_failure(self, delivery: LeasedDelivery) -> DeliveryState:
        return rules.after_failure(delivery, self._at(delivery), self.retry_delays_s, self.jitter())

    def _assess(self, key: RowKey, error: AttemptError | None) -> None:
        endpoint, at = self.endpoints[key], self.ats[key[0]]
        if error is None:
            self.endpoints[key] = rules.endpoint_after_success(endpoint, at)
            if key in self.health and self.health[key][0] is EndpointHealth.FAILING:
                del self.health[key]
            return
        row = rules.endpoint_after_failure(endpoint, at, timed_out=error is AttemptError.TIMEOUT)
        health, hours = rules.assess(row, at, self.disable_after_s)
        if health is EndpointHealth.FAILING:
            row = row._replace(warned_hours=hours)
        if health is EndpointHealth.FAILED:
            row = rules.disabled(row, at)
        if health is not EndpointHealth.HEALTHY:
            self.health[key] = health, hours
        self.endpoints[key] = row

    def rescue(self, delivery: LeasedDelivery) -> None:
        """Queue a delivery again whose lease has expired, or count the third expired lease as a failure."""
        if delivery.lease_until is None or delivery.lease_until > self.locked.at:
            return
        state = rules.after_expired_lease(delivery, self._at(delivery))
        is_failure = state.lost_leases >= rules.EXPIRED_LEASES_MAX
        self.settled.append((delivery, self._after_failure(delivery) if is_failure else state))

    # Writing ---------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the new states of deliveries and endpoints, the events and the mails."""
        disabled = sorted(key for key, (health, _) in self.health.items() if health is EndpointHealth.FAILED)
        for key in disabled:
            following.lock_cursor(self.tx, *key)
        new_events = self._new_events(disabled)
        numbers = {owner: (0, len(of_owner)) for owner, of_owner in new_events.items()}
        last = events.lock_sequences(self.tx, numbers) if numbers else {}
        self._write_deliveries(set(disabled))
        self._write_endpoints()
        for owner, endpoint_id in disabled:
            following.disable(self.tx, owner, endpoint_id, self.ats[owner])
        for owner, of_owner in new_events.items():
            for sequence, event in enumerate(of_owner, start=last[owner][1] + 1):
                events.append(self.tx, self.locked.organizations[owner], event, sequence=sequence, at=self.ats[owner])
        self._enqueue_mails()
        self._log_ends(disabled)

    def _write_deliveries(self, disabled: set[RowKey]) -> None:
        for delivery, state in self.settled:
            owner, at = delivery.organization_id, self._at(delivery)
            if (owner, delivery.endpoint_id) in disabled:
                state = rules.after_disable(state, at)
            self.tx.update(deliveries, organization_id=owner, id=delivery.id, updated_at=at, **state._asdict())

    def _write_endpoints(self) -> None:
        for (owner, endpoint_id), row in sorted(self.endpoints.items()):
            locked = self.locked.endpoints[owner, endpoint_id]
            if row != locked:
                if row.status != locked.status:
                    store.save(self.tx, owner, row)
                    continue
                columns = {name: getattr(row, name) for name in _HEALTH}
                self.tx.update(webhook_endpoints, organization_id=owner, id=endpoint_id, **columns)

    def _new_events(self, disabled: Sequence[RowKey]) -> dict[str, list[NewEvent]]:
        """Return the events to publish, by organization: failing endpoints, dead deliveries, disabled endpoints."""
        new_events: dict[str, list[NewEvent]] = {}

        def add(key: RowKey, kind: EventType, **extra: Any) -> None:
            new_events.setdefault(key[0], []).append(NewEvent(kind, key[1], self._present(key), extra))

        for key, (health, _) in sorted(self.health.items()):
            # Once, when it is first found to be failing since its last success.
            if health is EndpointHealth.FAILING and not self.locked.endpoints[key].warned_hours:
                since = self.locked.organizations[key[0]].zone.iso(rules.failing_since(self.endpoints[key]))
                add(key, EventType.WEBHOOK_FAILING, failing_since=since)
        for delivery, _ in self._dead():
            if _is_published(delivery):
                names = {"delivery_id": delivery.id, "event_id": delivery.event_id, "event_type": delivery.event_type}
                add((delivery.organization_id, delivery.endpoint_id), EventType.WEBHOOK_DELIVERY_DEAD, **names)
        for key in disabled:
            add(key, EventType.WEBHOOK_AUTO_DISABLED)
        return dict(sorted(new_events.items()))

    def _dead(self) -> list[tuple[LeasedDelivery, DeliveryState]]:
        """Return the deliveries whose last attempt has failed."""
        return [(delivery, state) for delivery, state in self.settled if state.status == DeliveryStatus.DEAD]

    def _present(self, key: RowKey) -> bytes:
        zone = self.locked.organizations[key[0]].zone
        return orjson.dumps(rules.present(self.endpoints[key], zone, self.ats[key[0]]))

    def _enqueue_mails(self) -> None:
        for (owner, endpoint_id), (health, hours) in sorted(self.health.items()):
            if hours >= rules.WARNINGS_HOURS[0] and self.locked.organizations[owner].notify_staff:
                _enqueue_mail(self.tx, owner, self.endpoints[owner, endpoint_id], health, hours, self.ats[owner])

    def _log_ends(self, disabled: Sequence[RowKey]) -> None:
        """Log dead deliveries and disabled endpoints for the operator, by their ids: a URL may hold a secret."""
        for delivery, state in self._dead():
            _log_dead(delivery, state)
        for owner, endpoint_id in disabled:
            failures = self.endpoints[owner, endpoint_id].consecutive_failures
            fields = {"organization_id": owner, "endpoint_id": endpoint_id, "failures": failures}
            log.warning("endpoint %s was disabled after %d failures in a row", endpoint_id, failures, extra=fields)


def _columns(result: DeliveryResult) -> dict[str, Any]:
    """Return the columns of an attempt that has ended."""
    return {
        "started_at": result.started_at + result.claimed.ahead,
        "duration_ms": result.duration_ms,
        "response_status": result.response_status,
        "response_excerpt": rules.excerpt(result.response_excerpt),
        "error": result.error,
    }


def _log_dead(delivery: LeasedDelivery, state: DeliveryState) -> None:
    fields = {
        "organization_id": delivery.organization_id,
        "endpoint_id": delivery.endpoint_id,
        "delivery_id": delivery.id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "attempts": state.attempt_count,
        "response_status": state.last_response_status,
        "error": state.last_error,
    }
    text = "delivery %s to endpoint %s is dead after %d attempts (%s)"
    log.warning(text, delivery.id, delivery.endpoint_id, state.attempt_count, state.last_error, extra=fields)


def _is_published(delivery: LeasedDelivery) -> bool:
    """Return whether a dead delivery is published as an event.

    Events about webhooks are never about each other (decision W8): one dead receiver would fill the feed.
    """
    return rules.affects_endpoint(delivery) and not delivery.event_type.startswith(f"{ResourceType.WEBHOOK}.")


_MAIL_KINDS = {
    EndpointHealth.FAILING: OutboxKind.STAFF_WEBHOOK_FAILING_MAIL,
    EndpointHealth.FAILED: OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL,
}


def _enqueue_mail(tx: Tx, organization_id: str, row: EndpointRow, health: EndpointHealth, hours: int, at: int) -> None:
    since = rules.failing_since(row)
    payload = {"url": row.url, "hours": hours, "failures": row.consecutive_failures, "since": since}
    # An endpoint may fail more than once: the key of a mail holds when the failure began and how long it has lasted.
    outbox.enqueue(
        tx, organization_id, _MAIL_KINDS[health], row.id, at=at, payload=payload, occurrence=f"{since}:{hours}"
    )
