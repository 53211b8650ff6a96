"""The error body and its codes (API v1 section 7, decisions R2 to R4)."""

from enum import StrEnum
from typing import Literal

from booking_core.models.base import Open, Resource
from booking_core.models.reasons import ErrorReason


class ErrorCode(StrEnum):
    """The class of an error, for a client to branch on."""

    VALIDATION_FAILED = "validation_failed"
    IDEMPOTENCY_KEY_REQUIRED = "idempotency_key_required"
    API_KEY_MISSING = "api_key_missing"
    API_KEY_INVALID = "api_key_invalid"
    API_KEY_REVOKED = "api_key_revoked"
    API_KEY_EXPIRED = "api_key_expired"
    APP_NOT_ENABLED = "app_not_enabled"
    PLAN_UPGRADE_REQUIRED = "plan_upgrade_required"
    INSUFFICIENT_SCOPE = "insufficient_scope"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    INSUFFICIENT_CAPACITY = "insufficient_capacity"
    CONFLICT = "conflict"
    IDEMPOTENCY_IN_PROGRESS = "idempotency_in_progress"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    HEADERS_TOO_LARGE = "headers_too_large"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    RATE_LIMITED = "rate_limited"
    INTERNAL_ERROR = "internal_error"
    SERVICE_UNAVAILABLE = "service_unavailable"


ErrorCodeName = Literal[
    "validation_failed",
    "idempotency_key_required",
    "api_key_missing",
    "api_key_invalid",
    "api_key_revoked",
    "api_key_expired",
    "app_not_enabled",
    "plan_upgrade_required",
    "insufficient_scope",
    "not_found",
    "method_not_allowed",
    "insufficient_capacity",
    "conflict",
    "idempotency_in_progress",
    "payload_too_large",
    "headers_too_large",
    "unsupported_media_type",
    "idempotency_key_reused",
    "rate_limited",
    "internal_error",
    "service_unavailable",
]


class ErrorDetail(Resource):
    """A single reason of an error. It never repeats the client's input."""

    field: str | None = None
    """The location: a dotted path into the body, or the name of a parameter or header; null for a condition."""
    reason: ErrorReason | str
    """The fault or condition, such as `required` or `departure_closed`. The list may grow."""
    message: str
    """English text; do not branch on it."""


class ErrorBody(Resource):
    """Every answer that is not a success."""

    error: str
    """English message; do not branch on it."""
    code: Open[ErrorCode, ErrorCodeName]
    """The value to branch on."""
    required_scope: str | None = None
    """Present with `insufficient_scope`."""
    seats_available: int | None = None
    """Present with `insufficient_capacity`."""
    details: list[ErrorDetail] | None = None
    """Present where a field or a condition can be named."""
    request_id: str | None = None
    """The same as the `x-request-id` header."""
