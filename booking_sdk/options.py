"""What a caller can set: for a client, for one call, and what they are told while it runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TypedDict

from booking_sdk.errors import APIConnectionError, APIStatusError
from booking_sdk.response import ResponseMeta


@dataclass(frozen=True, slots=True)
class Timeout:
    """How long one attempt may take, in seconds."""

    total: float = 30.0
    """To connect, to send, and to receive; checked whenever something arrives."""
    connect: float = 5.0
    """To connect alone."""

    def __post_init__(self) -> None:
        for name, value in (("total", self.total), ("connect", self.connect)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a number of seconds above 0")


@dataclass(frozen=True, slots=True)
class Sending:
    """A request about to be sent, or just answered."""

    method: str
    path: str
    number: int
    """1 for the first attempt."""
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that failed, and what follows from it."""

    method: str
    path: str
    number: int
    """1 for the first attempt."""
    error: APIConnectionError | APIStatusError
    elapsed_s: float
    """Since the call began."""
    wait: float | None
    """Seconds until the next attempt; none when there is none."""


RetryDecision = Callable[[Attempt], float | None]
"""Asked while `max_retries` and the deadline allow another attempt: gives the seconds to wait, or none to raise.
`attempt.wait` is what the SDK would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Called around each attempt, for logs and metrics. They see no secret and no body; what they raise is logged."""

    on_send: Callable[[Sending], None] | None = None
    on_response: Callable[[Sending, ResponseMeta], None] | None = None
    """Also for answers that are errors."""
    on_retry: Callable[[Attempt], None] | None = None

    def __post_init__(self) -> None:
        for name in ("on_send", "on_response", "on_retry"):
            if iscoroutinefunction(getattr(self, name)):
                raise TypeError(f"{name} is called, not awaited: it must be a plain function")


class RequestOptions(TypedDict, total=False):
    """For one call, instead of the client's own."""

    timeout: float | Timeout
    deadline: float | None
    max_retries: int
    headers: Mapping[str, str]
    """Added to the client's."""
    query: Mapping[str, str]
    """Added to the method's own parameters: for one that the SDK does not know yet."""


class ClientOptions(TypedDict, total=False):
    """What `with_options` can change."""

    api_key: str | Callable[[], str]
    timeout: float | Timeout
    deadline: float | None
    max_retries: int
    retry: RetryDecision | None
    default_headers: Mapping[str, str]
    webhook_secret: str | Sequence[str] | None
    hooks: Hooks | None
