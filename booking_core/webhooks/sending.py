"""The worker's side of the database: take what is due, say what became of it.

Three acts. `claim` leases deliveries and writes down that an attempt begins; the request is made while no transaction
is open; `record` settles a batch of attempts. A worker that dies in between leaves a lease that passes, and
`reclaim_lost` queues the delivery again: an attempt is made at least once, and may be made twice (decision W10).

Whoever locks more than one thing locks endpoints first, then their deliveries, then the counters of organizations.
`claim` waits for nobody.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from booking_core import events, outbox, tokens
from booking_core.clock import SECOND
from booking_core.context import Installation
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.events import NewEvent
from booking_core.models.events import EventType, ResourceType
from booking_core.models.limits import WEBHOOK_DISABLE_AFTER_S, WEBHOOK_WAITS_S
from booking_core.models.webhooks import AttemptError, AttemptTrigger, DeliveryStatus, FailureReason
from booking_core.outbox import OutboxKind
from booking_core.tokens import SecretKeys
from booking_core.webhooks import queue, rules, store
from booking_core.webhooks.queue import Due, Settling
from booking_core.webhooks.rules import EndpointRow, Leased, Outcome, Verdict

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt, so that no heartbeat is needed."""
LEASE_DEADLINES = 3
_RECLAIMED_AT_ONCE = 500

