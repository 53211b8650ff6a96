"""Errors: their class by status and code, their attributes, and the absence of secrets."""

import builtins
import copy
import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sdk_support.routed import Answer, answered, as_json, play

import booking_sdk
from booking_core.models.bookings import Booking
from booking_sdk import (
    APIConnectionError,
    APIError,
    APIStatusError,
    BadRequestError,
    BookingClient,
    BookingError,
    ConfigurationError,
    ConflictError,
    InsufficientCapacityError,
    InsufficientScopeError,
    NotFoundError,
    PermissionDeniedError,
    ResponseValidationError,
    ServerError,
    UnprocessableEntityError,
)
from booking_sdk.errors import error_class
from booking_sdk.response import Response

CLASSES = [
    (400, "validation_failed", "BadRequestError"),
    (400, "idempotency_key_required", "IdempotencyKeyRequiredError"),
    (401, "api_key_missing", "ApiKeyMissingError"),
    (401, "api_key_invalid", "ApiKeyInvalidError"),
    (401, "api_key_revoked", "ApiKeyRevokedError"),
    (401, "api_key_expired", "ApiKeyExpiredError"),
    (401, "a_code_of_tomorrow", "AuthenticationError"),
    (403, "insufficient_scope", "InsufficientScopeError"),
    (403, "app_not_enabled", "AppNotEnabledError"),
    (403, "plan_upgrade_required", "PlanUpgradeRequiredError"),
    (403, None, "PermissionDeniedError"),
    (404, "not_found", "NotFoundError"),
    (405, "method_not_allowed", "APIStatusError"),
    (409, "conflict", "ConflictError"),
    (409, "insufficient_capacity", "InsufficientCapacityError"),
    (409, "idempotency_in_progress", "IdempotencyInProgressError"),
    (413, "payload_too_large", "APIStatusError"),
    (422, "validation_failed", "UnprocessableEntityError"),
    (422, "idempotency_key_reused", "IdempotencyKeyReusedError"),
    (429, "rate_limited", "RateLimitError"),
    (500, "internal_error", "ServerError"),
    (503, "service_unavailable", "ServerError"),
    (599, None, "ServerError"),
    (302, None, "APIStatusError"),
    (418, "insufficient_capacity", "APIStatusError"),  # a code with an unexpected status selects no class
    (404, "api_key_revoked", "NotFoundError"),
]


@pytest.mark.parametrize(("status", "code", "name"), CLASSES)
def test_the_status_chooses_the_branch_and_the_code_the_leaf(status: int, code: str | None, name: str) -> None:
    assert error_class(status, code).__name__ == name


def test_every_class_is_below_the_one_root_is_drawn_and_shadows_nothing() -> None:
    names = {name for name in booking_sdk.__all__ if name.endswith("Error")}
    classes = names - {"AttemptError", "WebhookVerificationError", "PayloadError"}
    assert all(issubclass(getattr(booking_sdk, name), BookingError) for name in classes)
    assert not classes & set(dir(builtins))
    assert {name for name in classes if name not in str(booking_sdk.errors.__doc__)} == set()
    below: list[tuple[type[Exception], type[Exception]]] = [
        (ConfigurationError, ValueError),
        (InsufficientCapacityError, ConflictError),
        (booking_sdk.APITimeoutError, APIConnectionError),
        *((kind, APIStatusError) for kind in (BadRequestError, PermissionDeniedError, ServerError)),
        (UnprocessableEntityError, APIStatusError),
    ]
    for kind, base in below:
        assert issubclass(kind, base)


def me(client: BookingClient) -> dict[str, Any]:
    """Send a request that changes nothing; its result is any JSON object."""
    return client.request("GET", "/api/v1/me", cast_to=dict)


def book(client: BookingClient) -> Booking:
    """Send a request that changes something."""
    body = {"note": "hush"}
    return client.request("POST", "/api/v1/bookings", json=body, cast_to=Booking, idempotency_key="order-0001")


def raised(answer: Answer, call: Callable[[BookingClient], Any] = me) -> APIError:
    """Return the error of a call with one attempt and this response."""
    return play(call, [answer], max_retries=0).failure


def refused(status: int, **body: object) -> APIStatusError:
    error = raised(as_json({"error": "No.", **body}, status, x_request_id="req_1"))
    assert isinstance(error, APIStatusError)
    return error


def test_error_has_the_fields_of_its_body() -> None:
    details = [{"field": "guests.0.count", "reason": "too_small", "message": "must be more", "hint": "of tomorrow"}]
    error = refused(400, code="validation_failed", details=details)
    assert isinstance(error, BadRequestError)
    assert (error.status_code, error.code) == (400, "validation_failed")
    assert (error.message, error.request_id) == ("No.", "req_1")
    assert (error.details[0].field, error.details[0].reason) == ("guests.0.count", "too_small")
    assert str(error) == "400 validation_failed: No. (request req_1)"
    scope = refused(403, code="insufficient_scope", required_scope="bookings:write")
    assert isinstance(scope, InsufficientScopeError)
    assert scope.required_scope == "bookings:write"
    seats = refused(409, code="insufficient_capacity", seats_available=3)
    assert isinstance(seats, InsufficientCapacityError)
    assert seats.seats_available == 3
    later = refused(409, code="departure_moved")
    assert (type(later), later.code) == (ConflictError, "departure_moved")


