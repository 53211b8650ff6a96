"""Read requests: bounded bodies, JSON in strict mode, and query parameters that occur once."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Scope

from booking_core.base.errors import BookingError, Malformed, PayloadTooLarge, UnsupportedMediaType
from booking_core.models.base import LANGUAGE_TAG_PATTERN, UUID_PATTERN, single_line
from booking_core.models.errors import ErrorDetail
from booking_core.models.limits import QUERY_VALUE_LENGTH_MAX, REQUEST_BODY_BYTES_MAX
from booking_core.models.problems import describe, reason_of
from booking_core.models.reasons import ErrorReason, Fault

RawHeaders = Iterable[tuple[bytes, bytes]]

_JSON = re.compile(rb"application/(?:[a-z0-9.+-]+\+)?json\s*(?:;\s*charset\s*=\s*\"?utf-?8\"?\s*)?;?", re.IGNORECASE)
_DETAILS_MAX = 20
_PATTERNS = {
    UUID_PATTERN: "must be a UUID, such as 0b1f6a52-6c1e-4d0a-9f0e-2b7a8f1f9c55",
    LANGUAGE_TAG_PATTERN: "must be a language tag, such as en or de-AT",
}
"""The messages about texts that do not match a pattern: pydantic's own shows the regular expression."""


# Bodies ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RequestBody:
    """A body with the headers of its request, or the refusal of a body that could not be read."""

    data: bytes
    headers: RawHeaders = ()
    refusal: BookingError | None = None
    _parsed: dict[str, Any] | None = None

    def json_object(self, *, is_optional: bool) -> dict[str, Any]:
        """Return the JSON object; an empty one for an empty body where that is allowed.

        Of a name that occurs twice in one object the last value counts.

        Raises:
            PayloadTooLarge: it is larger than the limit.
            UnsupportedMediaType: its headers do not say that it is JSON in UTF-8.
            Malformed: it broke off, or is not a JSON object.
        """
        if self._parsed is None:
            if self.refusal:
                raise self.refusal
            if not self.data and not is_optional:
                raise _unreadable("required", "The body is empty.")
            self._parsed = self._parse() if self.data else {}
        return self._parsed

    def _parse(self) -> dict[str, Any]:
        _check_content_type(self.headers)
        try:
            value = orjson.loads(self.data)
        except orjson.JSONDecodeError:
            raise _unreadable("invalid_json", "The body is not valid JSON.") from None
        if not isinstance(value, dict):
            raise _unreadable("wrong_type", "The body must be a JSON object.")
        return value


def _unreadable(reason: ErrorReason, message: str) -> Malformed:
    return Malformed(message, details=[ErrorDetail(reason=reason, message=message)])


def _check_content_type(headers: RawHeaders) -> None:
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise UnsupportedMediaType
    if not _JSON.fullmatch(b"".join(value for name, value in headers if name == b"content-type").strip()):
        raise UnsupportedMediaType


@dataclass(frozen=True, slots=True)
class BodyContext:
    """Marks the body of a path operation whose validators need pydantic's context."""

    read: Callable[[Request], Any]


def validate(model: type[BaseModel], data: bytes, context: Any = None) -> Any:
    """Return the body as its model.

    Raises:
        Malformed: with a detail for each field that is wrong; the value that was sent is not repeated.
    """
    try:
        return model.model_validate_json(data or b"{}", context=context)
    except ValidationError as error:
        raise malformed(details_of(error.errors(include_url=False, include_input=False))) from None


def malformed(details: Sequence[ErrorDetail]) -> Malformed:
    """Return the refusal of a request with these faults."""
    first = details[0]
    message = f"{first.field}: {first.message}" if first.field else first.message
    return Malformed(message, details=details[:_DETAILS_MAX])


def details_of(problems: Sequence[Any]) -> list[ErrorDetail]:
    """Return the details of the problems that pydantic found."""
    return [_detail(problem) for problem in problems[:_DETAILS_MAX]]


def _detail(problem: Any) -> ErrorDetail:
    path = ".".join(str(part) for part in problem["loc"])
    pattern = problem["ctx"]["pattern"] if problem["type"] == "string_pattern_mismatch" else ""
    message = _PATTERNS.get(pattern) or describe(problem)
    return ErrorDetail(field=path or None, reason=reason_of(problem), message=message)


async def read_body(scope: Scope, receive: Callable[[], Awaitable[Message]]) -> bytes | BookingError:
    """Return the request's body, or the refusal of it.

    It is refused when it is larger than the limit, by its Content-Length (then nothing of it is read, and a client that
    waits for "100 Continue" sends nothing) or counted as it arrives; or when the client left before its end.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > REQUEST_BODY_BYTES_MAX:
            return PayloadTooLarge()
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return Malformed("The body broke off.")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > REQUEST_BODY_BYTES_MAX:
            return PayloadTooLarge()
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


# Query parameters --------------------------------------------------------------------------------------------------


def query_values(query: bytes, names: Iterable[str]) -> tuple[dict[str, str], list[ErrorDetail]]:
    """Return the values of the named query parameters that are given, and the faults of those that are given twice, are
    empty or are not plain text. Others are ignored (decision R6)."""
    raw_values: dict[str | None, list[bytes]] = {}
    for pair in query.split(b"&") if query else ():
        raw, _, value = pair.partition(b"=")
        raw_values.setdefault(_name(raw), []).append(value)
    values: dict[str, str] = {}
    faults: list[ErrorDetail] = []
    for name in names:
        try:
            if name in raw_values:
                values[name] = _value(raw_values[name])
        except Fault as fault:
            faults.append(ErrorDetail(field=name, reason=fault.reason, message=str(fault)))
    return values, faults


def _decoded(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")


def _name(raw: bytes) -> str | None:
    try:
        return _decoded(raw)
    except UnicodeDecodeError:
        return None  # not a name of ours


def _value(raw_values: Sequence[bytes]) -> str:
    if len(raw_values) > 1:
        raise Fault("repeated", "is given twice")
    try:
        value = single_line(_decoded(raw_values[0]))
    except UnicodeDecodeError:
        raise Fault("wrong_format", "is not UTF-8") from None
    if not value:
        raise Fault("too_short", "is empty")
    if len(value) > QUERY_VALUE_LENGTH_MAX:
        raise Fault("too_long", f"is longer than {QUERY_VALUE_LENGTH_MAX} characters")
    return value


# The request -----------------------------------------------------------------------------------------------------


class ApiRequest(Request):
    """A request to an operation of the API."""

    received: RequestBody | None = None
    """The body, once it was read."""

    async def receive_body(self) -> RequestBody:
        """Return the body, which is read once. An unreadable body carries its refusal."""
        if self.received is None:
            read = await read_body(self.scope, self.receive)
            data, refusal = (b"", read) if isinstance(read, BookingError) else (read, None)
            self.received = RequestBody(data, self.scope["headers"], refusal)
        return self.received
