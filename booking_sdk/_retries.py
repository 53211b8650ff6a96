"""Whether and when a request is sent again. The table, and the arithmetic beside it; nothing here waits."""

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

_DIGITS_MAX = 12
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

_SETTLING = frozenset({404, 409, 422})
"""These are reached by carrying the request out, or replayed: they say what became of its key."""


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


def maybe_executed(repeat: Repeat, outcome: Outcome, ended: Situation, before: bool) -> bool:
    """Whether a change may have been made, after an attempt that was no success.

    `before`: whether it may have been made by the attempts before. A refusal that the service stores for a key says
    what became of all of them; one that it answers in front of the key, such as 401, says nothing of the others.
    """
    if isinstance(outcome, Response):
        if repeat is Repeat.KEYED and ended is Situation.REFUSED and outcome.status_code in _SETTLING:
            return False
        if outcome.status_code >= 500:
            return True
    return before or ended in UNSETTLING


def backoff_s(retries: int, random: float) -> float:
    """Full jitter: anything from nothing to a bound that doubles. `random` is from 0 to 1."""
    return random * min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(retries, _DOUBLINGS_MAX))


def retry_after_s(response: Response, wall_s: float) -> float | None:
    """What the answer asks to wait, as seconds or as a date; none when it does not, or not legibly.

    A date is compared with the answer's own, so that it does not matter what the clock of this machine shows.
    """
    headers = response.headers
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
        return float(value)
    until = _date_s(value)
    if until is None:
        return None
    now = _date_s(headers.get("date", ""))
    return max(0.0, until - (wall_s if now is None else now))


def _date_s(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