Key = tuple[str, str]
"""Of an organization and something of it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An attempt that is to be made now."""

    organization_id: str
    delivery_id: str
    endpoint_id: str
    attempt_id: str
    """The `Svc-Delivery-Id` header."""
    number: int
    """Counts the delivery's attempts, those whose outcome was lost included."""
    trigger: AttemptTrigger
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    """The live ones, the newest first."""
    event_id: str
    event_type: str
    body: bytes = field(repr=False)
    lease_token: str
    at: int
    """When it was claimed, by the clock that all workers share: a signature by a wrong one would be refused."""
    timed_out_before: bool
    """The endpoint's last attempt did, so this one goes by the slow lane."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """What became of an attempt."""

    claimed: Claimed
    started_at: int
    duration_ms: int
    response_status: int | None
    response_excerpt: str | None
    error: AttemptError | None
    """None: it succeeded."""

    @property
    def ended_at(self) -> int:
        return self.started_at + self.duration_ms * 1000


def lease_s(deadline_s: float) -> int:
    """Return how long a lease lasts, in seconds, where an attempt ends after so many."""
    return int(LEASE_DEADLINES * deadline_s) + 1


# Claiming --------------------------------------------------------------------------------------------------------


def claim(
    tx: Tx,
    installation: Installation,
    *,
    free: int,
    in_flight: Mapping[str, int],
    slow_free: int,
    per_endpoint: int = 2,
    per_organization: int = 8,
    lease_s: int = LEASE_S,
    now: int | None = None,
) -> list[Claimed]:
    """Leases what is due, at most `free` deliveries, and writes down an attempt for each.

    The endpoints that were served least recently come first, each with one delivery before any gets a second
    (decision W13). Endpoints whose last attempt timed out share `slow_free` of the places. An endpoint with nothing
    under way may have one attempt even when its organization has as many as it may. Two statements, for any
    number of deliveries; SQLite, which cannot change three tables with one, takes four.

    Args:
        in_flight: how many attempts this worker has under way, by endpoint id.
        lease_s: seconds after which a lease that was not settled is lost.
    """
    if free <= 0:
        return []
    picked = queue.pick(
        tx,
        free=free,
        in_flight=in_flight,
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        now=now,
    )
    token, unsealed = tokens.new_id(), _Unsealed(installation.secret_keys)
    claimed = [_claimed(due, token, unsealed) for due in picked]
    for due, each in zip(picked, claimed, strict=True):
        _lease(tx, due, each, due.at + lease_s * SECOND)
    _serve(tx, picked)
    return [each for each in claimed if _can_be_sent(each)]


class _Unsealed(dict[tuple[str, str, str, str], str]):
    """Secrets by organization, endpoint, id and sealed text, each opened once for a batch."""

    def __init__(self, secret_keys: SecretKeys) -> None:
        super().__init__()
        self._secret_keys = secret_keys

    def __missing__(self, stored: tuple[str, str, str, str]) -> str:
        *row, sealed = stored
        try:
            secret = self._secret_keys.open(rules.SECRET_PURPOSE, sealed, *row).decode()
        except ValueError:
            secret = ""  # sealed with a secret key that is live no more
        self[stored] = secret
        return secret


def _claimed(due: Due, token: str, unsealed: _Unsealed) -> Claimed:
    opened = [
        unsealed[due.organization_id, due.endpoint_id, secret_id, sealed]
        for secret_id, sealed in queue.live_secrets(due.secrets)
    ]
    return Claimed(
        organization_id=due.organization_id,
        delivery_id=due.id,
        endpoint_id=due.endpoint_id,
        attempt_id=tokens.new_id(),
        number=due.number,
        trigger=AttemptTrigger.MANUAL if rules.is_manual(due.failure_reason) else AttemptTrigger.SCHEDULED,
        url=due.url,
        secrets=tuple(secret for secret in opened if secret),
        event_id=due.event_id,
        event_type=due.event_type,
        body=(due.body or "").encode(),
        lease_token=token,
        at=due.at,
        timed_out_before=bool(due.last_timed_out),
    )


def _can_be_sent(claimed: Claimed) -> bool:
    """One that cannot be signed, or has nothing to say, is not handed out. Its lease is lost until the attempts are
    used up, so that it neither blocks the queue nor goes on for ever."""
    if claimed.secrets and claimed.body:
        return True
    missing = "its event" if claimed.secrets else "a secret that any BOOKING_SECRET_KEY opens"
    log.error("delivery %s to endpoint %s lacks %s", claimed.delivery_id, claimed.endpoint_id, missing)
    return False


def _lease(tx: Tx, due: Due, claimed: Claimed, until: int) -> None:
    tx.update(
        queue.LEASE,
        organization_id=due.organization_id,
        id=due.id,
        lease_token=claimed.lease_token,
        lease_until=until,
        last_attempt_at=due.at,
    )
    tx.insert(
        tables.attempts,
        organization_id=due.organization_id,
        id=claimed.attempt_id,
        delivery_id=due.id,
        number=claimed.number,
        trigger=claimed.trigger.value,
        started_at=due.at,
    )


def _serve(tx: Tx, picked: Sequence[Due]) -> None:
    served = {(due.organization_id, due.endpoint_id): due.at for due in picked if due.is_served}
    for (organization_id, endpoint_id), at in sorted(served.items()):
        tx.update(queue.SERVED, organization_id=organization_id, id=endpoint_id, last_claimed_at=at)


def next_due_at(tx: Tx) -> int | None:
    """The first instant at which there may be something to claim or to reclaim; none while nothing is queued.

    One that is past means that something is due which `claim` does not hand out yet: its endpoint has enough under
    way, or an earlier event of the same resource. It is worth asking again when something has been recorded.
    """
    row = tx.first(queue.NEXT)
    return None if row is None or row[0] is None else int(row[0])


# Recording -------------------------------------------------------------------------------------------------------


def record(
    tx: Tx,
    attempts: Sequence[Attempted],
    *,
    waits_s: Sequence[int] = WEBHOOK_WAITS_S,
    disable_after_s: int = WEBHOOK_DISABLE_AFTER_S,
    now: int | None = None,
    luck: Callable[[], float] = random.random,
) -> None:
    """Settles a batch of attempts: on PostgreSQL two statements, and at most four when there is something to tell.

    An attempt is always written down. What it means for its delivery and its endpoint counts only while its lease is
    the delivery's last: a worker that was stopped for a minute changes nothing that another has settled since.

    Args:
        waits_s: seconds between attempts, by how many the delivery has had.
        disable_after_s: seconds without a success after which an endpoint that fails is switched off.
        luck: gives from 0 to 1 how much longer than its wait a delivery waits, of a twentieth of it.
    """
    if not attempts:
        return
    found = queue.lock(
        tx, ((a.claimed.organization_id, a.claimed.endpoint_id, a.claimed.delivery_id) for a in attempts), now=now
    )
    batch = _Batch(tx, found, waits_s, disable_after_s, luck)
    for attempted in sorted(attempts, key=lambda each: each.ended_at):
        batch.log(attempted)
        batch.settle(attempted)
    batch.write()


def reclaim_lost(
    tx: Tx,
    *,
    waits_s: Sequence[int] = WEBHOOK_WAITS_S,
    now: int | None = None,
    luck: Callable[[], float] = random.random,
) -> int:
    """Queues deliveries again whose worker never came back: how many leases were lost, at most 500 at a time.

    The attempt is made again at once and is not used up. The third one lost in a row counts as failed, for the
    delivery and not for its endpoint: what brings down every worker that touches it is parked and in the end dead.
    """
    lost = queue.lost(tx, limit=_RECLAIMED_AT_ONCE, now=now)
    if not lost:
        return 0
    found = queue.lock(tx, lost, skip_locked=True, now=now)
    batch = _Batch(tx, found, waits_s, WEBHOOK_DISABLE_AFTER_S, luck)
    passed = [
        each for each in found.deliveries.values() if each.lease_until is not None and each.lease_until <= found.at
    ]
    for delivery in passed:
        batch.lose(delivery)
    batch.write()
    return len(passed)


class _Batch:
    """Attempts that are settled together: decided in memory one after the other, then written with a few statements."""

    def __init__(
        self, tx: Tx, found: Settling, waits_s: Sequence[int], disable_after_s: int, luck: Callable[[], float]
    ) -> None:
        self.tx = tx
        self.found = found
        self.waits_s = waits_s
        self.disable_after_s = disable_after_s
        self.luck = luck
        self.settled: dict[Key, tuple[Outcome, dict[str, Any]]] = {}
        self.endpoints = dict(found.endpoints)
        self.verdicts: dict[Key, tuple[Verdict, int]] = {}

    @property
    def at(self) -> int:
        return self.found.at

    def log(self, attempted: Attempted) -> None:
        """Writes the attempt down."""
        claimed = attempted.claimed
        self.tx.update(
            queue.ATTEMPTED,
            organization_id=claimed.organization_id,
            id=claimed.attempt_id,
            started_at=attempted.started_at,
            duration_ms=attempted.duration_ms,
            response_status=attempted.response_status,
            response_excerpt=rules.excerpt(attempted.response_excerpt),
            error=None if attempted.error is None else attempted.error.value,
        )

    def settle(self, attempted: Attempted) -> None:
        """What the attempt means for its delivery and its endpoint, if its lease still counts."""
        claimed, error = attempted.claimed, attempted.error
        delivery = self.found.deliveries.get((claimed.organization_id, claimed.delivery_id))
        if delivery is None or delivery.lease_token != claimed.lease_token:
            return
        if error is None:
            outcome = rules.after_success(delivery, self.at)
        else:
            outcome = rules.after_failure(delivery, self.at, self.waits_s, self.luck())
        self._keep(
            delivery,
            outcome,
            last_response_status=attempted.response_status,
            last_error=None if error is None else error.value,
        )
        if rules.counts(delivery):
            self._judge((delivery.organization_id, delivery.endpoint_id), error)

    def _judge(self, key: Key, error: AttemptError | None) -> None:
        before = self.endpoints[key]
        if error is None:
            self.endpoints[key] = rules.endpoint_after_success(before, self.at)
            if self.verdicts.get(key, (Verdict.FINE, 0))[0] is Verdict.WARN:
                del self.verdicts[key]
            return
        row = rules.endpoint_after_failure(before, self.at, timed_out=error is AttemptError.TIMEOUT)
        verdict, hours = rules.judge(row, self.at, self.disable_after_s)
        if verdict is Verdict.WARN:
            row = row._replace(warned_hours=hours)
        if verdict is Verdict.DISABLE:
            row = rules.disabled(row, self.at)
        if verdict is not Verdict.FINE:
            self.verdicts[key] = verdict, hours
        self.endpoints[key] = row

    def lose(self, delivery: Leased) -> None:
        """What a lost lease means for its delivery."""
        lost = delivery.lost_leases + 1
        counted = lost >= rules.LEASES_LOST_MAX
        if counted:
            outcome, lost = rules.after_failure(delivery, self.at, self.waits_s, self.luck()), 0
        else:
            outcome = rules.after_loss(delivery, self.at)
        self._keep(
            delivery,
            outcome,
            lost_leases=lost,
            last_response_status=None if counted else delivery.last_response_status,
            last_error=None if counted else delivery.last_error,
        )

    def _keep(self, delivery: Leased, outcome: Outcome, *, lost_leases: int = 0, **last: object) -> None:
        self.settled[delivery.organization_id, delivery.id] = outcome, {"lost_leases": lost_leases, **last}

    # Writing ---------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Everything that was decided."""
        switched_off = sorted(key for key, (verdict, _) in self.verdicts.items() if verdict is Verdict.DISABLE)
        if switched_off:
            # Before the counters are locked, so that no booking waits while a long queue is marked; and once more
            # under the lock, since an event that was being told meanwhile has queued one more delivery.
            rows = [(owner, self.endpoints[owner, endpoint_id]) for owner, endpoint_id in switched_off]
            queue.disable(self.tx, rows, FailureReason.ENDPOINT_DISABLED, self.at)
        told = self._told(switched_off)
        counted = {owner: (0, len(tolds)) for owner, tolds in told.items()}
        last = events.lock_sequences(self.tx, counted) if counted else {}
        self._write_deliveries(set(switched_off))
        self._write_endpoints()
        for owner, endpoint_id in switched_off:
            given_up = store.given_up(owner, endpoint_id, FailureReason.ENDPOINT_DISABLED, self.at)
            self.tx.insert_from_select(store.GIVE_UP, **given_up)
        for owner, tolds in told.items():
            for sequence, each in enumerate(tolds, start=last[owner][1] + 1):
                events.append(self.tx, self.found.organizations[owner], each, sequence=sequence, at=self.at)
        self._owe_mails()

    def _write_deliveries(self, switched_off: set[Key]) -> None:
        for (owner, delivery_id), (outcome, more) in sorted(self.settled.items()):
            if (owner, self.found.deliveries[owner, delivery_id].endpoint_id) in switched_off:
                outcome = rules.after_disable(outcome, self.at)
            self.tx.update(
                queue.SETTLE,
                organization_id=owner,
                id=delivery_id,
                **outcome._asdict(),
                **more,
                lease_token=None,
                lease_until=None,
                updated_at=self.at,
            )

    def _write_endpoints(self) -> None:
        for (owner, endpoint_id), row in sorted(self.endpoints.items()):
            if row != self.found.endpoints[owner, endpoint_id]:
                judged = {name: getattr(row, name) for name in queue.JUDGED.sets}
                self.tx.update(queue.JUDGED, organization_id=owner, id=endpoint_id, **judged)

    def _told(self, switched_off: Sequence[Key]) -> dict[str, list[NewEvent]]:
        """What is told of, by organization: deliveries that are dead, then endpoints that were switched off."""
        told: dict[str, list[NewEvent]] = {}
        for (owner, delivery_id), (outcome, _) in self.settled.items():
            delivery = self.found.deliveries[owner, delivery_id]
            if outcome.status == DeliveryStatus.DEAD and _is_worth_telling(delivery):
                told.setdefault(owner, []).append(self._dead(delivery))
        for owner, endpoint_id in switched_off:
            off = NewEvent(EventType.WEBHOOK_AUTO_DISABLED, endpoint_id, self._shown((owner, endpoint_id)))
            told.setdefault(owner, []).append(off)
        return dict(sorted(told.items()))

    def _dead(self, delivery: Leased) -> NewEvent:
        named = {"delivery_id": delivery.id, "event_id": delivery.event_id, "event_type": delivery.event_type}
        shown = self._shown((delivery.organization_id, delivery.endpoint_id))
        return NewEvent(EventType.WEBHOOK_DELIVERY_DEAD, delivery.endpoint_id, shown, named)

    def _shown(self, key: Key) -> bytes:
        zone = self.found.organizations[key[0]].zone
        return orjson.dumps(rules.present(self.endpoints[key], zone, self.at))

    def _owe_mails(self) -> None:
        for (owner, endpoint_id), (verdict, hours) in sorted(self.verdicts.items()):
            if self.found.organizations[owner].notify_staff:
                _owe_mail(self.tx, owner, self.endpoints[owner, endpoint_id], verdict, hours, self.at)


