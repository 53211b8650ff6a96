"""Claims due deliveries for a worker.

`claim` leases deliveries and inserts an attempt for each. The worker sends the requests while no transaction is open.
`record` then writes the results (see `recording`). A worker that dies leaves leases that expire, and
`rescue_expired_leases` queues their deliveries again: an attempt is made at least once, and may be made twice (decision
W10).

A transaction locks endpoints first, then their deliveries, then the counters of organizations. `claim` never waits for
a lock.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from booking_core import tokens
from booking_core.clock import SECOND
from booking_core.context import Installation
from booking_core.db import tables
from booking_core.db.engine import Tx
from booking_core.models.webhooks import AttemptTrigger
from booking_core.tokens import SecretKeys
from booking_core.webhooks import queue, rules
from booking_core.webhooks.queue import DueDelivery

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
    now: int | None = None,
) -> list[ClaimedDelivery]:
    """Lease due deliveries, at most `free`, and insert an attempt for each.

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). Endpoints whose last attempt timed out share `slow_free` of the places. An endpoint with nothing in flight may
    have one attempt even when its organization has reached its limit. It takes two statements for any number of
    deliveries; on SQLite, which cannot change three tables with one statement, four.

    Args:
        in_flight: the number of attempts that this worker has in flight, by endpoint id.
        lease_s: seconds after which a lease without a result expires.
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
    token, secrets = tokens.new_id(), _SecretCache(installation.secret_keys)
    claimed = [_claimed(due, token, secrets) for due in picked]
    for due, each in zip(picked, claimed, strict=True):
        _lease(tx, due, each, due.at + lease_s * SECOND)
    _mark_served(tx, picked)
    return [each for each in claimed if _can_be_sent(each)]


class _SecretCache(dict[tuple[str, str, str, str], str]):
    """Secrets by organization, endpoint, id and sealed text, each opened once for a batch."""

    def __init__(self, secret_keys: SecretKeys) -> None:
        super().__init__()
        self._secret_keys = secret_keys

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
        delivery_id=due.id,
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
    )


def _opened(due: DueDelivery, cache: _SecretCache) -> tuple[str, ...]:
    """Return the secrets of the endpoint that can be opened; without one, the delivery is leased and not sent."""
    try:
        stored = queue.live_secrets(due.secrets)
    except (IndexError, ValueError):
        return ()  # a row of secrets that is not of this service's making must not stop the claims of others
    opened = [cache[due.organization_id, due.endpoint_id, secret_id, sealed] for secret_id, sealed in stored]
    return tuple(secret for secret in opened if secret)


def _can_be_sent(claimed: ClaimedDelivery) -> bool:
    """Return whether the delivery has a secret and a body, and log an error otherwise.

    A delivery without them is not sent. Its lease expires until its attempts are used up, so that it neither blocks the
    queue nor is retried for ever.
    """
    if claimed.secrets and claimed.body:
        return True
    missing = "its event" if claimed.secrets else "a secret that any BOOKING_SECRET_KEY opens"
    log.error("delivery %s to endpoint %s lacks %s", claimed.delivery_id, claimed.endpoint_id, missing)
    return False


def _lease(tx: Tx, due: DueDelivery, claimed: ClaimedDelivery, until: int) -> None:
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


def _mark_served(tx: Tx, picked: Sequence[DueDelivery]) -> None:
    served = {(due.organization_id, due.endpoint_id): due.at for due in picked if due.is_served}
    for (organization_id, endpoint_id), at in sorted(served.items()):
        tx.update(queue.SERVED, organization_id=organization_id, id=endpoint_id, last_claimed_at=at)


def next_due_at(tx: Tx) -> int | None:
    """Return the first instant at which a delivery may be claimed or rescued; None while nothing is queued.

    An instant in the past means that a due delivery cannot be claimed yet: its endpoint has reached its limit, or an
    earlier event of the same resource is in flight. Ask again after the next result is recorded.
    """
    row = tx.first(queue.NEXT)
    return None if row is None or row[0] is None else int(row[0])
