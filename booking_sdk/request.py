"""Builds requests: path, query and body are checked and encoded once, for all attempts and pages."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from booking_core.models.limits import WINDOW_DAYS_MAX
from booking_sdk._retries import RetrySafety
from booking_sdk.idempotency import checked_key, new_key
from booking_sdk.options import RequestOptions

_PREFIX = "/api/v1"
_OPTIONS = RequestOptions.__annotations__.keys()
_OWN_HEADERS = {"authorization": "api_key", "idempotency-key": "idempotency_key"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
"""RFC 9110, section 5: a name is a token, and a value has no white space at its ends."""

RAW = "\x00raw"
"""The internal option that makes a call return an `APIResponse`."""


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET
"""Leaves a field unchanged, where None would clear it."""


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """A request. The next page is the same request with another cursor; the next attempt is the same request."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)
    key: str | None = None
    retry_safety: RetrySafety = RetrySafety.SAFE
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def target(self) -> str:
        """Return path and query for the request line."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}" if self.query else self.path

    @property
    def is_raw(self) -> bool:
        """Return True when the call returns an `APIResponse`."""
        return RAW in self.options

    def without_raw(self) -> "RequestSpec":
        """Return the same request for a call that returns a parsed result."""
        return replace(self, options={name: value for name, value in self.options.items() if name != RAW})

    def query_parameter(self, name: str) -> str | None:
        """Return the value of a query parameter; None without one."""
        return dict(self.query).get(name)

    def with_query(self, **changed: str) -> "RequestSpec":
        """Return the same request with changed query parameters."""
        unchanged = tuple(pair for pair in self.query if pair[0] not in changed)
        return replace(self, query=(*unchanged, *changed.items()))


def get(*segments: str, query: Mapping[str, Any] | None = None, options: RequestOptions | None = None) -> RequestSpec:
    """Build a GET request."""
    checked = _checked(options)
    pairs = {**{name: query_value(name, value) for name, value in (query or {}).items() if value is not None}}
    pairs |= checked.get("query", {})
    return RequestSpec("GET", path(*segments), tuple(pairs.items()), options=checked)


def post_with_key(
    *segments: str, body: Mapping[str, Any], key: str | None, options: RequestOptions | None = None
) -> RequestSpec:
    """Build a POST with an Idempotency-Key, which the service executes once for its key."""
    key = new_key() if key is None else checked_key(key)
    return _build("POST", path(*segments), body, options, key=key, retry_safety=RetrySafety.WITH_KEY)


def post_without_key(
    *segments: str, body: Mapping[str, Any] | None = None, options: RequestOptions | None = None
) -> RequestSpec:
    """Build a POST to an endpoint without Idempotency-Key. It is never retried when it may have been executed."""
    return _build("POST", path(*segments), body, options, retry_safety=RetrySafety.UNSAFE)


def read_with_post(
    *segments: str, body: Mapping[str, Any], key: str | None = None, options: RequestOptions | None = None
) -> RequestSpec:
    """Build a POST that changes nothing and is retried like a GET. `key` is the Idempotency-Key of the order."""
    key = None if key is None else checked_key(key)
    return _build("POST", path(*segments), body, options, key=key, retry_safety=RetrySafety.SAFE)


def one_departure_id(departure_id: str | UUID | None, experience_date_id: str | UUID | None) -> str:
    """Return the id of the departure of a call, which has one of two names.

    Raises:
        TypeError: The call has both names, or neither.
    """
    ids = [one for one in (departure_id, experience_date_id) if one is not None]
    if len(ids) != 1:
        raise TypeError("exactly one of departure_id and experience_date_id is needed: two names of one parameter")
    return str(ids[0])


def basket_fields(
    departure_id: str, guests: Sequence[Any], add_ons: Sequence[Any] | None, hold_id: str | UUID | None
) -> dict[str, Any]:
    """Return the fields of a body that describe a booking."""
    return {
        "departure_id": departure_id,
        "guests": body_lines("guests", guests),
        "add_ons": None if add_ons is None else body_lines("add_ons", add_ons),
        "hold_id": None if hold_id is None else str(hold_id),
    }


def idempotent_change(
    method: str, *segments: str, body: Mapping[str, Any] | None = None, options: RequestOptions | None = None
) -> RequestSpec:
    """Build a PATCH or a DELETE, which lead to the same state however often they are sent."""
    return _build(method, path(*segments), body, options, retry_safety=RetrySafety.SAFE)


def custom_request(
    method: str,
    path: str,
    query: Mapping[str, Any] | None,
    body: object,
    key: str | None,
    options: RequestOptions | None,
) -> RequestSpec:
    """Build a request to any path. A change is retried after an unknown outcome only with a key of the caller's.

    Raises:
        ValueError: The path holds a query, escapes or dot segments, or the key is invalid.
    """
    method = method.upper()
    if not path.startswith("/") or path.startswith("//") or any(c in path for c in "?#\\%") or not path.isprintable():
        raise ValueError("path must begin with one / and hold neither a query nor escapes: pass those as params")
    if any(segment in (".", "..") for segment in path.split("/")):
        raise ValueError("path must not hold . or .. segments")
    is_read = method in ("GET", "HEAD", "OPTIONS")
    key = None if key is None else checked_key(key)
    retry_safety = RetrySafety.SAFE if is_read else RetrySafety.WITH_KEY if key else RetrySafety.UNSAFE
    spec = _build(method, quote(path), body, options, key=key, retry_safety=retry_safety)
    pairs = {name: query_value(name, value) for name, value in (query or {}).items() if value is not None}
    return replace(spec, query=(*pairs.items(), *spec.query))


def _build(
    method: str,
    path: str,
    body: object,
    options: RequestOptions | None,
    *,
    retry_safety: RetrySafety,
    key: str | None = None,
) -> RequestSpec:
    checked = _checked(options)
    query = tuple(checked.get("query", {}).items())
    return RequestSpec(method, path, query, None if body is None else json_body(body), key, retry_safety, checked)


def path(*segments: str) -> str:
    """Return a path below `/api/v1`, with quoted segments."""
    return "/".join((_PREFIX, *(quote(segment, safe="") for segment in segments)))


def path_segment(name: str, value: str | UUID) -> str:
    """Return an id for use in a path.

    Args:
        name: The name of the argument, for error messages.
        value: The id.

    Raises:
        TypeError: The value is neither a str nor a UUID.
        ValueError: The id is empty, or would change the path.
    """
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or a UUID, not {type(value).__name__}")
    # Quoting is not enough: servers and proxies decode a segment before they route it.
    if value in ("", ".", "..") or any(c in value for c in "/\\?#%") or not value.isprintable():
        raise ValueError(f"{name} is not an id")
    return value


def query_value(name: str, value: object) -> str:
    """Return a query parameter as text.

    Raises:
        TypeError: A datetime has no timezone, or the type cannot be a query parameter.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return utc_timestamp(name, value)
    if isinstance(value, (date, str, int, UUID)):
        return value.isoformat() if isinstance(value, date) else str(value)
    raise TypeError(f"{name} cannot be a {type(value).__name__}")


