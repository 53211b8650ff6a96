"""Webhook endpoints, deliveries and attempts (decisions, section 6)."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, ValidationInfo, WithJsonSchema

from booking_core.models import limits
from booking_core.models.base import (
    SINGLE_LINE,
    Id,
    InputId,
    Open,
    Request,
    Resource,
    ShortText,
    always_sent,
    single_line,
)
from booking_core.models.events import FAMILIES, SUBSCRIBABLE, EventType, EventTypeName
from booking_core.models.reasons import Fault
from booking_core.models.timestamps import timestamp
from booking_core.models.webhook_urls import split_url


class EndpointStatus(StrEnum):
    ENABLED = "enabled"
    DISABLED = "disabled"
    AUTO_DISABLED = "auto_disabled"


EndpointStatusName = Literal["enabled", "disabled", "auto_disabled"]


class DisabledReason(StrEnum):
    MANUAL = "manual"
    DELIVERY_FAILURES = "delivery_failures"


DisabledReasonName = Literal["manual", "delivery_failures"]


class DeliveryStatus(StrEnum):
    QUEUED = "queued"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DEAD = "dead"


DeliveryStatusName = Literal["queued", "succeeded", "failed", "dead"]


class FailureReason(StrEnum):
    ENDPOINT_DISABLED = "endpoint_disabled"
    ENDPOINT_DELETED = "endpoint_deleted"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"


FailureReasonName = Literal["endpoint_disabled", "endpoint_deleted", "attempts_exhausted"]


class DeliveryTrigger(StrEnum):
    EVENT = "event"
    TEST = "test"
    RECOVER = "recover"
    REDELIVER = "redeliver"


DeliveryTriggerName = Literal["event", "test", "recover", "redeliver"]


class AttemptTrigger(StrEnum):
    SCHEDULED = "scheduled"
    MANUAL = "manual"


AttemptTriggerName = Literal["scheduled", "manual"]


class AttemptError(StrEnum):
    HTTP_STATUS = "http_status"
    REDIRECT = "redirect"
    TIMEOUT = "timeout"
    DNS_FAILED = "dns_failed"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    BLOCKED_ADDRESS = "blocked_address"
    PROTOCOL_ERROR = "protocol_error"


AttemptErrorName = Literal[
    "http_status",
    "redirect",
    "timeout",
    "dns_failed",
    "connect_failed",
    "tls_failed",
    "blocked_address",
    "protocol_error",
]


class FormerSecret(Resource):
    """A secret that was rotated, and signs beside the current one until it ends."""

    expires_at: AwareDatetime


class WebhookEndpoint(Resource):
    """A URL that receives events."""

    model_config = ConfigDict(
        json_schema_extra=always_sent("headers", "max_per_second", "failing_since", "former_secrets")
    )

    id: Id
    url: str
    description: str | None
    event_types: list[Open[EventType, EventTypeName]]
    """Sorted, unique, at least one."""
    status: Open[EndpointStatus, EndpointStatusName]
    disabled_at: AwareDatetime | None
    disabled_reason: Open[DisabledReason, DisabledReasonName] | None
    consecutive_failures: int
    last_success_at: AwareDatetime | None
    last_failure_at: AwareDatetime | None
    previous_secret_expires_at: AwareDatetime | None
    api_version: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    headers: dict[str, str] = Field(default_factory=dict)
    """Your additional headers of deliveries, each with `********` for its value, which is never shown."""
    max_per_second: int | None = None
    """The most requests that are sent within any second, retries and tests included. Null: there is no limit."""
    failing_since: AwareDatetime | None = None
    """The beginning of the 72 hours after which the endpoint is disabled, unless a delivery succeeds. Null unless it is
    enabled and its last six attempts failed."""
    former_secrets: list[FormerSecret] = Field(default_factory=list)
    """At most two, the next to end first. `previous_secret_expires_at` is the end of the last one."""


class WebhookEndpointWithSecret(WebhookEndpoint):
    """The answer to a create or a rotation: the only place the secret is ever shown."""

    secret: str = Field(repr=False)


class Attempt(Resource):
    """An HTTP request of a delivery. Each request that may have reached the receiver is a separate attempt."""

    id: Id
    """The `Svc-Delivery-Id` header."""
    number: int
    trigger: Open[AttemptTrigger, AttemptTriggerName]
    started_at: AwareDatetime
    duration_ms: int | None
    response_status: int | None
    response_excerpt: str | None
    """The beginning of the response's body, at most 1024 characters, controls replaced; of a compressed body, which is
    never decompressed, its encoding and size. Null when no body arrived in time."""
    error: Open[AttemptError, AttemptErrorName] | None


class Delivery(Resource):
    """The delivery of an event to an endpoint."""

    id: Id
    endpoint_id: Id
    event_id: Id
    event_type: Open[EventType, EventTypeName]
    status: Open[DeliveryStatus, DeliveryStatusName]
    failure_reason: Open[FailureReason, FailureReasonName] | None
    trigger: Open[DeliveryTrigger, DeliveryTriggerName]
    attempt_count: int
    max_attempts: int
    next_attempt_at: AwareDatetime | None
    last_attempt_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    last_response_status: int | None
    last_error: Open[AttemptError, AttemptErrorName] | None
    attempts: list[Attempt]
    """Oldest first."""
    created_at: AwareDatetime
    updated_at: AwareDatetime


class Recovered(Resource):
    """The deliveries that were queued again."""

    model_config = ConfigDict(json_schema_extra=always_sent("id"))

    id: Id | None = None
    """The `recovery_id` that the list of deliveries filters by. Null for a dry run."""
    matched: int
    """Counted up to 50,000."""
    has_more: bool = False
    """More than `matched` deliveries are queued again. Left out when there are no more."""


_SUBSCRIPTIONS: dict[str, frozenset[EventType]] = {
    kind.value: frozenset({kind}) for kind in EventType if kind in SUBSCRIBABLE
} | FAMILIES


def _subscription(word: str) -> str:
    if word not in _SUBSCRIPTIONS:
        raise Fault("unknown_value", f"must be one of {', '.join(_SUBSCRIPTIONS)}")
    return word


def _types_of(words: list[str]) -> list[str]:
    """Return the types of the words, and each once."""
    if len(set(words)) < len(words):
        raise Fault("repeated", "names a type twice")
    return sorted({kind.value for word in words for kind in _SUBSCRIPTIONS[word]})


def _url(url: str, info: ValidationInfo) -> str:
    split_url(url, allow_http=bool(info.context and info.context["allow_http"]))
    return url


Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.WEBHOOK_URL_LENGTH_MAX,
        json_schema_extra={"format": "uri", **SINGLE_LINE},
    ),
    AfterValidator(single_line),
    AfterValidator(_url),
]
"""Plain http is allowed by `allow_http` in pydantic's context."""
SubscribableType = Annotated[
    str, AfterValidator(_subscription), WithJsonSchema({"type": "string", "enum": list(_SUBSCRIPTIONS)})
]
EventTypes = Annotated[
    list[SubscribableType],
    Field(min_length=1, max_length=len(_SUBSCRIPTIONS), json_schema_extra={"uniqueItems": True}),
    AfterValidator(_types_of),
]
Instant = Annotated[
    str,
    Field(max_length=64, json_schema_extra={"format": "date-time", **SINGLE_LINE}),
    AfterValidator(single_line),
    AfterValidator(timestamp),
]
"""An ISO 8601 timestamp; without an offset it is wall time of the organization (decision R10)."""


