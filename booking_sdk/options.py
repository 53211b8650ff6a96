"""The options of a client and of a call, and the objects that hooks and retry decisions receive."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TypedDict

from booking_sdk.errors import APIConnectionError, APIStatusError
from booking_sdk.response import ResponseMeta


@dataclass(frozen=True, slots=True)
class Timeout:
    """The timeout of one attempt, in seconds.

    client = BookingClient(timeout=Timeout(60, connect=2))
    """

    total: float = 30.0
    """Seconds to connect, send and receive; checked whenever data arrives."""
    connect: float = 5.0
    """Seconds to connect."""

    def __post_init__(self) -> None:
        for name, value in (("total", self.total), ("connect", self.connect)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a number of seconds above 0")


@dataclass(frozen=True, slots=True)
class Sending:
    """An attempt that is about to be sent, or was just answered."""

    method: str
    path: str
    number: int
    """1 for the first attempt."""
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt and the delay before the next one."""

    method: str
    path: str
    number: int
    """1 for the first attempt."""
    error: APIConnectionError | APIStatusError
    elapsed_s: float
    """Seconds since the call began."""
    wait: float | None
    """Seconds until the next attempt; None when there is no next attempt."""


RetryDecision = Callable[[Attempt], float | None]
"""A function that returns the seconds to wait before the next attempt, or None to raise the error.

It is called while `max_retries` and the deadline allow another attempt; `attempt.wait` is the SDK's own decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that are called around each attempt, for logs and metrics.

    They receive no secret and no body. An exception in a hook is logged and does not affect the call.
    """

    on_send: Callable[[Sending], None] | None = None
    on_response: Callable[[Sending, ResponseMeta], None] | None = None
    """Called for error responses too."""
    on_retry: Callable[[Attempt], None] | None = None

    def __post_init__(self) -> None:
        for name in ("on_send", "on_response", "on_retry"):
            if iscoroutinefunction(getattr(self, name)):
                raise TypeError(f"{name} must be a plain function: hooks are not awaited")


class RequestOptions(TypedDict, total=False):
    """The settings of one call, which override the client's settings."""

    timeout: float | Timeout
    deadline: float | None
    max_retries: int
    headers: Mapping[str, str]
    """Headers that are added to the client's headers."""
    query: Mapping[str, str]
    """Query parameters that are added to the method's, for parameters that the SDK does not know yet."""


class ClientOptions(TypedDict, total=False):
    """The settings that `with_options` can change."""

    api_key: str | Callable[[], str]
    timeout: float | Timeout
    deadline: float | None
    max_retries: int
    max_response_bytes: int
    retry: RetryDecision | None
    default_headers: Mapping[str, str]
    webhook_secret: str | Sequence[str] | None
    hooks: Hooks | None
