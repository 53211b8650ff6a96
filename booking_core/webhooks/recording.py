"""Records the results of delivery attempts, and rescues deliveries whose leases have expired.

A batch is decided in memory, result by result, and then written with a few statements.
"""

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from booking_core import events, outbox
from booking_core.clock import MINUTE
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.events import NewEvent
from booking_core.models.events import EventType, ResourceType
from booking_core.models.limits import WEBHOOK_DISABLE_AFTER_S, WEBHOOK_WAITS_S
from booking_core.models.webhooks import AttemptError, AttemptTrigger, DeliveryStatus
from booking_core.outbox import OutboxKind
from booking_core.webhooks import following, leases, queue, rules
from booking_core.webhooks.claiming import ClaimedDelivery
from booking_core.webhooks.leases import Lease, LeasedAttempt
from booking_core.webhooks.queue import LockedDeliveries
from booking_core.webhooks.rules import DeliveryState, EndpointHealth, EndpointRow, LeasedDelivery

log = logging.getLogger("booking.webhooks")

RESCUE_BATCH = 500
PARKED = 10 * MINUTE
"""After this time it is tried again to rescue a delivery that could not be rescued."""

_NO_RESULT = dict.fromkeys(("duration_ms", "response_status", "response_excerpt", "error"))

Key = tuple[str, str]
"""(organization id, id of a delivery or an endpoint)."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
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
    now: int | None = None,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Record a batch of results: two statements on PostgreSQL, at most four when events are published, and one more
    when first attempts are recorded after their lease.

    The attempt itself is always recorded. It changes its delivery and its endpoint only while its lease is the
    delivery's last: a worker that was stopped for a minute changes nothing that another worker has settled since.

    Args:
        retry_delays_s: seconds between attempts, by how many the delivery has had.
        disable_after_s: seconds without a success after which a failing endpoint is disabled.
        jitter: returns 0 to 1, the share of the longest jitter that is added to a delay.
    """
    if not results:
        return
    locked = _lock(tx, results, now)
    batch = _Batch(tx, locked, retry_delays_s, disable_after_s, jitter)
    for result in sorted(results, key=lambda each: each.ended_at):
        batch.log(result)
        batch.settle(result)
    batch.write()


def _lock(tx: Tx, results: Sequence[DeliveryResult], now: int | None) -> LockedDeliveries:
    """Lock the deliveries, by their leases where they have no row. Those that got one since, when the lease expired,
    are locked by it: their endpoints are locked by then."""
    all_claimed = [result.claimed for result in results]
    locked = queue.lock(tx, (_key(each, each.lease_id or each.delivery_id) for each in all_claimed), now=now)
    late = [each for each in all_claimed if each.lease_id and not _is_first(locked, each)]
    if not late:
        return locked
    return locked.with_rows(queue.lock(tx, (_key(each, each.delivery_id) for each in late), now=now))


def _is_first(locked: LockedDeliveries, claimed: ClaimedDelivery) -> bool:
    """Return whether the attempt is a first one that has no row yet."""
    return locked.first_attempt_id(claimed.organization_id, claimed.delivery_id) == claimed.attempt_id


def _key(claimed: ClaimedDelivery, row_id: str) -> queue.Key:
    return claimed.organization_id, claimed.endpoint_id, row_id


def rescue_expired_leases(
    tx: Tx,
    *,
    only: Sequence[queue.Key] | None = None,
    retry_delays_s: Sequence[int] = WEBHOOK_WAITS_S,
    now: int | None = None,
    jitter: Callable[[], float] = random.random,
) -> int:
    """Queue deliveries again whose leases have expired, of at most 500 leases, and return how many.

    The attempt is made again at once and is not used up. The third expired lease in a row counts as a failure of the
    delivery, not of its endpoint: a delivery that crashes every worker is retried less often, and is dead in the end.

    Args:
        only: the leases to look at, as `expired_leases` returns them; by default all.
    """
    expired = queue.expired(tx, limit=RESCUE_BATCH, now=now) if only is None else only
    if not expired:
        return 0
    locked = queue.lock(tx, expired, skip_locked=True, now=now)
    batch = _Batch(tx, locked, retry_delays_s, WEBHOOK_DISABLE_AFTER_S, jitter)
    rescued = [
        each for each in locked.deliveries.values() if each.lease_until is not None and each.lease_until <= locked.at
    ]
    for delivery in rescued:
        batch.rescue(delivery)
    batch.write()
    return len(rescued)