def _is_worth_telling(delivery: Leased) -> bool:
    """Events about webhooks are never about each other (decision W8), or one dead receiver would fill the feed."""
    return rules.counts(delivery) and not delivery.event_type.startswith(f"{ResourceType.WEBHOOK}.")


def _owe_mail(tx: Tx, organization_id: str, row: EndpointRow, verdict: Verdict, hours: int, at: int) -> None:
    kind = (
        OutboxKind.STAFF_WEBHOOK_DISABLED_MAIL if verdict is Verdict.DISABLE else OutboxKind.STAFF_WEBHOOK_FAILING_MAIL
    )
    since = rules.failing_since(row)
    payload = {"url": row.url, "hours": hours, "failures": row.consecutive_failures, "since": since}
    # An endpoint may fail more than once in its life: a failure is named by when it began, and by how long it lasts.
    outbox.enqueue(tx, organization_id, kind, row.id, at=at, payload=payload, occurrence=f"{since}:{hours}")


# Purging ---------------------------------------------------------------------------------------------------------


def purge(tx: Tx, *, before: int, limit: int) -> int:
    """Removes deliveries that came to their end before that instant, with their attempts: how many, at most `limit`.

    One that is queued, or whose attempt is under way, is never removed, however old.
    """
    return queue.purge(tx, before=before, limit=limit)


def purge_endpoints(tx: Tx, *, before: int, limit: int) -> int:
    """Removes endpoints that were deleted before that instant: how many, at most `limit`.

    One that a delivery still refers to stays until that is purged too.
    """
    return queue.purge_endpoints(tx, before=before, limit=limit)
