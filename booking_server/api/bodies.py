"""Request bodies: JSON, in UTF-8, uncompressed, and exactly of the shape that the wire says."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from booking_core.errors import Malformed, UnsupportedMediaType
from booking_core.models.base import Request
from booking_core.models.errors import ErrorDetail

RequestT = TypeVar("RequestT", bound=Request)

_JSON = re.compile(rb"application/(?:[a-z0-9.+-]+\+)?json\s*(?:;\s*charset\s*=\s*\"?utf-?8\"?\s*)?;?", re.IGNORECASE)
_DETAILS_MAX = 20


def parse(data: bytes, headers: Iterable[tuple[bytes, bytes]], *, optional: bool) -> Any:
    """The body's JSON value; an empty object for an empty body where that is allowed.

    Of a key that stands twice in one object the last one counts.

    Raises:
        UnsupportedMediaType: it is not said to be JSON in UTF-8.
        Malformed: it is no JSON object.
    """
    if not data:
        if optional:
            return {}
        raise Malformed("The body is empty.")
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise UnsupportedMediaType
    if not _JSON.fullmatch(b"".join(value for name, value in headers if name == b"content-type").strip()):
        raise UnsupportedMediaType
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise Malformed("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise Malformed("The body must be a JSON object.")
    return value


def validate(model: type[RequestT], data: bytes) -> RequestT:
    """The body as its wire model.

    Raises:
        Malformed: with a detail for each field that is wrong; what was sent is not repeated.
    """
    try:
        return model.model_validate_json(data or b"{}")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)[:_DETAILS_MAX]
        details = [_detail(problem) for problem in problems]
        message = f"{details[0].field}: {details[0].message}" if details[0].field else details[0].message
        raise Malformed(message, details=details) from None


def _detail(problem: Any) -> ErrorDetail:
    path = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    return ErrorDetail(field=path or None, reason=problem["type"], message=message)
