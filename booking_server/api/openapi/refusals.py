"""Refusals as path operations declare them in `responses=`, each with an example that the API itself renders."""

from collections.abc import Mapping
from typing import Any

import orjson

from booking_core.base import errors as kinds
from booking_core.base.errors import BookingError
from booking_core.models.errors import ErrorBody
from booking_core.models.scopes import Scope
from booking_core.records.idempotency import STORED_REFUSALS
from booking_server.api import errors

Json = dict[str, Any]
Refusal = type[BookingError] | BookingError
"""A kind of refusal, or one of them as it can happen there."""

REQUEST_ID = "req_3f9c1e7a5b2d4c6e8f0a1b2c"
WINDOW_TOO_WIDE = "The window is wider than 92 days."

KEY_REFUSALS = (kinds.ApiKeyMissing, kinds.ApiKeyInvalid, kinds.ApiKeyRevoked, kinds.ApiKeyExpired)

HEADERS_OF: Mapping[type[BookingError], Mapping[str, str]] = {
    **{kind: {"WWW-Authenticate": "WWWAuthenticate"} for kind in KEY_REFUSALS},
    kinds.MethodNotAllowed: {"Allow": "Allow"},
    kinds.IdempotencyInProgress: {"Retry-After": "RetryAfterInProgress"},
    kinds.RateLimited: {"Retry-After": "RetryAfter"},
    kinds.Unavailable: {"Retry-After": "RetryAfter"},
}
"""Headers of a response beside those of every response, by their component."""


def refusals(*declared: Refusal) -> dict[int | str, Json]:
    """Return FastAPI's `responses` of these refusals, by status."""
    responses: dict[int | str, Json] = {}
    for refusal in declared:
        add(responses, refusal)
    return responses


def add(responses: dict[int | str, Json], refusal: Refusal) -> None:
    """Add a refusal to the response of its status; one that is declared already keeps its example."""
    kind, example = _example(refusal)
    response = responses.setdefault(errors.STATUS[kind], {"model": ErrorBody, "description": ""})
    media = response.setdefault("content", {}).setdefault("application/json", {})
    shown = media.setdefault("examples", {})
    if kind.code in shown:
        return
    shown[str(kind.code)] = {"value": orjson.loads(errors.answer(example, REQUEST_ID).body)}
    line = f"- `{kind.code}`: {kind.message}"
    response["description"] = "\n".join(filter(None, (response["description"], line)))
    response.setdefault("headers", {}).update(header_refs(HEADERS_OF.get(kind, {})))
    if kind in STORED_REFUSALS:
        response["x-stored"] = True


def header_refs(named: Mapping[str, str]) -> Json:
    """Return references to header components, by the header's name."""
    return {name: {"$ref": f"#/components/headers/{component}"} for name, component in named.items()}


def _example(refusal: Refusal) -> tuple[type[BookingError], BookingError]:
    if isinstance(refusal, BookingError):
        return type(refusal), refusal
    return refusal, _EXAMPLES.get(refusal) or refusal()


_EXAMPLES: Mapping[type[BookingError], BookingError] = {
    kinds.Conflict: kinds.Conflict("conflict", kinds.Conflict.message),
    kinds.InsufficientScope: kinds.InsufficientScope(Scope.BOOKINGS_READ),
    kinds.InsufficientCapacity: kinds.InsufficientCapacity(1),
    kinds.RateLimited: kinds.RateLimited(7),
    kinds.MethodNotAllowed: kinds.MethodNotAllowed(["GET"]),
}