FOREIGN = [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[]", b"null", b'"text"', b"{", b"[" * 100_000]
MISSHAPEN = [
    b'{"code": 7, "error": ["x"], "details": 3, "seats_available": "many"}',
    b'{"code": "conflict", "details": [1, {"reason": 4}, null]}',
]


@pytest.mark.parametrize("body", [*FOREIGN, *MISSHAPEN])
@pytest.mark.parametrize("status", [302, 400, 403, 404, 409, 422, 429, 502])
def test_the_status_wins_whatever_the_body_is(status: int, body: bytes) -> None:
    error = raised(httpx.Response(status, headers={"content-type": "text/html"}, content=body))
    assert isinstance(error, APIStatusError)
    assert error.status_code == status
    assert error.body is None or isinstance(error.body, (str, list, dict))
    assert isinstance(error.details, tuple)
    assert isinstance(str(error), str)
    getattr(error, "seats_available", None)
    getattr(error, "required_scope", None)


def test_message_for_a_response_that_is_not_from_the_api() -> None:
    error = raised(answered(404))
    assert isinstance(error, NotFoundError)
    assert error.code is None
    assert str(error) == "404 without a code: the response is not from the API; is the base URL right?"
    assert error.body == "<html>"


def test_a_long_or_broken_message_becomes_one_short_line() -> None:
    error = refused(500, code="internal_error", error="x\n\n" + "y" * 5000)
    assert len(error.message) == 300
    assert "\n" not in str(error)


def of(status: int, code: str | None) -> APIStatusError:
    """Return an error with a key and three attempts, for any status."""
    response = Response(status, [(b"X-Request-Id", b"req_1")], json.dumps({"error": "No.", "code": code}).encode())
    return error_class(status, code)(response, idempotency_key="order-1", attempts=3)


# Created directly and not by calls: pickling must keep every field, and no single response sets all of them.
EVERY_KIND = [
    *(of(status, code) for status, code, _ in CLASSES),
    APIConnectionError("gone", idempotency_key="order-1", maybe_executed=True, attempts=3),
    ResponseValidationError("odd", response=Response(200, [], b"{}"), field_path="id", attempts=2),
    ConfigurationError("no key"),
    booking_sdk.PaginationError("round and round"),
    booking_sdk.APITimeoutError("late"),
]


@pytest.mark.parametrize("error", EVERY_KIND, ids=lambda error: type(error).__name__)
def test_every_error_survives_a_queue(error: BookingError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__.keys() == error.__dict__.keys()
        names = ["idempotency_key", "maybe_executed", "attempts"] if isinstance(error, APIError) else []
        names += ["code", "body"] if isinstance(error, APIStatusError) else []
        assert [getattr(again, name) for name in names] == [getattr(error, name) for name in names]
        if isinstance(error, APIStatusError):
            assert dict(again.headers) == dict(error.headers)


def test_validation_error_names_the_field_and_not_the_value() -> None:
    body = b'{"id": "secret-guest-name", "status": ["secret-guest-name"]}'
    answer = httpx.Response(200, headers={"x-request-id": "req_9"}, content=body)
    assert play(me, [answer]).result == json.loads(body)
    error = raised(answer, book)
    assert isinstance(error, ResponseValidationError)
    assert error.field_path == "booking_number"
    assert str(error) == (
        "POST /api/v1/bookings: the response 200 cannot be parsed: booking_number is required (request req_9)"
    )
    assert error.response.body == body
    assert error.maybe_executed
    assert error.idempotency_key == "order-0001"
    assert not error.retryable
    whole = "".join(traceback.format_exception(error))
    assert "secret-guest-name" not in whole + repr(error)


@pytest.mark.parametrize("body", [b"", b"<html>Sign in to this hotel's network</html>", b"\xff", b"[]"])
def test_a_success_that_is_not_json_is_no_success(body: bytes) -> None:
    error = raised(httpx.Response(200, headers={"content-type": "text/html"}, content=body), book)
    assert isinstance(error, ResponseValidationError)
    assert "hotel" not in str(error)


def test_a_status_error_has_no_transport_inside() -> None:
    error = raised(answered(404, "not_found"))
    assert error.__cause__ is None
    assert error.__context__ is None
    modules = {type(value).__module__.partition(".")[0] for value in error.__dict__.values()}
    assert modules <= {"booking_sdk", "builtins"}