class WantedStatus(StrEnum):
    """The statuses that a client may set; only the service sets `auto_disabled`."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class RecoverableStatus(StrEnum):
    FAILED = "failed"
    DEAD = "dead"


_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_HEADER_VALUE = re.compile(r"[!-~](?:[ -~]{0,1022}[!-~])?", re.ASCII)
_OWN_HEADERS = (
    *("content-", "svc-", "webhook-", "proxy-", "sec-", "x-forwarded-", "access-control-"),
    *("host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "date"),
    *("user-agent", "accept-encoding", "forwarded", "traceparent", "tracestate", "cookie", "via"),
)
"""Headers of the service, of HTTP itself, and of proxies; a name that ends with a hyphen means all names that begin
so."""


def _is_own(name: str) -> bool:
    return any(name == header or (header.endswith("-") and name.startswith(header)) for header in _OWN_HEADERS)


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise Fault("wrong_format", "has a name that is not one of a header of HTTP, of at most 64 characters")
        if _is_own(name.lower()):
            raise Fault("not_allowed", f"may not set {name}")
        if not _HEADER_VALUE.fullmatch(value):
            message = f"has a value for {name} that is not 1 to 1024 printable characters of ASCII"
            raise Fault("wrong_format", message)
    if len({name.lower() for name in headers}) < len(headers):
        raise Fault("repeated", "names a header twice")
    return headers


EndpointHeaders = Annotated[
    dict[str, str],
    Field(max_length=limits.WEBHOOK_HEADERS_MAX),
    AfterValidator(_headers),
]
MaxPerSecond = Annotated[int, Field(ge=1, le=limits.WEBHOOK_PER_SECOND_MAX)]


class WebhookEndpointCreate(Request):
    """Body of `POST /api/v1/webhooks`."""

    url: Url
    """https, at most 2048 characters, without user, password and fragment; its address must be public."""
    event_types: EventTypes
    """Each needs the read scope of its resource. A family, such as `booking.*`, means its present types;
    the endpoint has the types."""
    description: ShortText | None = None
    headers: EndpointHeaders | None = Field(default=None, repr=False)
    """At most ten headers that each delivery carries beside the service's headers, such as `Authorization`."""
    max_per_second: MaxPerSecond | None = None
    """The most requests that are sent within any second. Deliveries beyond it wait, queued."""


