"""Whether and when a request is sent again. The table, and the arithmetic beside it; nothing here waits."""

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
"""Whoever is told to wait longer decides for themselves: the error says how long."""

_RETRY_AFTER_CAP_S = 365 * 86_400.0
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_DOUBLINGS_MAX = 16
"""More of them than it takes to reach the bound, and few enough for a float."""


class Repeat(Enum):
    """What sending a request twice would do."""

    SAFE = auto()
    """Nothing: it reads, or leads to the same state."""
    KEYED = auto()
    """Nothing: its Idempotency-Key makes the second one an answer from memory."""
    ONCE = auto()
    """It might do twice what it does."""


class Situation(Enum):
    """How an attempt ended, as far as a retry is concerned."""

    NOT_SENT = auto()
    UNANSWERED = auto()
    TROUBLED = auto()
    LIMITED = auto()
    IN_PROGRESS = auto()
    REFUSED = auto()


RETRIED: Mapping[Situation, frozenset[Repeat]] = {
    Situation.NOT_SENT: frozenset(Repeat),
    Situation.UNANSWERED: frozenset({Repeat.SAFE, Repeat.KEYED}),
    Situation.TROUBLED: frozenset({Repeat.SAFE, Repeat.KEYED}),
    Situation.LIMITED: frozenset(Repeat),
    Situation.IN_PROGRESS: frozenset({Repeat.KEYED}),
    Situation.REFUSED: frozenset(),
}

_TROUBLED = frozenset({408, 500, 502, 503, 504})

UNSETTLING = frozenset({Situation.UNANSWERED, Situation.TROUBLED, Situation.IN_PROGRESS})
"""After these a change may have been made, although nobody said so."""

_SETTLING = {
    404: frozenset({"not_found"}),
    409: frozenset({"conflict", "insufficient_capacity"}),
    422: frozenset({"validation_failed", "idempotency_key_reused"}),
}
"""Refusals that the service reaches by carrying the request out, or by looking at its key: they say what became of it.
A proxy in front of the service answers with the same statuses and says nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt without an answer."""

    sent: bool
    """False only when nothing of the request can have reached the service."""
    timed_out: bool
    reason: str


Outcome = Response | Failure


def situation(outcome: Outcome, code: str | None) -> Situation:
    """How an attempt that was no success ended."""
    if isinstance(outcome, Failure):
        return Situation.UNANSWERED if outcome.sent else Situation.NOT_SENT
    if outcome.status_code == 429:
        return Situation.LIMITED
    if outcome.status_code == 409 and code == "idempotency_in_progress":
        return Situation.IN_PROGRESS
    return Situation.TROUBLED if outcome.status_code in _TROUBLED else Situation.REFUSED


def is_settling(status_code: int, code: str | None) -> bool:
    """Return whether an answer says what became of the request's key: the service stores its status and code."""
    return code in _SETTLING.get(status_code, ())


def maybe_executed(repeat: Repeat, outcome: Outcome, code: str | None, ended: Situation, before: bool) -> bool:
    """Whether a change may have been made, after an attempt that was no success.

    `before`: whether it may have been made by the attempts before. A refusal that the service stores for a key says
    what became of all of them; one that it answers in front of the key, such as 401, or that something else answers in
    front of it, says nothing of the others.
    """
    if isinstance(outcome, Response):
        if repeat is Repeat.KEYED and ended is Situation.REFUSED and is_settling(outcome.status_code, code):
            return False
        if outcome.status_code >= 500:
            return True
    return before or ended in UNSETTLING


def backoff_s(retries: int, random: float) -> float:
    """Full jitter: anything from nothing to a bound that doubles. `random` is from 0 to 1."""
    return random * min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(retries, _DOUBLINGS_MAX))


def retry_after_s(response: Response, wall_s: float) -> float | None:
    """Return the seconds that the answer asks to wait, given as seconds or as a date; None when it names none legibly.

    A date is compared with the answer's own, so that it does not matter what the clock of this machine shows. Of
    several the longest holds, and more than a year is a year.
    """
    headers = response.headers
    now = _date_s(headers.get("date", ""))
    values = [value.strip() for name, value in response.header_lines if name == "retry-after"]
    asked = [_wait_s(value, wall_s if now is None else now) for value in values]
    return max((seconds for seconds in asked if seconds is not None), default=None)


def _wait_s(value: str, now_s: float) -> float | None:
    if _SECONDS.fullmatch(value):
        return min(float(value), _RETRY_AFTER_CAP_S)
    if value.count(",") and all(_SECONDS.fullmatch(part.strip()) for part in value.split(",")):
        # Two headers, joined on the way here.
        return min(max(map(float, value.split(","))), _RETRY_AFTER_CAP_S)
    until = _date_s(value)
    return None if until is None else min(max(0.0, until - now_s), _RETRY_AFTER_CAP_S)


def _date_s(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
