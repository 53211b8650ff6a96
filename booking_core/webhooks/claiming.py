"""Claims due deliveries for a worker.

`claim` has two sources. Queued rows are retries, tests, recovered deliveries and deliveries whose worker died: `claim`
leases each and inserts an attempt for it. The others are the next events of the log, for each endpoint after the
sequence up to which it was served: those of an endpoint are leased together, in one row, and become deliveries with
their results (see `leases`). The worker sends the requests while no transaction is open.
`record` then writes the results (see `recording`). A worker that dies leaves leases that expire, and
`rescue_expired_leases` queues their deliveries again: an attempt is made at least once, and may be made twice (decision
W10).

A transaction locks endpoints first, then their cursors, then deliveries and leases, then the counters of organizations.
`claim` locks cursors and deliveries, and never waits for a lock.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import AttemptTrigger, DeliveryTrigger
from booking_core.webhooks import leases, pacing, picking, rules, store
from booking_core.webhooks.leases import LeasedAttempt
from booking_core.webhooks.picking import DueDelivery

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt, so that no heartbeat is needed."""
DEADLINES_PER_LEASE = 3


@dataclass(slots=True)
class ClaimedDelivery:
    """A delivery that is leased for one attempt. It is not changed; frozen it would take four times as long to make."""

    organization_id: str
    delivery_id: str
    endpoint_id: str
    attempt_id: str
    """The `Svc-Delivery-Id` header."""
    number: int
    """Counts the delivery's attempts, including attempts with an expired lease."""
    trigger: AttemptTrigger
    url: str
    secrets: tuple[str, ...] = field(repr=False)
    """The live secrets, the newest first."""
    event_id: str
    event_type: str
    body: bytes = field(repr=False)
    lease_token: str
    at: int
    """The instant of the claim, by the clock that all workers share: receivers refuse a signature by a wrong clock, so
    it is the real one for a sandbox too."""
    timed_out_before: bool
    """The endpoint's last attempt timed out, so this attempt counts against the limit for slow endpoints."""
    traceparent: str | None = None
    """The trace context (W3C) of the event, which the attempt continues."""
    ahead: int = 0
    """Microseconds by which the clock of a sandbox was ahead of that instant."""
    headers: tuple[tuple[str, str], ...] | None = field(default=(), repr=False)
    """The client's own; None: they cannot be opened."""
    after: str | None = None
    """The delivery about the same resource that comes first: this worker holds its first attempt."""
    lease_id: str | None = None
    """The lease of the first attempts that were claimed together; None: the delivery has a row, which is leased."""
    pause: int = 0
    """Microseconds for which nothing more is claimed for its endpoint, which has a limit; 0: it has none."""


def lease_s(deadline_s: float) -> int:
    """Return the length of a lease in seconds, for attempts with that deadline."""
    return int(DEADLINES_PER_LEASE * deadline_s) + 1


def claim(
    tx: Tx,
    installation: Installation,
    *,
    free: int,
    in_flight: Mapping[str, int],
    slow_free: int,
    per_endpoint: int = 2,
    per_organization: int = 8,
    worker: str | None = None,
    lease_s: int = LEASE_S,
    now: int | None = None,
) -> list[ClaimedDelivery]:
    """Lease due deliveries, at most `free`, each for one attempt.

    A first attempt waits for that of an earlier event about the same resource: its delivery is queued until then. A
    worker that names itself gets it at once and keeps the order itself (`ClaimedDelivery.after`).

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). One with a limit is passed over between its claims (see `pacing`). Endpoints whose last attempt timed out
    share `slow_free` of the places. An endpoint with nothing in flight may have one attempt even when its organization
    has reached its limit. It takes two statements for any number of deliveries; on SQLite, which cannot change two
    tables with one statement, one for each table.

    Args:
        in_flight: the number of attempts that this worker has in flight, by endpoint id.
        worker: a UUID of the process.
        lease_s: seconds after which a lease without a result expires.
    """
    if free <= 0:
        return []
    picked: list[DueDelivery]
    (picked,) = tx.pipeline(
        picking.due(
            free=free,
            in_flight=in_flight,
            slow_free=slow_free,
            per_endpoint=per_endpoint,
            per_organization=per_organization,
            worker=worker,
            now=now,
        )
    )
    return lease(tx, installation, picked, worker=worker, lease_s=lease_s)