def expired_leases(tx: Tx, *, now: int | None = None) -> list[queue.Key]:
    """Return the deliveries, and the leases of first attempts, that have expired: at most 500, the oldest first."""
    return queue.expired(tx, limit=RESCUE_BATCH, now=now)


def park(tx: Tx, key: queue.Key, *, now: int | None = None) -> None:
    """Put off a delivery, or a lease, that cannot be rescued, so that it hides no other.

    Its number of expired leases shows it to the doctor: it is one that no rescued delivery keeps.
    """
    queue.park(tx, key, wait=PARKED, lost_leases=rules.EXPIRED_LEASES_MAX, now=now)


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
        self.settled: dict[Key, tuple[DeliveryState, dict[str, Any]]] = {}
        self.ended: dict[str, tuple[Lease, list[LeasedAttempt]]] = {}
        """The first attempts that got their rows, by their lease."""
        self.endpoints = dict(locked.endpoints)
        self.health: dict[Key, tuple[EndpointHealth, int]] = {}

    def at(self, organization_id: str) -> int:
        """Return the present instant of an organization of the batch."""
        return self.locked.organizations[organization_id].instant(self.locked.at)

    def log(self, result: DeliveryResult) -> None:
        """Write the result into the attempt's row, or the row of a first attempt."""
        claimed = result.claimed
        columns = {
            "organization_id": claimed.organization_id,
            "id": claimed.attempt_id,
            "started_at": result.started_at + claimed.ahead,
            "duration_ms": result.duration_ms,
            "response_status": result.response_status,
            "response_excerpt": rules.excerpt(result.response_excerpt),
            "error": None if result.error is None else result.error.value,
        }
        if _is_first(self.locked, claimed):
            self._insert_attempt(claimed.delivery_id, columns)
        else:
            self.tx.update(queue.RESULT, **columns)

    def _insert_attempt(self, delivery_id: str, columns: dict[str, Any]) -> None:
        trigger = AttemptTrigger.SCHEDULED.value
        self.tx.insert(tables.attempts, **columns, delivery_id=delivery_id, number=1, trigger=trigger)

    def settle(self, result: DeliveryResult) -> None:
        """Apply the result to its delivery and its endpoint, unless another lease has followed."""
        claimed, error = result.claimed, result.error
        delivery = self.locked.deliveries.get((claimed.organization_id, claimed.delivery_id))
        if delivery is None or delivery.lease_token != claimed.lease_token:
            return
        state = (
            rules.after_success(delivery, self.at(delivery.organization_id))
            if error is None
            else self._after_failure(delivery)
        )
        self._keep(
            delivery,
            state,
            last_response_status=result.response_status,
            last_error=None if error is None else error.value,
        )
        if rules.affects_endpoint(delivery):
            self._assess((delivery.organization_id, delivery.endpoint_id), error)

    def _after_failure(self, delivery: LeasedDelivery) -> DeliveryState:
        return rules.after_failure(delivery, self.at(delivery.organization_id), self.retry_delays_s, self.jitter())

    def _assess(self, key: Key, error: AttemptError | None) -> None:
        before, at = self.endpoints[key], self.at(key[0])
        if error is None:
            self.endpoints[key] = rules.endpoint_after_success(before, at)
            if self.health.get(key, (EndpointHealth.HEALTHY, 0))[0] is EndpointHealth.FAILING:
                del self.health[key]
            return
        row = rules.endpoint_after_failure(before, at, timed_out=error is AttemptError.TIMEOUT)
        health, hours = rules.assess(row, at, self.disable_after_s)
        if health is EndpointHealth.FAILING:
            row = row._replace(warned_hours=hours)
        if health is EndpointHealth.FAILED:
            row = rules.disabled(row, at)
        if health is not EndpointHealth.HEALTHY:
            self.health[key] = health, hours
        self.endpoints[key] = row

    def rescue(self, delivery: LeasedDelivery) -> None:
        """Queue a delivery again whose lease has expired, or count the third expired lease as a failure.

        A first attempt, which may have reached its receiver, gets its row here, without a result.
        """
        first = self.locked.first_attempts.get((delivery.organization_id, delivery.id))
        if first:
            lease, attempt = first
            columns = {"organization_id": lease.organization_id, "id": attempt.attempt_id}
            self._insert_attempt(delivery.id, columns | {"started_at": lease.claimed_at, **_NO_RESULT})
        expired_leases, at = delivery.lost_leases + 1, self.at(delivery.organization_id)
        is_failure = expired_leases >= rules.EXPIRED_LEASES_MAX
        self._keep(
            delivery,
            self._after_failure(delivery) if is_failure else rules.after_expired_lease(delivery, at),
            lost_leases=0 if is_failure else expired_leases,
            last_response_status=None if is_failure else delivery.last_response_status,
            last_error=None if is_failure else delivery.last_error,
        )

    def _keep(self, delivery: LeasedDelivery, state: DeliveryState, *, lost_leases: int = 0, **last: object) -> None:
        self.settled[delivery.organization_id, delivery.id] = state, {"lost_leases": lost_leases, **last}

    # Writing ---------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the new states of deliveries and endpoints, the events and the mails."""
        disabled = sorted(key for key, (health, _) in self.health.items() if health is EndpointHealth.FAILED)
        if disabled:
            following.lock_cursors(self.tx, disabled)
        new_events = self._new_events(disabled)
        wanted = {owner: (0, len(of_owner)) for owner, of_owner in new_events.items()}
        last = events.lock_sequences(self.tx, wanted) if wanted else {}
        self._write_deliveries(set(disabled))
        self._write_endpoints()
        for owner, endpoint_id in disabled:
            following.give_up(self.tx, owner, endpoint_id, self.at(owner))
        for owner, of_owner in new_events.items():
            for sequence, event in enumerate(of_owner, start=last[owner][1] + 1):
                events.append(self.tx, self.locked.organizations[owner], event, sequence=sequence, at=self.at(owner))
        self._enqueue_mails()
        self._log_ends(disabled)

    def _write_deliveries(self, disabled: set[Key]) -> None:
        for (owner, delivery_id), (state, more) in sorted(self.settled.items()):
            delivery = self.locked.deliveries[owner, delivery_id]
            if (owner, delivery.endpoint_id) in disabled:
                state = rules.after_disable(state, self.at(owner))
            columns = {
                **state._asdict(),
                **more,
                "generation": delivery.generation if state.status == DeliveryStatus.QUEUED else 0,
                "updated_at": self.at(owner),
            }
            first = self.locked.first_attempts.get((owner, delivery_id))
            if first:
                self._insert_delivery(delivery, *first, columns)
            else:
                ended = {"lease_token": None, "lease_until": None}
                self.tx.update(queue.SETTLE, organization_id=owner, id=delivery_id, **columns, **ended)
        for lease, attempts in self.ended.values():
            leases.settle(self.tx, lease, attempts)

    def _insert_delivery(
        self, delivery: LeasedDelivery, lease: Lease, attempt: LeasedAttempt, columns: dict[str, Any]
    ) -> None:
        """Insert the row of a delivery whose first attempt is over."""
        self.ended.setdefault(lease.id, (lease, []))[1].append(attempt)
        self.tx.insert(
            tables.deliveries,
            organization_id=delivery.organization_id,
            id=delivery.id,
            endpoint_id=delivery.endpoint_id,
            event_id=attempt.event_id,
            event_type=attempt.event_type,
            event_sequence=attempt.sequence,
            resource_id=attempt.resource_id,
            trigger=delivery.trigger,
            max_attempts=delivery.max_attempts,
            last_attempt_at=lease.claimed_at,
            created_at=attempt.created_at,
            **columns,
        )

    def _write_endpoints(self) -> None:
        for (owner, endpoint_id), row in sorted(self.endpoints.items()):
            before = self.locked.endpoints[owner, endpoint_id]
            if row != before:
                target = queue.HEALTH if row.status == before.status else queue.DISABLE
                columns = {name: getattr(row, name) for name in target.sets}
                self.tx.update(target, organization_id=owner, id=endpoint_id, **columns)

    def _new_events(self, disabled: Sequence[Key]) -> dict[str, list[NewEvent]]:
        """Return the events to publish, by organization: failing endpoints, dead deliveries, disabled endpoints."""
        new_events: dict[str, list[NewEvent]] = {}
        for key in self._began_to_fail():
            new_events.setdefault(key[0], []).append(self._failing_event(key))
        for (owner, delivery_id), (state, _) in self.settled.items():
            delivery = self.locked.deliveries[owner, delivery_id]
            if state.status == DeliveryStatus.DEAD and _is_published(delivery):
                new_events.setdefault(owner, []).append(self._dead_event(delivery))
        for owner, endpoint_id in disabled:
            event = NewEvent(EventType.WEBHOOK_AUTO_DISABLED, endpoint_id, self._present((owner, endpoint_id)))
            new_events.setdefault(owner, []).append(event)
        return dict(sorted(new_events.items()))

    def _began_to_fail(self) -> list[Key]:
        """Return the endpoints that were first found to be failing since their last success."""
        failing = (key for key, (health, _) in self.health.items() if health is EndpointHealth.FAILING)
        return sorted(key for key in failing if not self.locked.endpoints[key].warned_hours)

    def _failing_event(self, key: Key) -> NewEvent:
        since = self.locked.organizations[key[0]].zone.iso(rules.failing_since(self.endpoints[key]))
        return NewEvent(EventType.WEBHOOK_FAILING, key[1], self._present(key), {"failing_since": since})

    def _dead_event(self, delivery: LeasedDelivery) -> NewEvent:
        extra = {"delivery_id": delivery.id, "event_id": delivery.event_id, "event_type": delivery.event_type}
        endpoint = self._present((delivery.organization_id, delivery.endpoint_id))
        return NewEvent(EventType.WEBHOOK_DELIVERY_DEAD, delivery.endpoint_id, endpoint, extra)

    def _present(self, key: Key) -> bytes:
        zone = self.locked.organizations[key[0]].zone
        return orjson.dumps(rules.present(self.endpoints[key], zone, self.at(key[0])))

    def _enqueue_mails(self) -> None:
        for (owner, endpoint_id), (health, hours) in sorted(self.health.items()):
            if hours >= rules.WARNINGS_HOURS[0] and self.locked.organizations[owner].notify_staff:
                _enqueue_mail(self.tx, owner, self.endpoints[owner, endpoint_id], health, hours, self.at(owner))

    def _log_ends(self, disabled: Sequence[Key]) -> None:
        """Log dead deliveries and disabled endpoints for the operator, by their ids: a URL may hold a secret."""
        for (owner, delivery_id), (state, last) in sorted(self.settled.items()):
            if state.status == DeliveryStatus.DEAD:
                delivery = self.locked.deliveries[owner, delivery_id]
                _log_dead(delivery, state, last)
        for owner, endpoint_id in disabled:
            failures = self.endpoints[owner, endpoint_id].consecutive_failures
            fields = {"organization_id": owner, "endpoint_id": endpoint_id, "failures": failures}
            log.warning("endpoint %s was disabled after %d failures in a row", endpoint_id, failures, extra=fields)


def _log_dead(delivery: LeasedDelivery, state: DeliveryState, last: dict[str, Any]) -> None:
    fields = {
        "organization_id": delivery.organization_id,
        "endpoint_id": delivery.endpoint_id,
        "delivery_id": delivery.id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "attempts": state.attempt_count,
        "response_status": last["last_response_status"],
        "error": last["last_error"],
    }
    text = "delivery %s to endpoint %s is dead after %d attempts (%s)"
    log.warning(text, delivery.id, delivery.endpoint_id, state.attempt_count, last["last_error"], extra=fields)


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
