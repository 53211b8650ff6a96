"""Makes deliveries of the next events, and claims due deliveries for a worker.

`claim` does both in one transaction. First each endpoint gets rows of deliveries for its next events in the log, a
bounded number ahead. Then the deliveries that are due are leased, and an attempt is inserted for
each. The worker sends the requests while no transaction is open. `record` then writes the results (see `recording`). A
worker that dies leaves leases that expire, and `rescue_expired_leases` queues their deliveries again: an attempt is
made at least once, and may be made twice (decision W10).

A transaction locks endpoints first, then their cursors, then deliveries, then the counters of organizations. `claim`
locks cursors and deliveries, and never waits for a lock.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby
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
from booking_core.webhooks import rules, store

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt: no heartbeat is needed."""
DEADLINES_PER_LEASE = 3

_SQL = sql_files.load(__name__)
NEXT_EVENTS, CLAIM = _SQL.statement("next_events"), _SQL.statement("claim")
LEASE = Update("lease", tables.deliveries, sets=("lease_token", "lease_until", "last_attempt_at"))
_CURSOR = ("organization_id", "endpoint_id")
MOVE = Update("move_cursor", tables.webhook_cursors, sets=("served_sequence",), keys=_CURSOR)
SERVED = Update("served", tables.webhook_cursors, sets=("last_claimed_at",), keys=_CURSOR)
PACED = Update("paced", tables.webhook_cursors, sets=("last_claimed_at", "next_send_at"), keys=_CURSOR)

# Events that become deliveries -----------------------------------------------------------------------------------

AHEAD = 256
"""First attempts of one endpoint that are not over: with so many no more of its events become deliveries."""
ENDPOINTS, EVENTS = 64, 32
"""The endpoints in one turn, and the events of each."""


class NextEvent(NamedTuple):
    """The next event of an endpoint, in the order of the columns of NEXT_EVENTS; its own columns are null if there is
    none."""

    organization_id: str
    endpoint_id: str
    served_sequence: int
    last_event_sequence: int
    at: int
    """The present instant of the organization."""
    id: str
    type: str
    sequence: int | None
    resource_id: str | None
    created_at: int


def fill(tx: Tx, *, ahead: int = AHEAD, limit: int = EVENTS) -> int:
    """Make deliveries of the next events of endpoints, move their cursors, and return how many.

    Args:
        ahead: first attempts that are not over, with which an endpoint gets no more.
        limit: the most events of one endpoint.
    """
    rows = map(NextEvent._make, tx.all(NEXT_EVENTS, ahead=ahead, endpoints=ENDPOINTS, events=limit))
    count = 0
    for (organization_id, endpoint_id), of_endpoint in groupby(sorted(rows, key=_place), key=lambda row: row[:2]):
        candidates = list(of_endpoint)
        events = [event for event in candidates if event.sequence is not None]
        for event in events:
            _insert(tx, event)
        first = candidates[0]
        # Fewer than the limit: the log has no other for the endpoint.
        end = events[-1].sequence if len(events) == limit else max(first.served_sequence, first.last_event_sequence)
        tx.update(MOVE, organization_id=organization_id, endpoint_id=endpoint_id, served_sequence=end)
        count += len(events)
    return count


def _place(event: NextEvent) -> tuple[str, str, int]:
    return event.organization_id, event.endpoint_id, event.sequence or 0


def _insert(tx: Tx, event: NextEvent) -> None:
    created_at = min(event.created_at, event.at)
    row = rules.new_delivery(
        event.endpoint_id,
        event.id,
        event.type,
        created_at=created_at,
        trigger=DeliveryTrigger.EVENT,
        due_at=created_at,
    )
    store.insert_delivery(tx, event.organization_id, row, event.sequence or 0, event.resource_id)


# Claims ----------------------------------------------------------------------------------------------------------


class DueDelivery(NamedTuple):
    """A due delivery, in the order of the columns of CLAIM."""

    organization_id: str
    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    failure_reason: str | None
    url: str
    last_timed_out: bool
    number: int
    body: str | None
    """Null: the event is no longer kept."""
    traceparent: str | None
    """The trace context (W3C) of the event."""
    secrets: str | None
    headers_sealed: str | None
    at: int
    """The instant of the claim, by the database's clock."""
    ahead: int
    """The lead of a sandbox's clock over it, in microseconds."""
    max_per_second: int | None
    """The limit of its endpoint."""
    is_locked: bool
    """The cursor of its endpoint is locked: no other worker has it."""


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
    lease_s: int = LEASE_S,
) -> list[ClaimedDelivery]:
    """Make deliveries of the next events, and lease due deliveries, at most `free`, each for one attempt.

    A first attempt waits until the first attempts of earlier events about the same resource have ended.

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). One with a limit is passed over between its claims (see `burst`). Endpoints whose last attempt timed out
    share `slow_free` of the places. An endpoint with nothing in flight may have one attempt even when its organization
    has reached its limit. It takes the same statements for any number of deliveries.

    Args:
        in_flight: the number of attempts that this worker has in flight, by endpoint id.
        lease_s: seconds after which a lease without a result expires.
    """
    if free <= 0:
        return []
    fill(tx)
    rows = tx.all(
        CLAIM,
        free=free,
        in_flight=as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items()),
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        per_organization=per_organization,
        claims_per_second=CLAIMS_PER_SECOND,
    )
    due = [DueDelivery._make(row) for row in rows]
    token, secret_keys = tokens.new_id(), installation.secret_keys
    secrets, headers = cache(partial(_secrets, secret_keys)), cache(partial(_headers, secret_keys))
    claimed = [
        _claimed(
            delivery,
            token,
            secrets(delivery.organization_id, delivery.endpoint_id, delivery.secrets),
            headers(delivery.organization_id, delivery.endpoint_id, delivery.headers_sealed),
        )
        for delivery in due
    ]
    for delivery in claimed:
        _lease(tx, delivery, delivery.at + lease_s * SECOND)
    _mark_served(tx, due)
    return [delivery for delivery in claimed if _can_be_sent(delivery)]


def _claimed(
    due: DueDelivery, token: str, secrets: tuple[str, ...], headers: tuple[tuple[str, str], ...] | None
) -> ClaimedDelivery:
    return ClaimedDelivery(
        organization_id=due.organization_id,
        delivery_id=due.id,
        endpoint_id=due.endpoint_id,
        attempt_id=tokens.new_id(),
        number=due.number,
        trigger=AttemptTrigger.MANUAL if rules.is_manual(due.failure_reason) else AttemptTrigger.SCHEDULED,
        url=due.url,
        secrets=secrets,
        event_id=due.event_id,
        event_type=due.event_type,
        body=(due.body or "").encode(),
        lease_token=token,
        at=due.at,
        timed_out_before=bool(due.last_timed_out),
        traceparent=due.traceparent,
        ahead=due.ahead,
        headers=headers,
        pause=0 if due.max_per_second is None else pause(due.max_per_second),
    )


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
    """Lease a delivery, and insert its attempt."""
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


def _mark_served(tx: Tx, due: Sequence[DueDelivery]) -> None:
    """Write the instant of the claim into the locked cursors, and begin the pauses of endpoints with a limit."""
    limits = {(row.organization_id, row.endpoint_id): row.max_per_second for row in due if row.is_locked}
    for (organization_id, endpoint_id), limit in sorted(limits.items()):
        key, at = {"organization_id": organization_id, "endpoint_id": endpoint_id}, due[0].at
        if limit is None:
            tx.update(SERVED, **key, last_claimed_at=at)
        else:
            tx.update(PACED, **key, last_claimed_at=at, next_send_at=at + pause(limit))


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
