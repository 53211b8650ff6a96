"""Claims due deliveries for a worker.

`claim` first gives each endpoint rows of deliveries for its next events in the log (see `filling`). Then, in the same
transaction, the deliveries that are due are leased, and an attempt is inserted for each. The worker sends the requests
while no transaction is open. `record` then writes the results (see `recording`). A worker that dies leaves leases that
expire, and `rescue_expired_leases` queues their deliveries again: an attempt is made at least once, and may be made
twice (decision W10).

A transaction locks endpoints first, then their cursors, then deliveries, then the counters of organizations. `claim`
locks cursors and deliveries, and never waits for a lock.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import orjson
from sqlalchemy import select

from booking_core.base import tokens
from booking_core.base.clock import SECOND
from booking_core.base.context import Installation
from booking_core.base.tokens import SecretKeys
from booking_core.db import sql_files, tables
from booking_core.db.engine import Tx
from booking_core.db.statements import Statement, as_json, as_rows, in_rows
from booking_core.webhooks import filling, rules

log = logging.getLogger("booking.webhooks")

LEASE_S = 30
"""Three times the deadline of an attempt: no heartbeat is needed."""
DEADLINES_PER_LEASE = 3

CLAIM = sql_files.load(__name__).statement("claim")


@dataclass(slots=True)
class ClaimedDelivery:
    """A delivery that is leased for one attempt: the ids of both, the columns of CLAIM in their order, and the unsealed
    values of its endpoint."""

    attempt_id: str
    """The `Svc-Delivery-Id` header."""
    lease_token: str
    organization_id: str
    delivery_id: str
    endpoint_id: str
    event_id: str
    event_type: str
    trigger: str
    number: int
    """Counts the delivery's attempts, including attempts with an expired lease."""
    url: str
    timed_out_before: bool
    """The endpoint's last attempt timed out, so this attempt counts against the limit for slow endpoints."""
    max_per_second: int | None
    """The limit of the endpoint."""
    traceparent: str | None
    """The trace context (W3C) of the event, which the attempt continues."""
    at: int
    """The instant of the claim, by the clock that all workers share: receivers refuse a signature by a wrong clock, so
    it is the real one for a sandbox too."""
    ahead: int
    """The lead of a sandbox's clock over that instant, in microseconds."""
    event_body: str | None = field(repr=False)
    """None: the event is no longer kept."""
    headers_sealed: str | None = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """The live secrets, the newest first."""
    headers: tuple[tuple[str, str], ...] | None = field(default=(), repr=False)
    """The client's own; None: they cannot be opened."""

    @property
    def endpoint(self) -> tuple[str, str]:
        """The ids of the organization and the endpoint."""
        return self.organization_id, self.endpoint_id

    @property
    def body(self) -> bytes:
        return (self.event_body or "").encode()

    @property
    def pause(self) -> int:
        """The pause of the endpoint's claims, in microseconds, by its limit; 0: it has none."""
        return 0 if self.max_per_second is None else pause(self.max_per_second)


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
    lease_s: int = LEASE_S,
) -> list[ClaimedDelivery]:
    """Make deliveries of the next events, and lease due deliveries, at most `free`, each for one attempt.

    A first attempt waits until the first attempts of earlier events about the same resource have ended.

    Endpoints are served in the order of their last claim, each with one delivery before any gets a second (decision
    W13). One with a limit is passed over between its claims (see `burst`). Endpoints whose last attempt timed out
    share `slow_free` of the places. It takes the same statements for any number of deliveries.

    Args:
        in_flight: the number of attempts that this worker has in flight, by endpoint id.
        per_endpoint: the most attempts in flight of one endpoint. An organization has at most ten endpoints, so this
            limits its attempts too.
        lease_s: seconds after which a lease without a result expires.
    """
    if free <= 0:
        return []
    filling.fill(tx)
    rows = tx.all(
        CLAIM,
        free=free,
        in_flight=as_json({"endpoint_id": endpoint_id, "attempts": count} for endpoint_id, count in in_flight.items()),
        slow_free=slow_free,
        per_endpoint=per_endpoint,
        claims_per_second=CLAIMS_PER_SECOND,
    )
    token = tokens.new_id()
    claimed = [ClaimedDelivery(tokens.new_id(), token, *row) for row in rows]
    _add_secrets(tx, installation.secret_keys, claimed)
    for delivery in claimed:
        delivery.headers = _headers(installation.secret_keys, delivery)
        _lease(tx, delivery, delivery.at + lease_s * SECOND)
    for delivery in {delivery.endpoint: delivery for delivery in claimed}.values():
        _mark_served(tx, delivery)
    return [delivery for delivery in claimed if _can_be_sent(delivery)]


def _headers(secret_keys: SecretKeys, claimed: ClaimedDelivery) -> tuple[tuple[str, str], ...] | None:
    """Return the headers of the endpoint's client, or None if no secret key opens them."""
    if claimed.headers_sealed is None:
        return ()
    plain = secret_keys.open_or_none(rules.HEADERS_PURPOSE, claimed.headers_sealed, *claimed.endpoint)
    return None if plain is None else tuple(orjson.loads(plain).items())


def _lease(tx: Tx, claimed: ClaimedDelivery, until: int) -> None:
    """Lease a delivery, and insert its attempt."""
    at = claimed.at + claimed.ahead
    tx.update(
        tables.deliveries,
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
        trigger=claimed.trigger,
        started_at=at,
    )


def _mark_served(tx: Tx, claimed: ClaimedDelivery) -> None:
    """Write the instant of the claim into the locked cursor, and begin the pause of an endpoint with a limit."""
    tx.update(
        tables.webhook_cursors,
        organization_id=claimed.organization_id,
        endpoint_id=claimed.endpoint_id,
        last_claimed_at=claimed.at,
        next_send_at=claimed.at + claimed.pause if claimed.pause else None,
    )


# Secrets ---------------------------------------------------------------------------------------------------------

_secret = tables.webhook_secrets.c
SECRETS = Statement(
    select(_secret.organization_id, _secret.endpoint_id, _secret.id, _secret.secret_sealed, _secret.expires_at)
    .where(
        in_rows(_secret.organization_id, "endpoints", "organization_id"),
        in_rows(_secret.endpoint_id, "endpoints", "endpoint_id"),
    )
    .order_by(_secret.expires_at.desc().nulls_first(), _secret.created_at.desc())
)


def _add_secrets(tx: Tx, secret_keys: SecretKeys, claimed: Iterable[ClaimedDelivery]) -> None:
    """Add the live secrets of its endpoint to each delivery, without those that no secret key opens.

    Of the two secrets of a rotation, the current one has no end and is the first.
    """
    endpoints = {delivery.endpoint for delivery in claimed}
    if not endpoints:
        return
    secrets: dict[tuple[str, str], list[tuple[str, int | None]]] = defaultdict(list)
    keys = as_rows(("organization_id", "endpoint_id"), endpoints)
    for owner, endpoint_id, secret_id, sealed, expires_at in tx.all(SECRETS, endpoints=keys):
        opened = secret_keys.open_or_none(rules.SECRET_PURPOSE, sealed, owner, endpoint_id, secret_id)
        if opened is not None:  # else sealed with a secret key that is no longer configured
            secrets[owner, endpoint_id].append((opened.decode(), expires_at))
    for delivery in claimed:
        now = delivery.at + delivery.ahead
        live = [secret for secret, end in secrets[delivery.endpoint] if end is None or end > now]
        delivery.secrets = tuple(live)


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