def lease(
    tx: Tx,
    installation: Installation,
    picked: Sequence[DueDelivery],
    *,
    worker: str | None = None,
    lease_s: int = LEASE_S,
) -> list[ClaimedDelivery]:
    """Lease the due deliveries and next events that `due` has found, as `claim` does."""
    batch = _Batch(tx, installation, worker, lease_s)
    for due in sorted(picked, key=lambda due: due.sequence or 0):
        batch.add(due)
    batch.write()
    _move_cursors(tx, picked, pacing.ends(picked[0].at, batch.claimed) if picked else {})
    return [each for each in batch.claimed if _can_be_sent(each)]


class _Batch:
    """The deliveries of one claim."""

    def __init__(self, tx: Tx, installation: Installation, worker: str | None, lease_s: int) -> None:
        self.claimed: list[ClaimedDelivery] = []
        self._tx = tx
        self._token = _lease_token(worker)
        self._secrets = _Secrets(installation.secret_keys)
        self._headers = _Headers(installation.secret_keys)
        self._order = _Order(worker)
        self._length = lease_s * SECOND
        self._leased: dict[str, tuple[str, DueDelivery, list[LeasedAttempt]]] = {}
        """By endpoint the id of its lease, the first of its events, and all attempts."""

    def add(self, due: DueDelivery) -> None:
        """Lease a delivery, or queue it behind others about the same resource."""
        if due.sequence is not None:
            self._add_event(due, due.sequence)
            return
        claimed = self._claimed(due, due.id, tokens.new_id())
        _lease(self._tx, claimed, due.at + self._length)
        _insert_attempt(self._tx, claimed)

    def _add_event(self, due: DueDelivery, sequence: int) -> None:
        """Lease the next event of an endpoint with those before it."""
        delivery_id = rules.delivery_id(due.event_id, due.endpoint_id)
        after = self._order.after(due, delivery_id)
        if after == WAITS:
            _insert(self._tx, due, delivery_id)
            return
        if due.endpoint_id not in self._leased:
            self._leased[due.endpoint_id] = tokens.new_id(), due, []
        lease_id, _, attempts = self._leased[due.endpoint_id]
        attempt_id, created_at = tokens.new_id(), min(due.created_at, due.at + due.ahead)
        attempts.append(LeasedAttempt(sequence, due.event_id, due.event_type, due.resource_id, created_at, attempt_id))
        self._claimed(due, delivery_id, attempt_id, after, lease_id)

    def _claimed(
        self,
        due: DueDelivery,
        delivery_id: str,
        attempt_id: str,
        after: str | None = None,
        lease_id: str | None = None,
    ) -> ClaimedDelivery:
        claimed = ClaimedDelivery(
            organization_id=due.organization_id,
            delivery_id=delivery_id,
            endpoint_id=due.endpoint_id,
            attempt_id=attempt_id,
            number=due.number,
            trigger=AttemptTrigger.MANUAL if rules.is_manual(due.failure_reason) else AttemptTrigger.SCHEDULED,
            url=due.url,
            secrets=self._secrets[due.organization_id, due.endpoint_id, due.secrets],
            event_id=due.event_id,
            event_type=due.event_type,
            body=(due.body or "").encode(),
            lease_token=self._token,
            at=due.at,
            timed_out_before=bool(due.last_timed_out),
            traceparent=due.traceparent,
            ahead=due.ahead,
            headers=self._headers[due.organization_id, due.endpoint_id, due.headers_sealed],
            after=after,
            lease_id=lease_id,
            pause=0 if due.max_per_second is None else pacing.pause(due.max_per_second),
        )
        self.claimed.append(claimed)
        return claimed

    def write(self) -> None:
        """Insert the leases of the events."""
        for lease_id, due, attempts in self._leased.values():
            leases.insert(
                self._tx,
                due.organization_id,
                due.endpoint_id,
                attempts,
                lease_id=lease_id,
                token=self._token,
                until=due.at + self._length,
                at=due.at + due.ahead,
                generation=due.generation,
            )


