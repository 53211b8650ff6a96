"""The status, headers and body of every error (API v1 section 7, decisions R2 to R4), and their declaration."""

from collections.abc import Mapping

import orjson

from booking_core.base import errors
from booking_core.base.errors import BookingError
from booking_core.models.json import JsonObject
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import Answer

STATUS: dict[type[BookingError], int] = {
    errors.Malformed: 400,
    errors.IdempotencyKeyRequired: 400,
    errors.ApiKeyMissing: 401,
    errors.ApiKeyInvalid: 401,
    errors.ApiKeyRevoked: 401,
    errors.ApiKeyExpired: 401,
    errors.AppNotEnabled: 403,
    errors.PlanUpgradeRequired: 403,
    errors.InsufficientScope: 403,
    errors.NotFound: 404,
    errors.MethodNotAllowed: 405,
    errors.InsufficientCapacity: 409,
    errors.Conflict: 409,
    errors.IdempotencyInProgress: 409,
    errors.PayloadTooLarge: 413,
    errors.UnsupportedMediaType: 415,
    errors.Unprocessable: 422,
    errors.IdempotencyKeyReused: 422,
    errors.RateLimited: 429,
    errors.HeadersTooLarge: 431,
    errors.Unavailable: 503,
}

INTERNAL_STATUS = 500
INTERNAL_MESSAGE = "Something went wrong on our side."


def answer(error: BookingError, request_id: str) -> Answer:
    """Return the refusal as status and body. Nothing that the client sent is repeated in it."""
    body: dict[str, object] = {"error": str(error), "code": str(error.code), **error.extra}
    if error.details:
        body["details"] = [detail.model_dump(mode="json") for detail in error.details]
    body["request_id"] = request_id
    return Answer(STATUS[type(error)], orjson.dumps(body))


def internal(request_id: str) -> Answer:
    """Return a failure on our side, in fixed words."""
    body = {"error": INTERNAL_MESSAGE, "code": "internal_error", "request_id": request_id}
    return Answer(INTERNAL_STATUS, orjson.dumps(body))


def headers(error: BookingError) -> dict[str, str]:
    """Return the headers that go with a refusal."""
    if isinstance(error, errors.RateLimited):
        return {"retry-after": str(max(1, error.retry_after_s))}
    if isinstance(error, errors.IdempotencyInProgress):
        return {"retry-after": "1"}
    if isinstance(error, errors.Unavailable):
        return {"retry-after": str(error.retry_after_s)}
    if isinstance(error, errors.PayloadTooLarge):
        return {"connection": "close"}  # the rest of the body is not read
    if isinstance(error, errors.MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if STATUS.get(type(error)) == 401:
        return {"www-authenticate": "Bearer"}
    return {}


# Declarations ---------------------------------------------------------------------------------------------------------

# Refusals as path operations declare them in `responses=`, each with an example that the API itself renders.

DeclaredRefusal = type[BookingError] | BookingError
"""A kind of refusal, or one of them as it can happen there."""

REQUEST_ID = "req_3f9c1e7a5b2d4c6e8f0a1b2c"
WINDOW_TOO_WIDE = "The window is wider than 92 days."

KEY_REFUSALS = (errors.ApiKeyMissing, errors.ApiKeyInvalid, errors.ApiKeyRevoked, errors.ApiKeyExpired)

_EXAMPLES: Mapping[type[BookingError], BookingError] = {
    errors.Conflict: errors.Conflict("departure_closed", "Booking of this departure has closed."),
    errors.InsufficientScope: errors.InsufficientScope(Scope.BOOKINGS_READ),
    errors.InsufficientCapacity: errors.InsufficientCapacity(1),
    errors.RateLimited: errors.RateLimited(7),
    errors.MethodNotAllowed: errors.MethodNotAllowed(["GET"]),
}

SALE_REFUSALS: tuple[DeclaredRefusal, ...] = (
    errors.NotFound,
    errors.InsufficientCapacity(1),
    errors.Unprocessable.at("guests.0.tier_id", "The experience has no such price tier.", "unknown_tier"),
)
"""Refusals of each request that takes seats for a party."""


def refusals(*declared: DeclaredRefusal) -> dict[int | str, JsonObject]:
    """Return FastAPI's `responses` of these refusals: by status an example of each code, the first one of a code."""
    responses: dict[int | str, JsonObject] = {}
    for refusal in declared:
        example = refusal if isinstance(refusal, BookingError) else _EXAMPLES.get(refusal) or refusal()
        response: JsonObject = {"content": {"application/json": {"examples": {}}}}
        examples = examples_of(responses.setdefault(STATUS[type(example)], response))
        examples.setdefault(str(type(example).code), {"value": orjson.loads(answer(example, REQUEST_ID).body)})
    return responses


def examples_of(response: JsonObject) -> JsonObject:
    """Return the examples of a response by their codes."""
    examples: JsonObject = response["content"]["application/json"]["examples"]
    return examples
