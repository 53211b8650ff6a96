"""Claims due deliveries for a worker.

`claim` has two sources. Queued rows are retries, tests, recovered deliveries and deliveries whose worker died: `claim`
leases each and inserts an attempt for it. The others are the next events of the log, for each endpoint after the last
sequence that it was served: an endpoint's events are leased together, in one row, and become deliveries with their
results (see `leases`). The worker sends the requests while no transaction is open. `record` then writes the results
(see `recording`). A worker that dies leaves leases that expire, and `rescue_expired_leases` queues their deliveries
again: an attempt is made at least once, and may be made twice (decision W10).

A transaction locks endpoints first, then their cursors, then deliveries and leases, then the counters of organizations.
`claim` locks cursors and deliveries, and never waits for a lock.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple

import orjson

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import sql_files, tables
from booking_core.db.engine import Tx
from booking_core.db.statements import as_json
from booking_core.db.unit_of_work import Update
from booking_core.models.webhooks import AttemptTrigger, DeliveryTrigger
from booking_core.webhooks import queue, rules, store
from booking_core.webhooks.queue import Lease, LeasedAttempt

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt: no heartbeat is needed."""
DEADLINES_PER_LEASE = 3

_SQL = sql_files.load(__name__)
CLAIM = _SQL.statement("claim")
LEASE = Update("lease", tables.deliveries, sets=("lease_token", "lease_until", "last_attempt_at"))
_CURSOR = ("organization_id", "endpoint_id")
SERVED = Update("served", tables.webhook_cursors, sets=("served_sequence", "last_claimed_at"), keys=_CURSOR)
PACED = Update(
    "paced", tables.webhook_cursors, sets=("served_sequence", "last_claimed_at", "next_send_at"), keys=_CURSOR
)


