"""Claims due deliveries for a worker.

`claim` has two sources. Queued rows are retries, tests, recovered deliveries and deliveries whose worker died. The
others are the next events of the log, for each endpoint after the sequence up to which it was served: each becomes a
delivery here, with its first attempt. `claim` leases deliveries and inserts an attempt for each; the worker sends the
requests while no transaction is open.
`record` then writes the results (see `recording`). A worker that dies leaves leases that expire, and
`rescue_expired_leases` queues their deliveries again: an attempt is made at least once, and may be made twice (decision
W10).

A transaction locks endpoints first, then their cursors, then deliveries, then the counters of organizations. `claim`
locks cursors and deliveries, and never waits for a lock.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from booking_core import tokens
from booking_core.clock import SECOND
from booking_core.context import Installation
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import AttemptTrigger, DeliveryTrigger
from booking_core.tokens import SecretKeys
from booking_core.webhooks import picking, rules, store
from booking_core.webhooks.picking import DueDelivery

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt, so that no heartbeat is needed."""
DEADLINES_PER_LEASE = 3


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery that is leased for one attempt."""

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
    """The instant of the claim, by the clock that all workers share: receivers refuse a signature by a wrong clock."""
    timed_out_before: bool
    """The endpoint's last attempt timed out, so this attempt counts against the limit for slow endpoints."""
    traceparent: str | None = None
    """The trace context (W3C) of the event, which the attempt continues."""
    headers: tuple[tuple[str, str], ...] | None = field(default=(), repr=False)
    """The client's own; None: they cannot be opened."""
    after: str | None = None
    """The delivery about the same resource that comes first: this worker holds its first attempt."""


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
    """Lease due deliveries, at most `free`, and insert an attempt for each.

    A first attempt waits for that of an earlier event about the same resource: its delivery is queued until then. A
    worker that names itself gets it at once and keeps the order itself (`ClaimedDelivery.after`).

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). Endpoints whose last attempt timed out share `slow_free` of the places. An endpoint with nothing in flight may
    have one attempt even when its organization has reached its limit. It takes two statements for any number of
    deliveries; on SQLite, which cannot change three tables with one statement, four.

    Args:
        in_flight: the number of attempts that this worker has in flight, by endpoint id.
        worker: a UUID of the process.
        lease_s: seconds after which a lease without a result expires.
    """
    if free <= 0:
        return []
    picked = picking.pick(
        tx,
        free=free,
        in_flight=in_flight,
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        worker=worker,
        now=now,
    )
    token, secrets, order = _lease_token(worker), _SecretCache(installation.secret_keys), _Order(worker is not None)
    claimed: list[ClaimedDelivery] = []
    for due in sorted(picked, key=lambda due: due.sequence or 0):
        each = _claimed(due, token, secrets)
        after = order.after(due, each.delivery_id)
        until = None if after == WAITS else due.at + lease_s * SECOND
        if due.sequence is None:
            _lease(tx, each, until)
        else:
            _insert(tx, due, each, until)
        if until is not None:
            _insert_attempt(tx, each)
            claimed.append(replace(each, after=after) if after else each)
    _move_cursors(tx, picked)
    return [each for each in claimed if _can_be_sent(each)]


def _lease_token(worker: str | None) -> str:
    """Return a token of this claim, which begins with the worker."""
    return f"{worker or tokens.new_id()}:{tokens.new_id()}"


WAITS = ""
"""In the place of a delivery that comes first: there are several, or this worker does not hold it."""


class _Order:
    """The order of first attempts for one resource (decision W13), within one claim.

    A worker holds at most two of them: each may take a deadline, and the second has to end before its lease does.
    """

    def __init__(self, is_chained: bool) -> None:
        self._is_chained = is_chained
        self._last: dict[tuple[str, str], str] = {}

    def after(self, due: DueDelivery, delivery_id: str) -> str | None:
        """Return the delivery that comes first, WAITS when this one cannot be claimed yet, or None."""
        if due.sequence is None or due.resource_id is None:
            return None
        resource = due.endpoint_id, due.resource_id
        after = self._last.get(resource, due.unfinished)
        self._last[resource] = delivery_id if after is None and self._is_chained else WAITS
        return after


class _SecretCache(dict[tuple[str, str, str, str], str]):
    """Secrets by organization, endpoint, id and sealed text, each opened once for a batch."""

    def __init__(self, secret_keys: SecretKeys) -> None:
        super().__init__()
        self._secret_keys = secret_keys

    def headers(self, organization_id: str, endpoint_id: str, sealed: str) -> tuple[tuple[str, str], ...]:
        """Return the headers of an endpoint.

        Raises:
            ValueError: they are sealed with a secret key that is no longer configured.
        """
        plain = self._secret_keys.open(rules.HEADERS_PURPOSE, sealed, organization_id, endpoint_id)
        return tuple(orjson.loads(plain).items())

    def __missing__(self, stored: tuple[str, str, str, str]) -> str:
        *row, sealed = stored
        try:
            secret = self._secret_keys.open(rules.SECRET_PURPOSE, sealed, *row).decode()
        except ValueError:
            secret = ""  # sealed with a secret key that is no longer configured
        self[stored] = secret
        return secret