class WebhookEndpointChange(Request):
    """Body of `PATCH /api/v1/webhooks/{id}`: fields that are not given are unchanged."""

    url: Url | None = None
    """Needs the read scopes of all that the endpoint subscribes to, since it is sent to the new address."""
    event_types: EventTypes | None = None
    """Replaces the former list. A family, such as `booking.*`, means its present types."""
    description: ShortText | None = None
    """Null or an empty text removes it."""
    status: WantedStatus | None = None
    """`enabled` starts counting failures from zero; `disabled` marks queued deliveries as failed."""
    headers: EndpointHeaders | None = Field(default=None, repr=False)
    """Replaces all former headers; an empty object removes them."""
    max_per_second: MaxPerSecond | None = None
    """Replaces the former limit, from the next request on; null removes it."""


class SecretRotate(Request):
    """Body of `POST /api/v1/webhooks/{id}/rotate-secret`; an empty body is fine."""

    overlap_seconds: Annotated[int, Field(ge=0, le=limits.SECRET_OVERLAP_S_MAX)] | None = None
    """The seconds that the former secret also signs. Default 86400, a day. 0: all former secrets end at once; with any
    other value, two former secrets that are in use refuse the rotation."""


class DeliveryRecover(Request):
    """Body of `POST /api/v1/webhooks/{id}/recover`."""

    since: Instant
    """Deliveries created at or after it."""
    until: Instant | None = None
    """And before it."""
    statuses: Annotated[list[RecoverableStatus], Field(min_length=1, max_length=len(RecoverableStatus))] | None = None
    """Default both."""
    event_types: Annotated[list[EventType], Field(min_length=1, max_length=len(EventType))] | None = None
    """Default every type."""
    dry_run: bool = False
    """Count the deliveries, and queue none."""


class DeliveryRedeliver(Request):
    """Body of `POST /api/v1/webhooks/{id}/redeliver`."""

    event_id: InputId
    """Any event that the feed has; not a `ping`, and none about the endpoint itself."""