class DueDelivery(NamedTuple):
    """A due delivery, or the next event of an endpoint, in the order of the columns of CLAIM."""

    organization_id: str
    id: str
    """The id of the delivery, or of the event."""
    endpoint_id: str
    event_id: str
    event_type: str
    failure_reason: str | None
    url: str
    last_timed_out: bool
    number: int
    body: str | None
    """Null: the event is no longer kept."""
    secrets: str | None
    headers_sealed: str | None
    at: int
    """The instant of the claim, by the database's clock."""
    ahead: int
    """The lead of a sandbox's clock over it, in microseconds."""
    resource_id: str | None
    sequence: int | None
    """Of an event, which is no delivery yet."""
    generation: int
    created_at: int
    traceparent: str | None
    """The trace context (W3C) of the event."""
    unfinished: str | None
    """The delivery of an earlier event about the same resource that has a row, when its first attempt is the only
    unfinished attempt and this worker holds it. Empty: there are others. Null: there is none."""
    in_flight: str | None
    """The leases of its endpoint, a line each: the worker, and the attempts. Null: none has a first attempt about the
    same resource."""
    max_per_second: int | None
    """The limit of its endpoint."""
    served_sequence: int | None
    """The cursor of its endpoint, which is locked. Null: another worker has it."""


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
    """The lead of a sandbox's clock over that instant, in microseconds."""
    headers: tuple[tuple[str, str], ...] | None = field(default=(), repr=False)
    """The client's own; None: they cannot be opened."""
    after: str | None = None
    """The delivery about the same resource that comes first: this worker holds its first attempt."""
    lease_id: str | None = None
    """The lease of the first attempts that were claimed together; None: the delivery has a row, which is leased."""
    pause: int = 0
    """The pause of the endpoint's claims, in microseconds, by its limit; 0: it has none."""


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
) -> list[ClaimedDelivery]:
    """Lease due deliveries, at most `free`, each for one attempt.

    A first attempt waits for the first attempt of an earlier event about the same resource: its delivery is queued
    until then. A worker that names itself gets it at once and keeps the order itself (`ClaimedDelivery.after`).

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). One with a limit is passed over between its claims (see `burst`). Endpoints whose last attempt timed out
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
    rows = tx.all(
        CLAIM,
        free=free,
        in_flight=as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items()),
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        worker=worker,
        claims_per_second=CLAIMS_PER_SECOND,
    )
    picked = sorted(map(DueDelivery._make, rows), key=lambda due: due.sequence or 0)
    batch = _Batch(tx, installation, worker, lease_s)
    for due in picked:
        batch.add(due)
    batch.write()
    _move_cursors(tx, picked, batch.claimed)
    return [each for each in batch.claimed if _can_be_sent(each)]


class _Batch:
    """The deliveries of one claim."""

    def __init__(self, tx: Tx, installation: Installation, worker: str | None, lease_s: int) -> None:
        self.claimed: list[ClaimedDelivery] = []
        self._tx = tx
        self._token = f"{worker or tokens.new_id()}:{tokens.new_id()}"
        self._secrets = cache(partial(_secrets, installation.secret_keys))
        self._headers = cache(partial(_headers, installation.secret_keys))
        self._order = _Order(worker)
        self._length = lease_s * SECOND
        self._leased: dict[str, tuple[str, DueDelivery, list[LeasedAttempt]]] = {}
        """By endpoint the id of its lease, the first of its events, and all attempts."""

    def add(self, due: DueDelivery) -> None:
        """Lease a delivery, or queue it after others about the same resource."""
        if due.sequence is not None:
            self._add_event(due, due.sequence)
            return
        claimed = self._claimed(due, due.id, tokens.new_id())
        _lease(self._tx, claimed, due.at + self._length)

    def _add_event(self, due: DueDelivery, sequence: int) -> None:
        """Lease the next event of an endpoint with those before it."""
        delivery_id = rules.delivery_id(due.event_id, due.endpoint_id)
        after = self._order.after(due, delivery_id)
        if after == WAITS:
            _insert(self._tx, due, sequence)
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
            secrets=self._secrets(due.organization_id, due.endpoint_id, due.secrets),
            event_id=due.event_id,
            event_type=due.event_type,
            body=(due.body or "").encode(),
            lease_token=self._token,
            at=due.at,
            timed_out_before=bool(due.last_timed_out),
            traceparent=due.traceparent,
            ahead=due.ahead,
            headers=self._headers(due.organization_id, due.endpoint_id, due.headers_sealed),
            after=after,
            lease_id=lease_id,
            pause=0 if due.max_per_second is None else pause(due.max_per_second),
        )
        self.claimed.append(claimed)
        return claimed

    def write(self) -> None:
        """Insert the leases of the events."""
        for lease_id, due, attempts in self._leased.values():
            queue.insert_lease(
                self._tx,
                Lease(
                    organization_id=due.organization_id,
                    endpoint_id=due.endpoint_id,
                    id=lease_id,
                    token=self._token,
                    lease_until=due.at + self._length,
                    claimed_at=due.at + due.ahead,
                    generation=due.generation,
                    attempts=tuple(attempts),
                ),
            )


WAITS = ""
"""Instead of a delivery that comes first: there are several, or this worker does not hold it."""


class _Order:
    """The order of first attempts for one resource (decision W13), within one claim.

    A worker holds at most two of them: each may take a deadline, and the second has to end before its lease does.
    """

    def __init__(self, worker: str | None) -> None:
        self._worker = worker
        self._last: dict[tuple[str, str], str] = {}

    def after(self, due: DueDelivery, delivery_id: str) -> str | None:
        """Return the delivery that comes first, WAITS when this delivery cannot be claimed yet, or None."""
        if due.sequence is None or due.resource_id is None:
            return None
        resource = due.endpoint_id, due.resource_id
        after = self._last[resource] if resource in self._last else self._before(due)
        if after is not None and due.max_per_second is not None:
            after = WAITS  # the worker would send it right after the other, regardless of the limit
        self._last[resource] = delivery_id if after is None and self._worker else WAITS
        return after

    def _before(self, due: DueDelivery) -> str | None:
        """Return the same for the first attempts of earlier claims, of rows and in leases."""
        if due.in_flight is None:
            return due.unfinished
        naming = (line for line in due.in_flight.splitlines() if due.resource_id and due.resource_id in line)
        held = [(line[: queue.WORKER_LENGTH], line[queue.WORKER_LENGTH :]) for line in naming]
        same = [
            (worker, each.event_id)
            for worker, attempts in held
            for each in queue.parsed(attempts)
            if each.resource_id == due.resource_id
        ]
        if due.unfinished is not None or len(same) != 1 or same[0][0] != self._worker:
            return WAITS
        return rules.delivery_id(same[0][1], due.endpoint_id)


def _secrets(secret_keys: SecretKeys, owner: str, endpoint_id: str, stored: str | None) -> tuple[str, ...]:
    """Return the live secrets of an endpoint, the newest first, without those that no secret key opens.

    The current secret expires last. Rows of another form, which this service never writes, must not stop the claims of
    other endpoints: the endpoint has no secret then.
    """
    split = [secret.split(":") for secret in (stored or "").split()]
    try:
        split.sort(key=lambda parts: (-int(parts[0]), -int(parts[1])))
        opened = [_opened(secret_keys, sealed, (owner, endpoint_id, secret_id)) for *_, secret_id, sealed in split]
    except (IndexError, ValueError):
        return ()
    return tuple(secret.decode() for secret in opened if secret)


def _opened(secret_keys: SecretKeys, sealed: str, place: tuple[str, str, str]) -> bytes | None:
    try:
        return secret_keys.open(rules.SECRET_PURPOSE, sealed, *place)
    except ValueError:
        return None  # sealed with a secret key that is no longer configured


def _headers(
    secret_keys: SecretKeys, owner: str, endpoint_id: str, sealed: str | None
) -> tuple[tuple[str, str], ...] | None:
    """Return the headers of the endpoint's client, or None if no secret key opens them."""
    if sealed is None:
        return ()
    try:
        plain = secret_keys.open(rules.HEADERS_PURPOSE, sealed, owner, endpoint_id)
    except ValueError:
        return None
    return tuple(orjson.loads(plain).items())


