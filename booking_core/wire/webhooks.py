"""Webhook endpoints, deliveries and attempts (decisions, section 6)."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from booking_core.wire import limits
from booking_core.wire.base import Id, Open, Request, Resource, ShortText, single_line
from booking_core.wire.events import EventType


class EndpointStatus(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"
    AUTO_DISABLED = "auto_disabled"


class DisabledReason(StrEnum):
    MANUAL = "manual"
    DELIVERY_FAILURES = "delivery_failures"


class DeliveryStatus(StrEnum):
    QUEUED = "queued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"


class FailureReason(StrEnum):
    ENDPOINT_DISABLED = "endpoint_disabled"
    ENDPOINT_DELETED = "endpoint_deleted"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"


class DeliveryTrigger(StrEnum):
    EVENT = "event"
    TEST = "test"
    RECOVER = "recover"


class AttemptTrigger(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"


class AttemptError(StrEnum):
    HTTP_STATUS = "http_status"
    REDIRECT = "redirect"
    TIMEOUT = "timeout"
    DNS_FAILED = "dns_failed"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    BLOCKED_ADDRESS = "blocked_address"
    PROTOCOL_ERROR = "protocol_error"


class WebhookEndpoint(Resource):
    """Where events are sent."""

    id: Id
    url: str
    description: str | None
    event_types: list[Open[EventType]]
    """Sorted, unique, at least one."""
    status: Open[EndpointStatus]
    disabled_at: AwareDatetime | None
    disabled_reason: Open[DisabledReason] | None
    consecutive_failures: int
    last_success_at: AwareDatetime | None
    last_failure_at: AwareDatetime | None
    previous_secret_expires_at: AwareDatetime | None
    api_version: str
    created_at: AwareDatetime
    updated_at: AwareDatetime


class WebhookEndpointWithSecret(WebhookEndpoint):
    """The answer to a create or a rotation: the only place the secret is ever shown."""

    secret: str


class Attempt(Resource):
    """One HTTP request of a delivery."""

    id: Id
    """The `Svc-Delivery-Id` header."""
    number: int
    trigger: Open[AttemptTrigger]
    started_at: AwareDatetime
    duration_ms: int | None
    response_status: int | None
    response_excerpt: str | None
    error: Open[AttemptError] | None


class Delivery(Resource):
    """One event on its way to one endpoint."""

    id: Id
    endpoint_id: Id
    event_id: Id
    event_type: Open[EventType]
    status: Open[DeliveryStatus]
    failure_reason: Open[FailureReason] | None
    trigger: Open[DeliveryTrigger]
    attempt_count: int
    max_attempts: int
    next_attempt_at: AwareDatetime | None
    last_attempt_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    last_response_status: int | None
    last_error: Open[AttemptError] | None
    attempts: list[Attempt]
    """Oldest first."""
    created_at: AwareDatetime
    updated_at: AwareDatetime


Url = Annotated[str, Field(min_length=1, max_length=limits.WEBHOOK_URL_LENGTH_MAX), AfterValidator(single_line)]
EventTypes = Annotated[list[EventType], Field(min_length=1, max_length=len(EventType))]


class WebhookEndpointCreate(Request):
    """Body of `POST /api/v1/webhooks`."""

    url: Url
    event_types: EventTypes
    description: ShortText | None = None