def _claimed(due: DueDelivery, token: str, cache: _SecretCache) -> ClaimedDelivery:
    return ClaimedDelivery(
        organization_id=due.organization_id,
        delivery_id=due.id if due.sequence is None else rules.delivery_id(due.event_id, due.endpoint_id),
        endpoint_id=due.endpoint_id,
        attempt_id=tokens.new_id(),
        number=due.number,
        trigger=AttemptTrigger.MANUAL if rules.is_manual(due.failure_reason) else AttemptTrigger.SCHEDULED,
        url=due.url,
        secrets=_opened(due, cache),
        event_id=due.event_id,
        event_type=due.event_type,
        body=(due.body or "").encode(),
        lease_token=token,
        at=due.at,
        timed_out_before=bool(due.last_timed_out),
        traceparent=due.traceparent,
        headers=_headers(due, cache),
    )


def _headers(due: DueDelivery, cache: _SecretCache) -> tuple[tuple[str, str], ...] | None:
    """Return the headers of the client, or None if no secret key opens them."""
    if due.headers_sealed is None:
        return ()
    try:
        return cache.headers(due.organization_id, due.endpoint_id, due.headers_sealed)
    except ValueError:
        return None


def _opened(due: DueDelivery, cache: _SecretCache) -> tuple[str, ...]:
    """Return the secrets of the endpoint that can be opened; without one, the delivery is leased and not sent."""
    try:
        stored = picking.live_secrets(due.secrets)
    except (IndexError, ValueError):
        return ()  # a row of secrets that is not of this service's making must not stop the claims of others
    opened = [cache[due.organization_id, due.endpoint_id, secret_id, sealed] for secret_id, sealed in stored]
    return tuple(secret for secret in opened if secret)


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


def _lease(tx: Tx, claimed: ClaimedDelivery, until: int | None) -> None:
    tx.update(
        picking.LEASE,
        organization_id=claimed.organization_id,
        id=claimed.delivery_id,
        lease_token=claimed.lease_token,
        lease_until=until,
        last_attempt_at=claimed.at,
    )


def _insert(tx: Tx, due: DueDelivery, claimed: ClaimedDelivery, until: int | None) -> None:
    """Insert the delivery of an event: leased, or queued behind another one about the same resource."""
    assert due.sequence is not None
    row = rules.new_delivery(
        claimed.delivery_id,
        claimed.endpoint_id,
        due.event_id,
        due.event_type,
        created_at=min(due.created_at, due.at),
        trigger=DeliveryTrigger.EVENT,
        due_at=due.at,
    )
    store.insert_delivery(
        tx,
        due.organization_id,
        row._replace(last_attempt_at=None if until is None else due.at),
        event_sequence=due.sequence,
        resource_id=due.resource_id,
        generation=due.generation,
        lease_token=None if until is None else claimed.lease_token,
        lease_until=until,
    )


def _insert_attempt(tx: Tx, claimed: ClaimedDelivery) -> None:
    tx.insert(
        tables.attempts,
        organization_id=claimed.organization_id,
        id=claimed.attempt_id,
        delivery_id=claimed.delivery_id,
        number=claimed.number,
        trigger=claimed.trigger.value,
        started_at=claimed.at,
    )


def _move_cursors(tx: Tx, picked: Sequence[DueDelivery]) -> None:
    """Mark the endpoints as served up to the last event that was picked for each."""
    served: dict[tuple[str, str], int] = {}
    for due in picked:
        if due.served_sequence is not None:
            endpoint = due.organization_id, due.endpoint_id
            served[endpoint] = max(served.get(endpoint, due.served_sequence), due.sequence or 0)
    for (organization_id, endpoint_id), sequence in sorted(served.items()):
        tx.update(
            picking.SERVED,
            organization_id=organization_id,
            endpoint_id=endpoint_id,
            served_sequence=sequence,
            last_claimed_at=picked[0].at,
        )


def next_due_at(tx: Tx) -> int | None:
    """Return the first instant at which a delivery may be claimed or rescued; None while nothing is queued.

    An instant in the past means that a due delivery cannot be claimed yet: its endpoint has reached its limit, or an
    earlier event of the same resource is in flight. Ask again after the next result is recorded.
    """
    row = tx.first(picking.NEXT)
    return None if row is None or row[0] is None else int(row[0])
