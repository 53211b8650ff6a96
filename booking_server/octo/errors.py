"""Refusals in OCTO's shape."""

from typing import Any, Literal

import orjson
from fastapi import Request, Response

from booking_core.base import errors as core
from booking_core.base.errors import BookingError, NotFound
from booking_server.api import errors
from booking_server.octo.capabilities import HEADER, active_names

IdField = Literal["productId", "optionId", "unitId", "availabilityId", "uuid"]
_CODES: dict[IdField, str] = {
    "productId": "INVALID_PRODUCT_ID",
    "optionId": "INVALID_OPTION_ID",
    "unitId": "INVALID_UNIT_ID",
    "availabilityId": "INVALID_AVAILABILITY_ID",
    "uuid": "INVALID_BOOKING_UUID",
}


class InvalidId(NotFound):
    """An id that is missing, or that nothing of the organization has."""

    def __init__(self, field: IdField, value: str | None) -> None:
        super().__init__(f"The {field} is missing, or nothing has it.")
        self.field, self.value = field, value or ""


def status_and_body(error: BookingError) -> tuple[int, dict[str, Any]]:
    """Return the status of a refusal, and its body."""
    if isinstance(error, InvalidId):
        return 400, {"error": _CODES[error.field], "errorMessage": str(error), error.field: error.value}
    status, code, message = errors.STATUS[type(error)], "BAD_REQUEST", str(error)
    if isinstance(error, core.IdempotencyInProgress):
        # 409 with Retry-After: a refusal of the order would end the sale.
        code, message = "UNPROCESSABLE_ENTITY", "A request with this uuid is still running."
    elif isinstance(error, core.ApiKeyMissing):
        code = "UNAUTHORIZED"
    elif status in (401, 403):
        status, code = 403, "FORBIDDEN"
    elif status in (409, 422):
        status, code = 400, "UNPROCESSABLE_ENTITY"
    elif status == 503:
        code = "INTERNAL_SERVER_ERROR"
    return status, {"error": code, "errorMessage": message}


def respond_with(request: Request, error: BookingError) -> Response:
    """Return the response of a refusal, which names the active capabilities as every response does."""
    return _respond(request, *status_and_body(error))


def respond_with_failure(request: Request) -> Response:
    """Return the response of a failure on our side, in fixed words."""
    body = {"error": "INTERNAL_SERVER_ERROR", "errorMessage": errors.INTERNAL_MESSAGE}
    return _respond(request, errors.INTERNAL_STATUS, body)


def _respond(request: Request, status: int, body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), status, {HEADER: active_names(request)}, "application/json")
