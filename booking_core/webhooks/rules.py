"""Rules of endpoints and deliveries: allowed ports, presentation, retries and endpoint health. No storage, no clock."""

import hashlib
import uuid
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from booking_core.base.clock import SECOND, Zone
from booking_core.base.context import Caller
from booking_core.base.errors import Conflict, NotFound, Unprocessable
from booking_core.models.events import READ_SCOPE, EventType
from booking_core.models.limits import (
    API_VERSION,
    WEBHOOK_ATTEMPTS,
    WEBHOOK_DISABLE_AFTER_S,
    WEBHOOK_ENDPOINTS_PER_ORGANIZATION,
    WEBHOOK_EXCERPT_LENGTH_MAX,
)
from booking_core.models.webhook_urls import HTTP_PORT, HTTPS_PORT, WebhookUrl
from booking_core.models.webhooks import DeliveryStatus, DeliveryTrigger, DisabledReason, EndpointStatus, FailureReason

SECRET_PURPOSE = "webhook_secret"  # noqa: S105 - names the use of a key
HEADERS_PURPOSE = "webhook_headers"
MASKED = "********"
OLD_SECRETS_MAX = 2
"""The former secrets that sign beside the current one, at most (decision W2)."""
EXPIRED_LEASES_MAX = 3
"""After so many expired leases in a row the attempt counts as failed: a delivery that crashes every worker must not do
so without end."""
FAILURES_TO_DISABLE = 6
FAILING_HOURS = 1
"""From then on an endpoint counts as failing, and `webhook.failing` is published."""
WARNINGS_HOURS = (24, 48)
"""Staff is warned at these hours of failure, out of the 72 after which the endpoint is disabled (decision W7)."""
_DISABLE_HOURS = WEBHOOK_DISABLE_AFTER_S // 3600
_JITTER_MAX = 0.05
"""A delay is up to a twentieth longer than the table says, and never shorter: deliveries that failed together are not
retried together."""


# Ports -----------------------------------------------------------------------------------------------------------

_UNFIT_FOR_BROWSERS = frozenset(
    (1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080)
)
"""The bad ports of the Fetch standard, from 1024."""
_OTHER_SERVICES = frozenset(
    (1433, 1521, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 6379, 9042, 9200, 9300, 11211, 27017)
)
"""SQL Server, Oracle, Docker, etcd, MySQL, RDP, PostgreSQL, AMQP, VNC, Redis, Cassandra, Elasticsearch, memcached,
MongoDB."""


def is_port_allowed(port: int, *, is_tls: bool) -> bool:
    """Return whether webhooks are sent to the port: 443, or a port from 1024 without a well-known service (decision
    W12). Plain http, which only development allows, may have its own port 80."""
    if port == HTTPS_PORT or (port == HTTP_PORT and not is_tls):
        return True
    return port >= 1024 and port not in _UNFIT_FOR_BROWSERS and port not in _OTHER_SERVICES


def check_port(url: WebhookUrl) -> None:
    """Refuse a URL whose port webhooks are not sent to.

    Raises:
        Unprocessable: `port_not_allowed`.
    """
    if not is_port_allowed(url.port, is_tls=url.is_tls):
        message = "Webhooks go to port 443, or to one from 1024 that is not known for another service."
        raise Unprocessable.at("url", message, "port_not_allowed")


# Endpoints -------------------------------------------------------------------------------------------------------


class EndpointRow(NamedTuple):
    """An endpoint as it is read."""

    id: str
    url: str
    description: str | None
    enabled_at: int
    created_at: int
    updated_at: int
    event_types: str
    """Separated by commas, in any order."""
    status: str = EndpointStatus.ENABLED
    disabled_at: int | None = None
    disabled_reason: str | None = None
    consecutive_failures: int = 0
    last_success_at: int | None = None
    last_failure_at: int | None = None
    last_timed_out: bool = False
    warned_hours: int = 0
    secrets_expire_at: str | None = None
    """The ends of former secrets, which may be past, separated by commas in any order."""
    deleted_at: int | None = None
    header_names: str | None = None
    """A JSON array."""
    headers_sealed: str | None = None
    max_per_second: int | None = None


def event_types(row: EndpointRow) -> list[str]:
    """Return the event types of the endpoint, sorted."""
    return sorted(row.event_types.split(","))