def _lease_token(worker: str | None) -> str:
    """Return a token of this claim, which begins with the worker."""
    return f"{worker or tokens.new_id()}:{tokens.new_id()}"


WAITS = ""
"""In the place of a delivery that comes first: there are several, or this worker does not hold it."""


class _Order:
    """The order of first attempts for one resource (decision W13), within one claim.

    A worker holds at most two of them: each may take a deadline, and the second has to end before its lease does.
    """

    def __init__(self, worker: str | None) -> None:
        self._worker = worker
        self._last: dict[tuple[str, str], str] = {}

    def after(self, due: DueDelivery, delivery_id: str) -> str | None:
        """Return the delivery that comes first, WAITS when this one cannot be claimed yet, or None."""
        if due.sequence is None or due.resource_id is None:
            return None
        resource = due.endpoint_id, due.resource_id
        after = self._last[resource] if resource in self._last else self._before(due)
        if after is not None and due.max_per_second is not None:
            after = WAITS  # the worker would send it as soon as the other is over, whatever was sent meanwhile
        self._last[resource] = delivery_id if after is None and self._worker else WAITS
        return after

    def _before(self, due: DueDelivery) -> str | None:
        """Return the same for the first attempts of earlier claims: those of rows, and those in leases."""
        if due.in_flight is None:
            return due.unfinished
        naming = (line for line in due.in_flight.splitlines() if due.resource_id and due.resource_id in line)
        held = [(line[: leases.WORKER_LENGTH], line[leases.WORKER_LENGTH :]) for line in naming]
        same = [
            (worker, each.event_id)
            for worker, attempts in held
            for each in leases.parsed(attempts)
            if each.resource_id == due.resource_id
        ]
        if due.unfinished is not None or len(same) != 1 or same[0][0] != self._worker:
            return WAITS
        return rules.delivery_id(same[0][1], due.endpoint_id)


class _Secrets(dict[tuple[str, str, str | None], tuple[str, ...]]):
    """The secrets by organization, endpoint and what is stored, opened once for a batch.

    Those that cannot be opened are left out; without any, a delivery is leased and not sent.
    """

    def __init__(self, secret_keys: SecretKeys) -> None:
        super().__init__()
        self._secret_keys = secret_keys

    def __missing__(self, key: tuple[str, str, str | None]) -> tuple[str, ...]:
        owner, endpoint_id, stored = key
        opened = [self._opened(owner, endpoint_id, *each) for each in _live_secrets(stored)]
        self[key] = secrets = tuple(secret for secret in opened if secret)
        return secrets

    def _opened(self, organization_id: str, endpoint_id: str, secret_id: str, sealed: str) -> str:
        place = (organization_id, endpoint_id, secret_id)
        try:
            return self._secret_keys.open(rules.SECRET_PURPOSE, sealed, *place).decode()
        except ValueError:
            return ""  # sealed with a secret key that is no longer configured


class _Headers(dict[tuple[str, str, str | None], tuple[tuple[str, str], ...] | None]):
    """The headers of the endpoints' clients by organization, endpoint and what is stored, opened once for a batch.

    None: no secret key opens them.
    """

    def __init__(self, secret_keys: SecretKeys) -> None:
        super().__init__()
        self._secret_keys = secret_keys

    def __missing__(self, key: tuple[str, str, str | None]) -> tuple[tuple[str, str], ...] | None:
        self[key] = headers = self._opened(*key)
        return headers

    def _opened(self, owner: str, endpoint_id: str, sealed: str | None) -> tuple[tuple[str, str], ...] | None:
        if sealed is None:
            return ()
        try:
            plain = self._secret_keys.open(rules.HEADERS_PURPOSE, sealed, owner, endpoint_id)
        except ValueError:
            return None
        return tuple(orjson.loads(plain).items())


