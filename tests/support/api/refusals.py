"""The format of every error response (API v1 section 7, decisions R3 and R4), and a check that no row changed."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any, Protocol, get_args

from booking_core.db import tables
from booking_core.models.reasons import ErrorReason
from support.world.world import World

CODES = {
    400: {"validation_failed", "idempotency_key_required"},
    401: {"api_key_missing", "api_key_invalid", "api_key_revoked", "api_key_expired"},
    403: {"app_not_enabled", "plan_upgrade_required", "insufficient_scope"},
    404: {"not_found"},
    405: {"method_not_allowed"},
    409: {"insufficient_capacity", "conflict", "idempotency_in_progress"},
    413: {"payload_too_large"},
    415: {"unsupported_media_type"},
    422: {"validation_failed", "idempotency_key_reused"},
    429: {"rate_limited"},
    431: {"headers_too_large"},
    500: {"internal_error"},
    503: {"service_unavailable"},
}
"""Every status that an error response may have, and the codes that it may have."""

_EXTRA = {"insufficient_scope": "required_scope", "insufficient_capacity": "seats_available"}
_REASONS = frozenset(get_args(ErrorReason))
_RETRIED = {"rate_limited", "idempotency_in_progress", "service_unavailable"}


class Answered(Protocol):
    """A response of the test client, or a raw response."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Any: ...
    @property
    def content(self) -> bytes: ...
    def json(self) -> Any: ...


def refused(answer: Answered, status: int, code: str) -> dict[str, Any]:
    """Check a response against the contract of errors, and return its body."""
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.content[:500]
    assert code in CODES[status]
    body: dict[str, Any] = answer.json()
    extra = {_EXTRA[code]} if code in _EXTRA else set()
    assert set(body) - {"details"} == {"error", "code", "request_id"} | extra
    assert isinstance(body["error"], str)
    assert body["error"]
    if "details" in body:
        _check_details(body["details"])
    _check_headers(answer, code, body["request_id"])
    return body


def _check_details(details: Any) -> None:
    assert details
    for detail in details:
        assert set(detail) == {"field", "reason", "message"}
        assert detail["field"] is None or detail["field"]
        assert detail["reason"] in _REASONS
        assert detail["message"]
        assert detail["field"] or detail["message"].endswith("."), "without a field it is a sentence"


def _check_headers(answer: Answered, code: str, request_id: str) -> None:
    headers = answer.headers
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(answer.content)
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "idempotent-replayed" in headers or headers["x-request-id"] == request_id
    assert ("retry-after" in headers) == (code in _RETRIED)
    assert ("allow" in headers) == (code == "method_not_allowed")
    assert ("www-authenticate" in headers) == (answer.status_code == 401)


def field_of(body: dict[str, Any]) -> str | None:
    """Return the field of the first detail."""
    return body["details"][0]["field"] if "details" in body else None


def invalid_field(answer: Answered) -> str | None:
    """Check for an invalid request, and return the field of its first detail."""
    return field_of(refused(answer, 400, "validation_failed"))


def reason_of(answer: Answered) -> str:
    """Return the reason of the first detail of an error response."""
    return str(answer.json()["details"][0]["reason"])


def conflict_reason(answer: Answered) -> str:
    """Check for a conflict, and return the reason of its first detail."""
    refused(answer, 409, "conflict")
    return reason_of(answer)


def rows_of(world: World, *, leaving_out: Collection[str] = ()) -> dict[str, list[str]]:
    """Return every row of the organization, by table, without `last_used_at`, which reads also change."""
    rows_by_table = {}
    for table in tables.metadata.sorted_tables:
        if "organization_id" in table.c and table.name not in leaving_out:
            rows = [{k: v for k, v in row.items() if k != "last_used_at"} for row in world.rows(table)]
            rows_by_table[table.name] = sorted(map(repr, rows))
    return rows_by_table


@contextlib.contextmanager
def nothing_changes(world: World, *, leaving_out: Collection[str] = ()) -> Iterator[None]:
    """Check that the block changes no row of the organization."""
    before = rows_of(world, leaving_out=leaving_out)
    yield
    assert rows_of(world, leaving_out=leaving_out) == before