def present(row: EndpointRow, zone: Zone, at: int) -> dict[str, Any]:
    """Return the endpoint as REST and events present it at that instant, without its secret."""
    iso = zone.iso_or_none
    ends = [iso(expires_at) for expires_at in live_ends(row, at)]
    return {
        "id": row.id,
        "url": row.url,
        "description": row.description or None,
        "event_types": event_types(row),
        "status": row.status,
        "disabled_at": iso(row.disabled_at),
        "disabled_reason": row.disabled_reason,
        "consecutive_failures": row.consecutive_failures,
        "last_success_at": iso(row.last_success_at),
        "last_failure_at": iso(row.last_failure_at),
        "previous_secret_expires_at": ends[-1] if ends else None,
        "api_version": API_VERSION,
        "created_at": zone.iso(row.created_at),
        "updated_at": zone.iso(row.updated_at),
        "headers": dict.fromkeys(orjson.loads(row.header_names or "[]"), MASKED),
        "max_per_second": row.max_per_second,
        "failing_since": zone.iso(failing_since(row)) if is_failing(row) else None,
        "former_secrets": [{"expires_at": end} for end in ends],
    }


def live_ends(row: EndpointRow, at: int) -> list[int]:
    """Return the ends of the former secrets that still sign, the next one first."""
    ends = [int(end) for end in (row.secrets_expire_at or "").split(",") if end]
    return sorted(end for end in ends if end > at)


def existing(row: EndpointRow | None) -> EndpointRow:
    """Return the endpoint.

    Raises:
        NotFound: the organization has no such endpoint.
    """
    if row is None:
        raise NotFound
    return row


def check_entitled(caller: Caller, types: Iterable[str]) -> None:
    """Refuse a key without the read scopes of the event types: an event carries the whole resource."""
    for kind in sorted(types):
        caller.require(READ_SCOPE[EventType(kind).resource_type])


def receiver(row: EndpointRow) -> tuple[str, str | None]:
    """Return the columns that decide who reads the endpoint's deliveries: headers may name a tenant of the receiver."""
    return row.url, row.headers_sealed


def check_limit(endpoints: int) -> None:
    """Refuse an endpoint above the limit of the organization."""
    if endpoints >= WEBHOOK_ENDPOINTS_PER_ORGANIZATION:
        raise Conflict(
            "endpoint_limit_reached",
            f"The organization has {WEBHOOK_ENDPOINTS_PER_ORGANIZATION} webhook endpoints, the maximum.",
        )


def check_enabled(row: EndpointRow) -> None:
    """Refuse to queue a delivery for an endpoint that is not enabled."""
    if row.status != EndpointStatus.ENABLED:
        raise Conflict("endpoint_not_enabled", "The endpoint is not enabled.")


def check_rotation(ends: Sequence[int], zone: Zone) -> None:
    """Refuse a former secret beside the most that may sign: one of them would end before its receiver expects it.

    Args:
        ends: of the former secrets that still sign, the next one first.

    Raises:
        Conflict: `too_many_secrets`.
    """
    if len(ends) >= OLD_SECRETS_MAX:
        end = zone.iso(ends[0])
        message = f"Two former secrets are in use, one until {end}. An overlap of 0 seconds ends both now."
        raise Conflict("too_many_secrets", message)


# Deliveries ------------------------------------------------------------------------------------------------------

_INSTANT_DIGITS = 12
"""Hexadecimal digits of the milliseconds that begin the id of an event."""


def delivery_id(event_id: str, endpoint_id: str) -> str:
    """Return the id of the delivery of an event to an endpoint: a UUID of version 8.

    It begins with the event's instant, so ids are close together in an index; the rest is a hash of both ids. So a
    delivery has its id before it has a row.
    """
    hashed = hashlib.md5(_id_bytes(event_id) + _id_bytes(endpoint_id), usedforsecurity=False).hexdigest()
    return f"{event_id[:13]}-8{hashed[13:16]}-a{hashed[17:20]}-{hashed[20:]}"


@lru_cache(maxsize=4096)
def _id_bytes(row_id: str) -> bytes:
    """Return the bytes of an id: an event goes to several endpoints, and an endpoint gets several events."""
    return bytes.fromhex(row_id.replace("-", ""))


def event_ids_of(delivery_id: str) -> tuple[str, str]:
    """Return the first and the last id that the event of a delivery may have."""
    instant = uuid.UUID(delivery_id).hex[:_INSTANT_DIGITS]
    random_digits = 32 - _INSTANT_DIGITS
    return str(uuid.UUID(instant + "0" * random_digits)), str(uuid.UUID(instant + "f" * random_digits))


class AttemptRow(NamedTuple):
    """An attempt as it is read."""

    id: str
    number: int
    trigger: str
    started_at: int
    duration_ms: int | None
    response_status: int | None
    response_excerpt: str | None
    error: str | None


