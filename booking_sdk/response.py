"""What came back: the answer as it is, what its headers say, and both for whoever wants more than the resource."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _decoded(pairs: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in pairs]


class Headers(Mapping[str, str]):
    """The headers of an answer, by name in any case; one that came several times is joined with commas."""

    __slots__ = ("_values",)

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._values: dict[str, str] = {}
        for name, value in _decoded(pairs):
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Headers({', '.join(self._values)})"


class Response:
    """An HTTP answer, whole. Its repr shows neither headers nor body."""

    def __init__(self, status_code: int, raw_headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b"") -> None:
        self.status_code: int = status_code
        self.raw_headers: Sequence[tuple[bytes, bytes]] = raw_headers
        self.body: bytes = body

    @property
    def headers(self) -> Headers:
        """By name, in any case."""
        return Headers(self.raw_headers)

    @property
    def header_lines(self) -> list[tuple[str, str]]:
        """Each line by itself, with the name in lower case."""
        return _decoded(self.raw_headers)

    @property
    def is_success(self) -> bool:
        """Whether the status is of the 200s."""
        return 200 <= self.status_code < 300

    def json_or_text(self) -> Any:
        """The body as JSON; as text when it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return self.body.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<Response {self.status_code}, {len(self.body)} bytes>"


class RateLimit:
    """What the x-ratelimit headers of an answer said."""

    __slots__ = ("limit", "remaining", "reset_at")

    def __init__(self, limit: int, remaining: int, reset_at: datetime) -> None:
        self.limit: int = limit
        self.remaining: int = remaining
        self.reset_at: datetime = reset_at
        """When the full limit is there again."""

    def __repr__(self) -> str:
        return f"RateLimit(limit={self.limit}, remaining={self.remaining}, reset_at={self.reset_at.isoformat()})"


class ResponseMeta:
    """How a result came about: `meta(booking).request_id`."""

    def __init__(self, response: Response, *, idempotency_key: str | None, attempts: int, elapsed_s: float) -> None:
        self.status_code: int = response.status_code
        self._raw_headers = response.raw_headers
        self.idempotency_key: str | None = idempotency_key
        """The key that was sent, made by the SDK unless the caller gave one."""
        self.retries: int = attempts - 1
        """How many attempts came before the one that succeeded."""
        self.elapsed: timedelta = timedelta(seconds=elapsed_s)
        """From the start of the first attempt to the end of the last, waits included."""

    @property
    def headers(self) -> Headers:
        """Of the answer, by name, in any case."""
        return Headers(self._raw_headers)

    @property
    def request_id(self) -> str | None:
        """What to tell the service's support."""
        return self.headers.get("x-request-id")

    @property
    def created(self) -> bool:
        """Whether the answer was 201: a customer that existed already is answered with 200."""
        return self.status_code == 201

    @property
    def idempotent_replayed(self) -> bool:
        """Whether this is the stored answer of an earlier request with the same key."""
        return self.headers.get("idempotent-replayed") == "true"

    @property
    def rate_limit(self) -> RateLimit | None:
        """What is left of the key's rate limit; none when the service has it switched off."""
        headers = self.headers
        try:
            reset_at = datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), UTC)
            return RateLimit(int(headers["x-ratelimit-limit"]), int(headers["x-ratelimit-remaining"]), reset_at)
        except (KeyError, ValueError, OverflowError, OSError):
            return None

    def __repr__(self) -> str:
        return f"<ResponseMeta {self.status_code}, request_id={self.request_id!r}, retries={self.retries}>"


class APIResponse(Generic[T]):
    """An answer before it is parsed, from `client.with_raw_response`."""

    def __init__(self, response: Response, meta: ResponseMeta, parse: Callable[[], T]) -> None:
        self.status_code: int = response.status_code
        self.body: bytes = response.body
        self.meta: ResponseMeta = meta
        self._parse = parse

    @property
    def headers(self) -> Headers:
        """By name, in any case."""
        return self.meta.headers

    def parse(self) -> T:
        """What the method itself would have given.

        Raises:
            ResponseValidationError: the body is not what it should be.
        """
        return self._parse()

    def __repr__(self) -> str:
        return f"<APIResponse {self.status_code}, {len(self.body)} bytes>"


_META = "_booking_sdk_meta"


def attach(result: Any, response_meta: ResponseMeta) -> None:
    """Notes on a result how it came about, beside its fields: they, its JSON and its equality stay as they are."""
    if hasattr(result, "__dict__"):
        result.__dict__[_META] = response_meta


def meta(result: object) -> ResponseMeta:
    """How a result of the SDK came about: status, headers, request id, key, retries.

    The items of a page have none of their own; the page has.

    Raises:
        LookupError: it is no result of a call.
    """
    found = getattr(result, "__dict__", {}).get(_META)
    if not isinstance(found, ResponseMeta):
        raise LookupError(f"this {type(result).__name__} is not itself the result of a call")
    return found
