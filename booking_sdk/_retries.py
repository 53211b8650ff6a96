"""Decides whether and when a failed request is sent again. Nothing in this module waits or does I/O."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, auto

from booking_sdk.response import Response

BACKOFF_S = 0.5
BACKOFF_MAX_S = 8.0

RETRY_AFTER_MAX_S = 60.0
"""A longer Retry-After is not slept: the error is raised, with the delay in `retry_after`."""

_RETRY_AFTER_CAP_S = 365 * 86_400.0
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_DOUBLINGS_MAX = 16
"""More doublings than `BACKOFF_MAX_S` needs, and few enough for a float."""


class RetrySafety(Enum):
    """The effect of sending a request twice."""

    SAFE = auto()
    """No effect: the request reads, or leads to the same state."""
    WITH_KEY = auto()
    """No effect: the Idempotency-Key makes the service replay the stored response."""
    UNSAFE = auto()
    """The change may be made twice."""


class FailureKind(Enum):
    """The kind of failure of an attempt, as far as retries depend on it."""

    NOT_SENT = auto()
    NO_RESPONSE = auto()
    UNAVAILABLE = auto()
    RATE_LIMITED = auto()
    IN_PROGRESS = auto()
    REJECTED = auto()


RETRYABLE: Mapping[FailureKind, frozenset[RetrySafety]] = {
    FailureKind.NOT_SENT: frozenset(RetrySafety),
    FailureKind.NO_RESPONSE: frozenset({RetrySafety.SAFE, RetrySafety.WITH_KEY}),
    FailureKind.UNAVAILABLE: frozenset({RetrySafety.SAFE, RetrySafety.WITH_KEY}),
    FailureKind.RATE_LIMITED: frozenset(RetrySafety),
    FailureKind.IN_PROGRESS: frozenset({RetrySafety.WITH_KEY}),
    FailureKind.REJECTED: frozenset(),
}
"""The requests that are retried after each kind of failure."""

_UNAVAILABLE = frozenset({408, 500, 502, 503, 504})

INCONCLUSIVE = frozenset({FailureKind.NO_RESPONSE, FailureKind.UNAVAILABLE, FailureKind.IN_PROGRESS})
"""The kinds of failure after which a change may have been made."""

_CONCLUSIVE_CODES = {
    404: frozenset({"not_found"}),
    409: frozenset({"conflict", "insufficient_capacity"}),
    422: frozenset({"validation_failed", "idempotency_key_reused"}),
}
"""The error codes that the service answers only after it executed the request or looked up its key. Such a code is
conclusive for the request. A proxy in front of the service answers with the same statuses, but without these codes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that ended without a response."""

    sent: bool
    """False only when no part of the request can have reached the service."""
    timed_out: bool
    reason: str
    via: str = ""
    """The proxy of the request, or a text that there was no proxy."""


AttemptResult = Response | Failure


def failure_kind(result: AttemptResult, code: str | None) -> FailureKind:
    """Classify an attempt that was no success."""
    if isinstance(result, Failure):
        return FailureKind.NO_RESPONSE if result.sent else FailureKind.NOT_SENT
    if result.status_code == 429:
        return FailureKind.RATE_LIMITED
    if result.status_code == 409 and code == "idempotency_in_progress":
        return FailureKind.IN_PROGRESS
    return FailureKind.UNAVAILABLE if result.status_code in _UNAVAILABLE else FailureKind.REJECTED


def is_conclusive(status_code: int, code: str | None) -> bool:
    """Return True for a response that is the final result of the request's key: the service stores it."""
    return code in _CONCLUSIVE_CODES.get(status_code, ())


def maybe_executed(
    retry_safety: RetrySafety, result: AttemptResult, code: str | None, kind: FailureKind, before: bool
) -> bool:
    """Return True when a change may have been made, after an attempt that was no success.

    A rejection that the service stores for a key is the final result of all attempts with this key. A rejection that
    comes before the key is looked up, such as 401 or the response of a proxy, says nothing about earlier attempts.

    Args:
        before: the result of this function for the attempts before.
    """
    if isinstance(result, Response):
        is_stored = retry_safety is RetrySafety.WITH_KEY and kind is FailureKind.REJECTED
        if is_stored and is_conclusive(result.status_code, code):
            return False
        if result.status_code >= 500:
            return True
    return before or kind in INCONCLUSIVE


def backoff_s(retries: int, random: float) -> float:
    """Return the delay before the next attempt in seconds: full jitter below a bound that doubles.

    Args:
        random: a random number from 0 to 1.
    """
    return random * min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(retries, _DOUBLINGS_MAX))


def retry_after_s(response: Response, wall_s: float) -> float | None:
    """Return the delay that the Retry-After header asks for, in seconds; None without a valid header.

    A date is compared with the response's own Date header, so the clock of this machine does not matter. Of several
    headers the longest delay counts, and more than a year counts as a year.
    """
    headers = response.headers
    now = _date_s(headers.get("date", ""))
    values = [value.strip() for name, value in response.header_lines if name == "retry-after"]
    delays = [_delay_s(value, wall_s if now is None else now) for value in values]
    return max((seconds for seconds in delays if seconds is not None), default=None)


def _delay_s(value: str, now_s: float) -> float | None:
    if _SECONDS.fullmatch(value):
        return min(float(value), _RETRY_AFTER_CAP_S)
    if value.count(",") and all(_SECONDS.fullmatch(part.strip()) for part in value.split(",")):
        # Two headers that a proxy joined.
        return min(max(map(float, value.split(","))), _RETRY_AFTER_CAP_S)
    until = _date_s(value)
    return None if until is None else min(max(0.0, until - now_s), _RETRY_AFTER_CAP_S)


def _date_s(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
