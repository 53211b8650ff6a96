"""Error responses. The status of every error is defined here (API v1 section 7, decisions R2 to R4)."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from booking_core.base import errors
from booking_core.base.errors import BookingError
from booking_core.models.errors import ErrorBody
from booking_core.models.json import JsonObject
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import Answer
from booking_server.api.dependencies import credentials_of, service_of
from booking_server.api.middleware import REASON, REFUSALS, context_headers
from booking_server.fastapi_ext import requests
from booking_server.fastapi_ext.routes import methods_of
from booking_server.reference import missing_page

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
    """Return the refusal as status and body. Nothing that the client sent is repeated in it."""
    body: dict[str, object] = {"error": str(error), "code": str(error.code), **error.extra}
    if error.details:
        body["details"] = [detail.model_dump(mode="json") for detail in error.details]
    body["request_id"] = request_id
    return Answer(STATUS[type(error)], orjson.dumps(body))


def internal(request_id: str) -> Answer:
    """Return a failure on our side, in fixed words."""
    body = {"error": "Something went wrong on our side.", "code": "internal_error", "request_id": request_id}
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
    if STATUS[type(error)] == 401:
        return {"www-authenticate": "Bearer"}
    return {}


def respond_with(error: BookingError, request_id: str) -> Response:
    """Return the response of a refusal."""
    refused = answer(error, request_id)
    return Response(refused.body, refused.status, headers(error), "application/json")


def note(request: Request, error: BookingError) -> None:
    """Note the reason of a refusal with 503, for the metrics and the request log; and a refusal by a queue, or by the
    rate limit of the key or the address, for the admission of the next requests."""
    is_repeatable = isinstance(error, errors.RateLimited) and error.free_at_s is not None
    if isinstance(error, errors.Unavailable):
        request.scope[REASON] = error.reason
        is_repeatable = error.reason == "queue"
    if is_repeatable and REFUSALS in request.scope:
        request.scope[REFUSALS].append(error)


# Exception handlers --------------------------------------------------------------------------------------------------


def add_handlers(app: FastAPI) -> None:
    """Add the handlers that turn every exception into the error body of the contract."""
    app.add_exception_handler(BookingError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, error: Any) -> Response:
    note(request, error)
    return respond_with(error, request_id(request))


async def _invalid(request: Request, error: Any) -> Response:
    """Respond to a request with invalid parameters or an invalid body, as found by FastAPI."""
    problems = [{**problem, "loc": problem["loc"][1:]} for problem in error.errors()]
    return respond_with(requests.malformed(requests.details_of(problems)), request_id(request))


async def _unrouted(request: Request, error: Any) -> Response:
    """Respond to a path that does not exist, or to a method that the path does not take. A browser gets a page outside
    of the API.

    It counts against the address but is never rate-limited: the path is checked before the limit (decision R1). An
    HTTPException that a path operation raises is answered as FastAPI answers it.
    """
    is_raised_by_operation = "endpoint" in request.scope and error.status_code != 405
    if is_raised_by_operation or error.status_code not in (404, 405):
        return await http_exception_handler(request, error)
    await _count_address(request)
    if error.status_code == 404 and _is_browser(request):
        return missing_page(request.scope["path"], service_of(request).installation.public_url)
    refusal: BookingError = errors.NotFound("There is no such path.")
    if error.status_code == 405:
        refusal = errors.MethodNotAllowed(methods_of(request.app.routes, request.scope["path"]))
    return respond_with(refusal, request_id(request))


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")


async def _count_address(request: Request) -> None:
    with contextlib.suppress(errors.RateLimited):
        # In a thread, since a shared store of the limiter is called over a socket.
        await asyncio.to_thread(service_of(request).authenticator.count_address, credentials_of(request))


async def _failed(request: Request, _: Any) -> Response:
    failed = internal(request_id(request))
    # The error goes on to uvicorn, which closes the connection. Without the header the client's next request is lost.
    response = Response(failed.body, failed.status, {"connection": "close"}, "application/json")
    # Starlette sends this response from outside the middleware that adds them to all others.
    response.raw_headers.extend(context_headers(request.scope))
    return response


def request_id(request: Request) -> str:
    """Return the id of the request, which `RequestContextMiddleware` gave it."""
    identifier: str = request.scope["booking.request_id"]
    return identifier


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


def refusals(*declared: DeclaredRefusal) -> dict[int | str, JsonObject]:
    """Return FastAPI's `responses` of these refusals: by status an example of each code, the first one of a code."""
    responses: dict[int | str, JsonObject] = {}
    for refusal in declared:
        example = refusal if isinstance(refusal, BookingError) else _EXAMPLES.get(refusal) or refusal()
        response: JsonObject = {"model": ErrorBody, "content": {"application/json": {"examples": {}}}}
        examples = examples_of(responses.setdefault(STATUS[type(example)], response))
        examples.setdefault(str(type(example).code), {"value": orjson.loads(answer(example, REQUEST_ID).body)})
    return responses


def examples_of(response: JsonObject) -> JsonObject:
    """Return the examples of a response by their codes."""
    examples: JsonObject = response["content"]["application/json"]["examples"]
    return examples
