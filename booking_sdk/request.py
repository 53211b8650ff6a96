"""What is asked for, before it is sent: path, query and body, encoded once and the same for every attempt and page."""

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
from booking_sdk._retries import Repeat
from booking_sdk.idempotency import checked_key, new_key
from booking_sdk.options import RequestOptions

_PREFIX = "/api/v1"
_OPTIONS = RequestOptions.__annotations__.keys()
_OWN_HEADERS = {"authorization": "api_key", "idempotency-key": "idempotency_key"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
"""RFC 9110, section 5: a name is a token, and no blank stands at either end of a value."""

RAW = "\x00raw"
"""Among the options of a call: its answer is wanted as it came."""


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET
"""Leaves a field as it is, where None would empty it."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One request. A page after it, or an attempt after it, is the same spec with another cursor."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)
    key: str | None = None
    repeat: Repeat = Repeat.SAFE
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        return f"{self.path}?{urlencode(self.query, quote_via=quote)}" if self.query else self.path

    @property
    def raw(self) -> bool:
        """Whether the answer is wanted as it came."""
        return RAW in self.options

    def without_raw(self) -> "Spec":
        """The same request, whose answer is wanted parsed."""
        return replace(self, options={name: value for name, value in self.options.items() if name != RAW})

    def value(self, name: str) -> str | None:
        """A query parameter."""
        return dict(self.query).get(name)

    def with_query(self, **changed: str) -> "Spec":
        """The same request with these parameters instead of its own."""
        kept = tuple(pair for pair in self.query if pair[0] not in changed)
        return replace(self, query=(*kept, *changed.items()))


def get(*segments: str, query: Mapping[str, Any] | None = None, options: RequestOptions | None = None) -> Spec:
    """A request that reads."""
    checked = _checked(options)
    pairs = {**{name: text(name, value) for name, value in (query or {}).items() if value is not None}}
    pairs |= checked.get("query", {})
    return Spec("GET", path(*segments), tuple(pairs.items()), options=checked)


def keyed(*segments: str, body: Mapping[str, Any], key: str | None, options: RequestOptions | None = None) -> Spec:
    """A change that happens once for its key, however often it is asked for."""
    key = new_key() if key is None else checked_key(key)
    return _change("POST", path(*segments), body, options, key=key, repeat=Repeat.KEYED)


def once(*segments: str, body: Mapping[str, Any] | None = None, options: RequestOptions | None = None) -> Spec:
    """A change that the API takes no key for, so that it is never sent again when it may have happened."""
    return _change("POST", path(*segments), body, options, repeat=Repeat.ONCE)


def absolute(
    method: str, *segments: str, body: Mapping[str, Any] | None = None, options: RequestOptions | None = None
) -> Spec:
    """A change that leads to the same state however often it is made: PATCH with plain values, DELETE."""
    return _change(method, path(*segments), body, options, repeat=Repeat.SAFE)


def anything(
    method: str,
    path: str,
    query: Mapping[str, Any] | None,
    body: object,
    key: str | None,
    options: RequestOptions | None,
) -> Spec:
    """A request to a path that no method stands for. Only a key, given by the caller, makes a change repeatable."""
    method = method.upper()
    if not path.startswith("/") or path.startswith("//") or any(c in path for c in "?#\\%") or not path.isprintable():
        raise ValueError("path must begin with one / and hold neither a query nor escapes: pass those as params")
    if any(segment in (".", "..") for segment in path.split("/")):
        raise ValueError("path must not hold . or .. segments")
    safe = method in ("GET", "HEAD", "OPTIONS")
    key = None if key is None else checked_key(key)
    repeat = Repeat.SAFE if safe else Repeat.KEYED if key else Repeat.ONCE
    spec = _change(method, quote(path), body, options, key=key, repeat=repeat)
    pairs = {name: text(name, value) for name, value in (query or {}).items() if value is not None}
    return replace(spec, query=(*pairs.items(), *spec.query))


def _change(
    method: str,
    path: str,
    body: object,
    options: RequestOptions | None,
    *,
    repeat: Repeat,
    key: str | None = None,
) -> Spec:
    checked = _checked(options)
    query = tuple(checked.get("query", {}).items())
    return Spec(method, path, query, None if body is None else encoded(body), key, repeat, checked)


def path(*segments: str) -> str:
    """The path of these segments below the API's own."""
    return "/".join((_PREFIX, *(quote(segment, safe="") for segment in segments)))


def segment(name: str, value: str | UUID) -> str:
    """An id as one segment of a path.

    Raises:
        ValueError: it is empty, or could lead to another path than the one it stands in.
    """
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str or a UUID, not {type(value).__name__}")
    # Quoting is not enough: servers and proxies decode a segment before they look at it.
    if value in ("", ".", "..") or any(c in value for c in "/\\?#%") or not value.isprintable():
        raise ValueError(f"{name} is not an id")
    return value


def text(name: str, value: object) -> str:
    """A query parameter as the API reads it.

    Raises:
        TypeError: a datetime without a timezone, a datetime where a day is meant, or a type that the API has no
            form for.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return instant(name, value)
    if isinstance(value, (date, str, int, UUID)):
        return value.isoformat() if isinstance(value, date) else str(value)
    raise TypeError(f"{name} cannot be a {type(value).__name__}")


def instant(name: str, value: datetime) -> str:
    """An instant, in UTC.

    Raises:
        TypeError: it has no timezone.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise TypeError(f"{name} has no timezone: which instant it means depends on who reads it")
    return value.astimezone(UTC).isoformat()


def day(name: str, value: date | None) -> date | None:
    """A day of the organization.

    Raises:
        TypeError: it is a datetime, which falls on different days in different places.
    """
    if value is not None and (isinstance(value, datetime) or not isinstance(value, date)):
        raise TypeError(f"{name} must be a date, not {type(value).__name__}")
    return value


def windows(date_from: date, date_to: date) -> list[tuple[date, date]]:
    """Return the days as windows that the API takes, one behind the other."""
    found = []
    while date_from <= date_to:
        last = min(date_to, date_from + timedelta(days=WINDOW_DAYS_MAX))
        found.append((date_from, last))
        date_from = last + timedelta(days=1)
    return found


def joined(name: str, values: Iterable[str]) -> str | None:
    """Several values as one parameter, in an order of their own; none when there are none.

    Raises:
        TypeError: one text was given where several are meant.
    """
    if isinstance(values, str):
        raise TypeError(f"{name} must hold several values, such as [{values!r}]")
    return ",".join(sorted({str(value) for value in values})) or None


def plain(value: Any) -> Any:
    """A part of a body: a wire model as its fields, a mapping as a dict, without what is None."""
    fields = value.model_dump() if hasattr(value, "model_dump") else value
    if not isinstance(fields, Mapping):
        raise TypeError(f"expected a mapping or a model, not {type(value).__name__}")
    return {name: field for name, field in fields.items() if field is not None}


def plain_lines(name: str, lines: Sequence[Any]) -> list[Any]:
    """The lines of a body."""
    if isinstance(lines, (str, bytes, Mapping)):
        raise TypeError(f"{name} must be a list of lines")
    return [plain(line) for line in lines]


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were given a value."""
    return {name: value for name, value in fields.items() if value is not None}


def encoded(body: object) -> bytes:
    """A body as JSON; the same bytes for every attempt, which is what makes them one request."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_encodable).encode()


def _encodable(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return instant("a datetime in the body", value)
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot stand in a body")


def header_pairs(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers of the caller's.

    Raises:
        ValueError: one that the SDK sets itself, or one that cannot be sent.
    """
    for name, value in headers.items():
        if own := _OWN_HEADERS.get(name.lower()):
            raise ValueError(f"the header {name} is set by {own}")
        # What HTTP refuses is refused here: the transport would after it began to send, and then who knows what came.
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the header {name!r} cannot be sent")
    return tuple((name.lower(), value) for name, value in headers.items())


def _checked(options: RequestOptions | None) -> Mapping[str, Any]:
    if not options:
        return {}
    if unknown := options.keys() - _OPTIONS - {RAW}:
        raise TypeError(f"unknown options: {', '.join(sorted(map(str, unknown)))}")
    return options
