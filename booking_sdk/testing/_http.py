"""HTTP in the fake: received requests, query parameters parsed as strictly as by the service, and error responses."""

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, tzinfo
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import ValidationError

from booking_core.models.base import Request, is_id
from booking_core.models.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX
from booking_sdk.response import Response

EnumT = TypeVar("EnumT", bound=StrEnum)
RequestT = TypeVar("RequestT", bound=Request)


class FakeRequest:
    """A request that the fake received. `json` is its parsed body; `headers` have lower-case names."""

    def __init__(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    @property
    def idempotency_key(self) -> str | None:
        return self.headers.get("idempotency-key")

    def __repr__(self) -> str:
        return f"<FakeRequest {self.method} {self.path}>"


class Refusal(Exception):
    """An error response of the service."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None, **extra: Any):
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.extra = extra

    @property
    def is_stored(self) -> bool:
        """Return True for an error that the service stores and replays for an Idempotency-Key."""
        return (self.status, self.code) in _STORED

    def body(self) -> dict[str, Any]:
        return {"error": str(self), "code": self.code, **self.extra}


_STORED = {(404, "not_found"), (409, "insufficient_capacity"), (409, "conflict"), (422, "validation_failed")}


def malformed(field: str, message: str, reason: str = "invalid") -> Refusal:
    details = [{"field": field, "reason": reason, "message": message}]
    return Refusal(400, "validation_failed", f"{field}: {message}", details=details)


def unprocessable(field: str, message: str, reason: str) -> Refusal:
    return named(422, "validation_failed", field, message, reason)


def conflict(reason: str, message: str) -> Refusal:
    return named(409, "conflict", None, message, reason)


def not_found() -> Refusal:
    return Refusal(404, "not_found", "There is no such resource.")


def named(status: int, code: str, field: str | None, message: str, reason: str) -> Refusal:
    """Return a refusal with a reason, and with the field that it is about."""
    return Refusal(status, code, message, details=[{"field": field, "reason": reason, "message": message}])


def json_response(status: int, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response for the transport."""
    own = {"content-type": "application/json", **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in own.items()]
    return Response(status, raw, b"" if body is None else json.dumps(body).encode())


def validated(model: type[RequestT], body: bytes) -> RequestT:
    """Parse a request body into its model, by the rules of the service.

    Raises:
        Refusal: The body is malformed (400).
    """
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        refusal = malformed(".".join(map(str, problem["loc"])) or "body", problem["msg"], problem["type"])
    raise refusal


def refused(refusal: Refusal, request_id: str) -> Response:
    """Return the response of a refusal."""
    return json_response(refusal.status, {**refusal.body(), "request_id": request_id}, refusal.headers)


class Query:
    """The query parameters of a request. Each method parses one, or raises a Refusal."""

    def __init__(self, values: Mapping[str, str], zone: tzinfo) -> None:
        self._values = values
        self._zone = zone

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value == "":
            raise malformed(name, "is empty", "empty")
        return value

    def choice(self, name: str, kind: type[EnumT]) -> EnumT | None:
        value = self.text(name)
        if value is not None and value not in list(kind):
            raise malformed(name, f"must be one of {', '.join(kind)}")
        return None if value is None else kind(value)

    def uuid(self, name: str) -> str | None:
        value = self.text(name)
        if value is not None and not is_id(value):
            raise malformed(name, "must be a UUID")
        return value and value.lower()

    def flag(self, name: str) -> bool | None:
        value = self.text(name)
        if value not in (None, "true", "false"):
            raise malformed(name, "must be true or false")
        return None if value is None else value == "true"

    def day(self, name: str) -> date | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
                return date.fromisoformat(value)
        except ValueError:
            pass
        raise malformed(name, "must be a date, YYYY-MM-DD")

    def instant(self, name: str) -> datetime | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            found = datetime.fromisoformat(value.replace(" ", "+"))
        except ValueError:
            raise malformed(name, "must be an ISO 8601 timestamp") from None
        return found if found.tzinfo else found.replace(tzinfo=self._zone)

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[1-9][0-9]{0,17}", value):
            raise malformed(name, "must be a whole number from 1")
        return int(value)

    def limit(self) -> int:
        value = self.text("limit")
        if value is None:
            return PAGE_LIMIT_DEFAULT
        if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= PAGE_LIMIT_MAX:
            raise malformed("limit", f"must be a whole number from 1 to {PAGE_LIMIT_MAX}")
        return int(value)