def utc_timestamp(name: str, value: datetime) -> str:
    """Return a datetime in UTC, in ISO 8601.

    Raises:
        TypeError: The value has no timezone, or is not a datetime.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise TypeError(f"{name} has no timezone: which instant it means depends on who reads it")
    return value.astimezone(UTC).isoformat()


def checked_date(name: str, value: date | None) -> date | None:
    """Return a date, which means a day in the organization's timezone.

    Raises:
        TypeError: The value is a datetime, whose day depends on the timezone, or is not a date.
    """
    if value is not None and (isinstance(value, datetime) or not isinstance(value, date)):
        raise TypeError(f"{name} must be a date, not {type(value).__name__}")
    return value


def date_windows(date_from: date, date_to: date) -> list[tuple[date, date]]:
    """Split a range of days into consecutive windows of at most `WINDOW_DAYS_MAX` days, which the API accepts."""
    windows = []
    while date_from <= date_to:
        last = min(date_to, date_from + timedelta(days=WINDOW_DAYS_MAX))
        windows.append((date_from, last))
        date_from = last + timedelta(days=1)
    return windows


def comma_separated(name: str, values: Iterable[str]) -> str | None:
    """Return values as one sorted, comma-separated query parameter; None without values.

    Raises:
        TypeError: A single string was passed.
    """
    if isinstance(values, str):
        raise TypeError(f"{name} must hold several values, such as [{values!r}]")
    return ",".join(sorted({str(value) for value in values})) or None


def body_fields(value: Any) -> Any:
    """Return a model or mapping as a dict for the request body, without fields that are None."""
    fields = value.model_dump() if hasattr(value, "model_dump") else value
    if not isinstance(fields, Mapping):
        raise TypeError(f"expected a mapping or a model, not {type(value).__name__}")
    return {name: field for name, field in fields.items() if field is not None}


def body_lines(name: str, lines: Sequence[Any]) -> list[Any]:
    """Return a list of models or mappings for the request body."""
    if isinstance(lines, (str, bytes, Mapping)):
        raise TypeError(f"{name} must be a list of lines")
    return [body_fields(line) for line in lines]


def without_none(**fields: Any) -> dict[str, Any]:
    """Return the fields whose value is not None."""
    return {name: value for name, value in fields.items() if value is not None}


def json_body(body: object) -> bytes:
    """Encode a body as JSON. All attempts send the same bytes, as the Idempotency-Key requires."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_encodable).encode()


def _encodable(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return utc_timestamp("a datetime in the body", value)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot stand in a body")


def header_pairs(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the caller's headers with names in lower case.

    Raises:
        ValueError: The SDK sets the header itself, or the name or value is invalid.
    """
    for name, value in headers.items():
        if owner := _OWN_HEADERS.get(name.lower()):
            raise ValueError(f"the header {name} is set by {owner}")
        # Checked here: the HTTP client would raise after it began to send, when the outcome is already unknown.
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the header {name!r} cannot be sent")
    return tuple((name.lower(), value) for name, value in headers.items())


def _checked(options: RequestOptions | None) -> Mapping[str, Any]:
    if not options:
        return {}
    if unknown := options.keys() - _OPTIONS - {RAW}:
        raise TypeError(f"unknown options: {', '.join(sorted(map(str, unknown)))}")
    return options


def with_raw_option(keywords: Mapping[str, Any]) -> Any:
    """Add the option to the arguments of a method that makes it return an `APIResponse`."""
    return {**keywords, "options": {**(keywords.get("options") or {}), RAW: True}}