class DeliveryRow(NamedTuple):
    """A delivery as it is read."""

    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    trigger: str
    next_attempt_at: int | None
    created_at: int
    updated_at: int
    status: str = DeliveryStatus.QUEUED
    failure_reason: str | None = None
    attempt_count: int = 0
    max_attempts: int = WEBHOOK_ATTEMPTS
    last_attempt_at: int | None = None
    completed_at: int | None = None
    last_response_status: int | None = None
    last_error: str | None = None
    recovery_id: str | None = None
    """The last recovery that queued it again."""
    attempts: tuple[AttemptRow, ...] = ()
    """The oldest first."""


class Event(NamedTuple):
    """An event of the log."""

    id: str
    type: str
    sequence: int
    created_at: int
    resource_id: str | None


def new_delivery(
    endpoint_id: str, event: Event, trigger: DeliveryTrigger = DeliveryTrigger.EVENT, at: int | None = None
) -> DeliveryRow:
    """Return a delivery that is queued for its first attempt at that instant, by default the event's."""
    due_at = event.created_at if at is None else at
    return DeliveryRow(
        id=delivery_id(event.id, endpoint_id),
        endpoint_id=endpoint_id,
        event_id=event.id,
        event_type=event.type,
        trigger=trigger,
        next_attempt_at=due_at,
        created_at=event.created_at,
        updated_at=due_at,
    )


def started_over(row: DeliveryRow, trigger: DeliveryTrigger) -> DeliveryRow:
    """Return the delivery with as many attempts before it as a new one."""
    return row._replace(failure_reason=None, trigger=trigger, max_attempts=row.attempt_count + WEBHOOK_ATTEMPTS)


def is_waiting(row: DeliveryRow, at: int) -> bool:
    """Return whether a queued delivery waits for its next attempt: its last one has ended."""
    return bool(row.attempts) and row.attempts[-1].duration_ms is not None and (row.next_attempt_at or 0) > at


def failed(row: DeliveryRow, reason: FailureReason, at: int) -> DeliveryRow:
    """Return the delivery as failed at that instant, or as soon as it was there."""
    at = max(at, row.created_at)
    return row._replace(
        status=DeliveryStatus.FAILED, failure_reason=reason, next_attempt_at=None, completed_at=at, updated_at=at
    )


def present_delivery(row: DeliveryRow, zone: Zone) -> dict[str, Any]:
    """Return the delivery with its attempts.

    A queued one has no failure reason. In its row it keeps one after a retry: a client asked for its next attempt.
    """
    iso = zone.iso_or_none
    return {
        "id": row.id,
        "endpoint_id": row.endpoint_id,
        "event_id": row.event_id,
        "event_type": row.event_type,
        "status": row.status,
        "failure_reason": None if row.status == DeliveryStatus.QUEUED else row.failure_reason,
        "trigger": row.trigger,
        "attempt_count": row.attempt_count,
        "max_attempts": row.max_attempts,
        "next_attempt_at": iso(row.next_attempt_at),
        "last_attempt_at": iso(row.last_attempt_at),
        "completed_at": iso(row.completed_at),
        "last_response_status": row.last_response_status,
        "last_error": row.last_error,
        "attempts": [attempt._asdict() | {"started_at": zone.iso(attempt.started_at)} for attempt in row.attempts],
        "created_at": zone.iso(row.created_at),
        "updated_at": zone.iso(row.updated_at),
    }


# State after an attempt ------------------------------------------------------------------------------------------


class LeasedDelivery(NamedTuple):
    """A leased delivery whose attempt is being recorded."""

    organization_id: str
    id: str
    endpoint_id: str
    event_id: str
    event_type: str
    lease_token: str | None
    lease_until: int | None
    lost_leases: int
    status: str = DeliveryStatus.QUEUED
    failure_reason: str | None = None
    trigger: str = DeliveryTrigger.EVENT
    attempt_count: int = 0
    max_attempts: int = WEBHOOK_ATTEMPTS
    last_response_status: int | None = None
    last_error: str | None = None


class DeliveryState(NamedTuple):
    """The columns of a delivery that an attempt changes, without its lease."""

    status: str
    failure_reason: str | None
    attempt_count: int
    next_attempt_at: int | None
    completed_at: int | None
    last_response_status: int | None = None
    last_error: str | None = None
    lost_leases: int = 0
    lease_token: None = None
    lease_until: None = None


def affects_endpoint(delivery: LeasedDelivery) -> bool:
    """Return whether the delivery changes the health of its endpoint: a single test does not."""
    return delivery.trigger != DeliveryTrigger.TEST or delivery.max_attempts >= WEBHOOK_ATTEMPTS


def after_success(delivery: LeasedDelivery, at: int) -> DeliveryState:
    """Mark the delivery as succeeded, also when its endpoint was disabled in the meantime."""
    return DeliveryState(DeliveryStatus.SUCCEEDED, None, delivery.attempt_count + 1, None, at)


