"""How a refusal is answered: the status of every error stands here, once (API v1 section 7, decisions R2 to R4)."""

import orjson

from booking_core import errors
from booking_core.errors import BookingError
from booking_core.idempotency import Answer

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


def answer(error: BookingError, request_id: str) -> Answer:
    """The refusal as status and body. Nothing that the client sent is repeated in it."""
    body: dict[str, object] = {"error": str(error), "code": str(error.code), **error.extra}
    if error.details:
        body["details"] = [detail.model_dump(mode="json") for detail in error.details]
    body["request_id"] = request_id
    return Answer(STATUS[type(error)], orjson.dumps(body))


def internal(request_id: str) -> Answer:
    """A failure on our side, in fixed words."""
    body = {"error": "Something went wrong on our side.", "code": "internal_error", "request_id": request_id}
    return Answer(INTERNAL_STATUS, orjson.dumps(body))


def headers(error: BookingError) -> list[tuple[bytes, bytes]]:
    """The headers that go with a refusal."""
    if isinstance(error, errors.RateLimited):
        return [(b"retry-after", str(max(1, error.retry_after_s)).encode())]
    if isinstance(error, errors.IdempotencyInProgress):
        return [(b"retry-after", b"1")]
    if isinstance(error, errors.Unavailable):
        return [(b"retry-after", str(error.retry_after_s).encode())]
    if isinstance(error, errors.PayloadTooLarge):
        return [(b"connection", b"close")]  # what is left of the body is not read
    if isinstance(error, errors.MethodNotAllowed):
        return [(b"allow", ", ".join(error.allowed).encode())]
    if STATUS[type(error)] == 401:
        return [(b"www-authenticate", b"Bearer")]
    return []