def _live_secrets(stored: str | None) -> list[tuple[str, str]]:
    try:
        return picking.live_secrets(stored)
    except (IndexError, ValueError):
        return []  # a row of secrets that is not of this service's making must not stop the claims of others


def _can_be_sent(claimed: ClaimedDelivery) -> bool:
    """Return whether the delivery has a secret, its headers and a body, and log an error otherwise.

    A delivery without them is not sent. Its lease expires until its attempts are used up, so that it neither blocks the
    queue nor is retried for ever.
    """
    is_opened = bool(claimed.secrets) and claimed.headers is not None
    if is_opened and claimed.body:
        return True
    missing = "its event" if is_opened else "a secret or headers that any BOOKING_SECRET_KEY opens"
    log.error("delivery %s to endpoint %s lacks %s", claimed.delivery_id, claimed.endpoint_id, missing)
    return False


def _lease(tx: Tx, claimed: ClaimedDelivery, until: int) -> None:
    tx.update(
        picking.LEASE,
        organization_id=claimed.organization_id,
        id=claimed.delivery_id,
        lease_token=claimed.lease_token,
        lease_until=until,
        last_attempt_at=claimed.at + claimed.ahead,
    )


def _insert(tx: Tx, due: DueDelivery, delivery_id: str) -> None:
    """Insert the delivery of an event: queued behind another one about the same resource."""
    assert due.sequence is not None
    row = rules.new_delivery(
        delivery_id,
        due.endpoint_id,
        due.event_id,
        due.event_type,
        created_at=min(due.created_at, due.at + due.ahead),
        trigger=DeliveryTrigger.EVENT,
        due_at=due.at + due.ahead,
    )
    store.insert_delivery(
        tx,
        due.organization_id,
        row,
        event_sequence=due.sequence,
        resource_id=due.resource_id,
        generation=due.generation,
    )


def _insert_attempt(tx: Tx, claimed: ClaimedDelivery) -> None:
    tx.insert(
        tables.attempts,
        organization_id=claimed.organization_id,
        id=claimed.attempt_id,
        delivery_id=claimed.delivery_id,
        number=claimed.number,
        trigger=claimed.trigger.value,
        started_at=claimed.at + claimed.ahead,
    )


def _move_cursors(tx: Tx, picked: Sequence[DueDelivery], pauses: Mapping[str, int]) -> None:
    """Mark the endpoints as served up to the last event that was picked for each.

    Args:
        pauses: by endpoint id the end of the pause that its limit asks for.
    """
    served: dict[tuple[str, str], int] = {}
    for due in picked:
        if due.served_sequence is not None:
            endpoint = due.organization_id, due.endpoint_id
            served[endpoint] = max(served.get(endpoint, due.served_sequence), due.sequence or 0)
    for (organization_id, endpoint_id), sequence in sorted(served.items()):
        pause = {"next_send_at": pauses[endpoint_id]} if endpoint_id in pauses else {}
        tx.update(
            picking.PACED if pause else picking.SERVED,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            served_sequence=sequence,
            last_claimed_at=picked[0].at,
            **pause,
        )


def next_due_at(tx: Tx) -> int | None:
    """Return the first instant at which a delivery may be claimed or rescued; None while nothing is queued.

    An instant in the past means that a due delivery cannot be claimed yet: its endpoint has reached its limit, or an
    earlier event of the same resource is in flight. Ask again after the next result is recorded.
    """
    row = tx.first(picking.NEXT)
    return None if row is None or row[0] is None else int(row[0])