def _can_be_sent(claimed: ClaimedDelivery) -> bool:
    """Return whether the delivery has a secret, its headers and a body, and log an error otherwise.

    A delivery without them is not sent. Its lease expires until its attempts are used up: it neither blocks the queue
    nor is retried without end.
    """
    is_opened = bool(claimed.secrets) and claimed.headers is not None
    if is_opened and claimed.body:
        return True
    missing = "its event" if is_opened else "a secret or headers that any BOOKING_SECRET_KEY opens"
    log.error("delivery %s to endpoint %s lacks %s", claimed.delivery_id, claimed.endpoint_id, missing)
    return False


def _lease(tx: Tx, claimed: ClaimedDelivery, until: int) -> None:
    """Lease a delivery that has a row, and insert its attempt."""
    at = claimed.at + claimed.ahead
    tx.update(
        LEASE,
        organization_id=claimed.organization_id,
        id=claimed.delivery_id,
        lease_token=claimed.lease_token,
        lease_until=until,
        last_attempt_at=at,
    )
    tx.insert(
        tables.attempts,
        organization_id=claimed.organization_id,
        id=claimed.attempt_id,
        delivery_id=claimed.delivery_id,
        number=claimed.number,
        trigger=claimed.trigger.value,
        started_at=at,
    )


def _insert(tx: Tx, due: DueDelivery, sequence: int) -> None:
    """Insert the delivery of an event: queued after another delivery about the same resource."""
    at, event = due.at + due.ahead, (due.endpoint_id, due.event_id, due.event_type)
    created_at, trigger = min(due.created_at, at), DeliveryTrigger.EVENT
    row = rules.new_delivery(*event, created_at=created_at, trigger=trigger, due_at=at)
    store.insert_delivery(tx, due.organization_id, row, sequence, due.resource_id, due.generation)


def _move_cursors(tx: Tx, picked: Sequence[DueDelivery], claimed: Iterable[ClaimedDelivery]) -> None:
    """Mark the endpoints as served up to the last event that was picked for each, and begin the pauses of endpoints
    with a limit.

    An endpoint has no pause if nothing was claimed for it: its events may all wait for others about the same resource.
    """
    pauses = {each.endpoint_id: each.pause for each in claimed if each.pause}
    served: dict[tuple[str, str], int] = {}
    for due in picked:
        if due.served_sequence is not None:
            endpoint = due.organization_id, due.endpoint_id
            served[endpoint] = max(served.get(endpoint, due.served_sequence), due.sequence or 0)
    for (organization_id, endpoint_id), sequence in sorted(served.items()):
        at, pause_us = picked[0].at, pauses.get(endpoint_id)
        tx.update(
            PACED if pause_us else SERVED,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            served_sequence=sequence,
            last_claimed_at=at,
            **{"next_send_at": at + pause_us} if pause_us else {},
        )


# The pace of endpoints with a limit (`max_per_second`, decisions/0030) ------------------------------------------------

CLAIMS_PER_SECOND = 10
"""At most so many claims serve an endpoint in a second: up to this limit they take one delivery each."""
WINDOW_US = 1_050_000
"""A second, and the possible difference between the delays from two claims to their requests."""


def burst(max_per_second: int) -> int:
    """Return the number of deliveries, of any kind, that one claim may take for an endpoint with a limit.

    After the claim nothing more is claimed for the endpoint, by any worker, until the end of the `pause`: no second
    holds more claims than the limit allows, counted from any instant. The claim writes the end of the pause into the
    cursor that it has locked. The statement `claim` computes the same.
    """
    return -(-max_per_second // CLAIMS_PER_SECOND)


def pause(max_per_second: int) -> int:
    """Return the pause after a claim, in microseconds.

    Bursts are not divided: a limit of 15 is seven claims of two.
    """
    claims = max_per_second // burst(max_per_second)
    return -(-WINDOW_US // claims)