def after_failure(delivery: LeasedDelivery, at: int, retry_delays_s: Sequence[int], jitter: float) -> DeliveryState:
    """Queue the delivery for its next attempt, or mark it as dead after its last.

    A delivery that was marked as failed during the attempt stays failed.

    Args:
        jitter: from 0 to 1, the share of the longest jitter.
    """
    count = delivery.attempt_count + 1
    if delivery.status != DeliveryStatus.QUEUED:
        return DeliveryState(delivery.status, delivery.failure_reason, count, None, at)
    if count >= delivery.max_attempts:
        return DeliveryState(DeliveryStatus.DEAD, FailureReason.ATTEMPTS_EXHAUSTED, count, None, at)
    wait = retry_delays_s[max(0, len(retry_delays_s) - (delivery.max_attempts - count))] * SECOND
    return DeliveryState(DeliveryStatus.QUEUED, None, count, at + wait + int(wait * _JITTER_MAX * jitter), None)


def after_expired_lease(delivery: LeasedDelivery, at: int) -> DeliveryState:
    """Make the delivery due again at once: its worker died, and the attempt is not used up."""
    due_at, ended_at = (at, None) if delivery.status == DeliveryStatus.QUEUED else (None, at)
    last = delivery.last_response_status, delivery.last_error, delivery.lost_leases + 1
    return DeliveryState(delivery.status, delivery.failure_reason, delivery.attempt_count, due_at, ended_at, *last)


def after_disable(state: DeliveryState, at: int) -> DeliveryState:
    """Fail a queued delivery of an endpoint that was disabled."""
    if state.status != DeliveryStatus.QUEUED:
        return state
    reason = FailureReason.ENDPOINT_DISABLED
    return state._replace(status=DeliveryStatus.FAILED, failure_reason=reason, next_attempt_at=None, completed_at=at)


def endpoint_after_success(row: EndpointRow, at: int) -> EndpointRow:
    """Clear the failures of the endpoint."""
    return row._replace(consecutive_failures=0, last_success_at=at, last_timed_out=False, warned_hours=0)


def endpoint_after_failure(row: EndpointRow, at: int, *, timed_out: bool) -> EndpointRow:
    """Count one more failure in a row.

    A last success in the future, written by a clock that was ahead, is moved to now. Otherwise the endpoint could not
    be disabled before that instant.
    """
    succeeded_at = None if row.last_success_at is None else min(row.last_success_at, at)
    return row._replace(
        consecutive_failures=row.consecutive_failures + 1,
        last_success_at=succeeded_at,
        last_failure_at=at,
        last_timed_out=timed_out,
    )


def disabled(row: EndpointRow, at: int) -> EndpointRow:
    """Disable the endpoint because of its failures."""
    return row._replace(
        status=EndpointStatus.AUTO_DISABLED,
        disabled_at=at,
        disabled_reason=DisabledReason.DELIVERY_FAILURES,
        updated_at=at,
    )


class EndpointHealth(StrEnum):
    """The health of an enabled endpoint after a failure."""

    HEALTHY = "healthy"
    FAILING = "failing"
    """It is published once, and staff is warned later."""
    FAILED = "failed"
    """The endpoint is to be disabled."""


def failing_since(row: EndpointRow) -> int:
    """Return the beginning of the 72 hours (decision W7)."""
    return max(row.last_success_at or 0, row.enabled_at, row.created_at)


def is_failing(row: EndpointRow) -> bool:
    """Return whether the 72 hours count: one failure after a quiet week raises no alarm, six in a row do."""
    return row.status == EndpointStatus.ENABLED and row.consecutive_failures >= FAILURES_TO_DISABLE


def assess(row: EndpointRow, at: int, disable_after_s: int) -> tuple[EndpointHealth, int]:
    """Assess an endpoint after a failure; return its health and the hours of failure.

    An endpoint is failing after 1, 24 and 48 of the 72 hours, or as large parts of `disable_after_s`, and failed after
    all of it.
    """
    if not is_failing(row):
        return EndpointHealth.HEALTHY, 0
    elapsed, allowed = at - failing_since(row), disable_after_s * SECOND
    if elapsed >= allowed:
        return EndpointHealth.FAILED, _DISABLE_HOURS
    reached = [hours for hours in (FAILING_HOURS, *WARNINGS_HOURS) if elapsed * _DISABLE_HOURS >= allowed * hours]
    if reached and reached[-1] > row.warned_hours:
        return EndpointHealth.FAILING, reached[-1]
    return EndpointHealth.HEALTHY, 0


def excerpt(text: str | None) -> str | None:
    """Return the excerpt of a response to store, without characters that a database or JSON cannot hold."""
    if text is None:
        return None
    return text[:WEBHOOK_EXCERPT_LENGTH_MAX].replace("\0", "").encode("utf-8", "replace").decode()
