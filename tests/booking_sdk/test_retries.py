"""Retries: every cell of the table, the delays and the errors, with respx and a manual clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sdk_support.routed import DROPPED, OK, REFUSED, TIMED_OUT, UNRESOLVED, Answer, answered, play

from booking_sdk import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    Attempt,
    BookingClient,
    ConfigurationError,
    Hooks,
    NotFoundError,
    RateLimitError,
    Sending,
)
from booking_sdk.response import ResponseMeta
from booking_sdk.testing import ManualClock

Call = Callable[[BookingClient], Any]


def requesting(method: str, **options: Any) -> Call:
    return lambda client: client.request(method, "/api/v1/x", cast_to=dict, **options)


GET = requesting("GET")
KEYED = requesting("POST", json={}, idempotency_key="order-0001")
ONCE = requesting("POST", json={})


def delete(client: BookingClient) -> Any:
    return client.webhooks.delete("1")


COLUMNS: dict[str, Call] = {
    "GET": GET,
    "with a key": KEYED,
    "without a key": ONCE,
    "PATCH": lambda client: client.with_raw_response(client.webhooks.update, "1", description="x"),
    "DELETE": delete,
}

BUSY = answered(409, "idempotency_in_progress", retry_after="1")

# The columns that are sent again, and whether a change may have been made if every attempt ends like this.
TABLE: list[tuple[str, Answer, set[str], bool]] = [
    ("not connected", REFUSED, {"GET", "with a key", "without a key", "PATCH", "DELETE"}, False),
    ("name not resolved in time", UNRESOLVED, {"GET", "with a key", "without a key", "PATCH", "DELETE"}, False),
    ("connection broken", DROPPED, {"GET", "with a key", "PATCH", "DELETE"}, True),
    ("no answer in time", TIMED_OUT, {"GET", "with a key", "PATCH", "DELETE"}, True),
    *(
        (str(status), answered(status, code), {"GET", "with a key", "PATCH", "DELETE"}, True)
        for status, code in (
            (408, None),
            (500, "internal_error"),
            (502, None),
            (503, "service_unavailable"),
            (504, None),
        )
    ),
    ("429", answered(429, "rate_limited"), {"GET", "with a key", "without a key", "PATCH", "DELETE"}, False),
    ("409 in progress", BUSY, {"with a key"}, True),
    *(
        (f"{status} {code}", answered(status, code), set(), False)
        for status, code in (
            (400, "validation_failed"),
            (400, "idempotency_key_required"),
            (401, "api_key_revoked"),
            (403, "insufficient_scope"),
            (404, "not_found"),
            (405, "method_not_allowed"),
            (409, "conflict"),
            (409, "insufficient_capacity"),
            (409, "a_code_of_tomorrow"),
            (413, "payload_too_large"),
            (422, "validation_failed"),
            (422, "idempotency_key_reused"),
            (301, None),
        )
    ),
    ("501", answered(501, None), set(), True),
]
CELLS = [
    pytest.param(outcome, column, column in retried, unsure and column != "GET", id=f"{row}, {column}")
    for row, outcome, retried, unsure in TABLE
    for column in COLUMNS
]


@pytest.mark.parametrize(("outcome", "column", "is_retried", "maybe_executed"), CELLS)
def test_each_cell_of_the_table(outcome: Answer, column: str, is_retried: bool, maybe_executed: bool) -> None:
    played = play(COLUMNS[column], [outcome])
    key = "order-0001" if column == "with a key" else None
    assert len(played.sent) == (3 if is_retried else 1)
    assert len(played.slept) == len(played.sent) - 1
    assert played.keys == {key}
    assert len({request.content for request in played.sent}) == 1
    error = played.failure
    assert isinstance(error, APITimeoutError) == (outcome in (UNRESOLVED, TIMED_OUT))
    assert (error.attempts, error.idempotency_key, error.maybe_executed) == (len(played.sent), key, maybe_executed)
    played = play(COLUMNS[column], [outcome, httpx.Response(204) if column == "DELETE" else OK])
    assert (played.error is None) == is_retried
    if not is_retried or column == "DELETE":
        assert played.result is None
    elif column == "PATCH":
        assert played.result.body == OK.content
    else:
        assert played.result == {"fine": True}


# Whether a change may have been made, when attempts end differently


def described(outcome: Any) -> str | None:
    """Return a short name of an outcome, or of several."""
    if isinstance(outcome, list):
        return ", ".join(map(str, map(described, outcome)))
    if isinstance(outcome, httpx.Response):
        return f"{outcome.status_code} {outcome.json()['code']}"
    return outcome.__name__ if isinstance(outcome, type) else None


@pytest.mark.parametrize(
    ("outcomes", "maybe_executed"),
    [
        ([DROPPED, answered(404, "not_found")], False),  # stored for the key: the first attempt had the same result
        ([DROPPED, answered(409, "insufficient_capacity")], False),
        ([DROPPED, answered(422, "validation_failed")], False),
        # Answered before the key is looked up: it says nothing about the first attempt.
        ([DROPPED, answered(401, "api_key_revoked")], True),
        ([DROPPED, answered(403, "insufficient_scope")], True),
        ([DROPPED, answered(400, "validation_failed")], True),
        ([DROPPED, answered(429, "rate_limited"), answered(429, "rate_limited")], True),
        ([DROPPED, REFUSED, REFUSED], True),
        ([REFUSED, REFUSED, REFUSED], False),
        ([REFUSED, answered(429, "rate_limited"), REFUSED], False),
        ([answered(500, "internal_error"), answered(404, "not_found")], False),
    ],
    ids=described,
)
def test_an_unknown_outcome_stays_unknown_until_the_key_answers(outcomes: list[Answer], maybe_executed: bool) -> None:
    assert play(KEYED, outcomes).failure.maybe_executed == maybe_executed


def test_a_change_without_a_key_stays_unknown_whatever_is_answered_later() -> None:
    assert play(COLUMNS["PATCH"], [DROPPED, answered(404, "not_found")]).failure.maybe_executed


def test_error_after_an_unknown_outcome_contains_the_key() -> None:
    message = (
        "POST /api/v1/x at api.test:443 without a proxy: the connection broke before the response ended (ReadError);"
        " it may have been carried out"
    )
    keyed, lost = play(KEYED, [DROPPED]).failure, play(ONCE, [DROPPED]).failure
    assert str(keyed) == f"{message}, which the same call with the same key settles: order-0001"
    assert (str(lost), keyed.retryable, lost.retryable) == (message, True, False)


@pytest.mark.parametrize(
    ("outcome", "retryable"),
    [
        (answered(429, "rate_limited"), True),
        (answered(503, "service_unavailable"), True),
        (BUSY, True),
        (answered(409, "conflict"), False),
        (answered(422, "validation_failed"), False),
        (answered(401, "api_key_invalid"), False),
    ],
    ids=described,
)
def test_retryable_of_each_error(outcome: Answer, retryable: bool) -> None:
    assert play(KEYED, [outcome], max_retries=0).failure.retryable == retryable


def test_a_deletion_that_was_done_but_not_answered_is_done() -> None:
    assert play(delete, [DROPPED, answered(404, "not_found")]).error is None
    assert isinstance(play(delete, [answered(404, "not_found")]).error, NotFoundError)
    assert isinstance(play(delete, [REFUSED, answered(404, "not_found")]).error, NotFoundError)


def test_custom_requests_are_retried_only_when_safe() -> None:
    sent = [len(play(call, [DROPPED]).sent) for call in (ONCE, KEYED, GET, requesting("DELETE"))]
    assert sent == [1, 3, 3, 1]


# How long


class Chance(ManualClock):
    """A clock with a constant random number."""

    def __init__(self, value: float) -> None:
        super().__init__(datetime(2026, 11, 21, 12, tzinfo=UTC))
        self.value = value

    def random(self) -> float:
        return self.value


def test_waits_are_anything_up_to_a_bound_that_doubles_to_eight_seconds() -> None:
    assert play(GET, [DROPPED], clock=Chance(1.0), max_retries=7).slept == [0.5, 1, 2, 4, 8, 8, 8]
    assert play(GET, [DROPPED], clock=Chance(0.0), max_retries=3).slept == [0, 0, 0]
    assert play(GET, [DROPPED], clock=Chance(0.25), max_retries=2).slept == [0.125, 0.25]
    assert max(play(GET, [DROPPED], clock=Chance(1.0), max_retries=1100).slept) == 8


RETRY_AFTER: dict[float, tuple[str, ...]] = {
    7.0: ("7",),
    0.0: ("0", "Sat, 21 Nov 2026 11:00:00 GMT"),
    60.0: ("60",),
    9.0: (
        *("Sat, 21 Nov 2026 12:00:09 GMT", "Saturday, 21-Nov-26 12:00:09 GMT", "Sat Nov 21 12:00:09 2026"),
        *("Sat, 21 Nov 2026 14:00:09 +0200", "7, 9"),
    ),
    0.75: ("0.75",),
    0.25: ("soon", "-3", "1e9", "7,soon", ".5", "nan", "٧", "Sat, 99 Nov 2026 12:00:09 GMT", ""),
}
"""The headers by the wait that follows; 0.25 s is the wait without one."""


@pytest.mark.parametrize("status", [429, 503, 409])
@pytest.mark.parametrize(
    ("headers", "slept"),
    [
        *(({"retry_after": text}, slept) for slept, texts in RETRY_AFTER.items() for text in texts),
        # The clocks of the two machines may differ.
        ({"retry_after": "Mon, 01 Jan 2029 00:00:05 GMT", "date": "Mon, 01 Jan 2029 00:00:00 GMT"}, 5.0),
        ({}, 0.25),
    ],
)
def test_retry_after_is_waited(status: int, headers: dict[str, str], slept: float) -> None:
    code = "idempotency_in_progress" if status == 409 else None
    assert play(KEYED, [answered(status, code, **headers), OK], clock=Chance(0.5)).slept == [slept]


YEAR = 365 * 86_400.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("61", 61.0),
        ("60.5", 60.5),
        ("3600", 3600.0),
        ("Sat, 21 Nov 2026 12:02:00 GMT", 120.0),
        ("1" + "0" * 300, YEAR),
        ("9" * 5000, YEAR),
        ("Fri, 31 Dec 9999 23:59:59 GMT", YEAR),
    ],
)
def test_a_wait_of_more_than_a_minute_is_the_callers_to_decide(value: str, seconds: float) -> None:
    played = play(GET, [answered(429, "rate_limited", retry_after=value)], clock=Chance(0.5))
    assert isinstance(played.error, RateLimitError)
    assert played.error.retry_after == seconds
    assert len(played.sent) == 1


# The deadline


def test_a_deadline_ends_the_retries_before_a_wait_that_would_pass_it() -> None:
    played = play(GET, [DROPPED], clock=Chance(1.0), took_s=2, deadline=7, max_retries=9)
    assert played.slept == [0.5, 1]  # 2 + .5 + 2 + 1 = 5.5, then an attempt to 7, cut short
    assert [total for total, _ in played.timeouts] == [7, 4.5, 1.5]
    assert played.failure.attempts == 3
    played = play(GET, [answered(429, "rate_limited", retry_after="20")], deadline=10)
    assert played.slept == []
    assert isinstance(played.error, RateLimitError)


def test_a_deadline_shortens_what_an_attempt_may_take() -> None:
    assert play(GET, [OK], deadline=3).timeouts == [(3, 3)]
    assert play(GET, [OK], deadline=300).timeouts == [(30, 5)]


def test_max_retries_limits_the_attempts() -> None:
    assert [len(play(GET, [DROPPED], max_retries=most).sent) for most in (0, 5)] == [1, 6]


def test_options_of_one_call() -> None:
    played = play(requesting("GET", options={"max_retries": 0, "timeout": 2.0, "headers": {"X-Trace": "1"}}), [DROPPED])
    assert played.timeouts == [(2, 2)]
    assert played.sent[0].headers["x-trace"] == "1"
    short, none = requesting("GET", options={"deadline": 0.1}), requesting("GET", options={"deadline": None})
    assert len(play(short, [DROPPED], deadline=60, took_s=1).sent) == 1
    assert len(play(none, [DROPPED], deadline=0.1, took_s=1).sent) == 3


# The caller's retry function, and hooks


def test_a_decision_of_the_callers_takes_the_place_of_the_table() -> None:
    attempts: list[Attempt] = []

    def decide(attempt: Attempt) -> float | None:
        attempts.append(attempt)
        return 3.0 if attempt.number == 1 else None

    played = play(KEYED, [answered(409, "conflict")], retry=decide, max_retries=5)
    assert played.slept == [3.0]
    assert [(one.number, one.wait, one.path) for one in attempts] == [(1, None, "/api/v1/x"), (2, None, "/api/v1/x")]
    assert isinstance(attempts[0].error, APIStatusError)
    assert play(GET, [DROPPED], retry=lambda attempt: attempt.wait, clock=Chance(1.0)).slept == [0.5, 1]


def test_a_decision_cannot_go_beyond_max_retries_or_the_deadline() -> None:
    assert len(play(GET, [DROPPED], retry=lambda _: 0.0, max_retries=3).sent) == 4
    assert play(GET, [DROPPED], retry=lambda _: 60.0, deadline=30).slept == []


def test_hooks_see_each_attempt_and_no_secret() -> None:
    calls: list[str] = []

    def on_response(sending: Sending, meta: ResponseMeta) -> None:
        calls.append(f"{sending.number} answered {meta.status_code}")

    hooks = Hooks(
        on_send=lambda sending: calls.append(f"{sending.number} sends {sending.method} {sending.idempotency_key}"),
        on_response=on_response,
        on_retry=lambda attempt: calls.append(f"{attempt.number} waits {attempt.wait}"),
    )
    play(KEYED, [DROPPED, answered(500, "internal_error"), OK], hooks=hooks, clock=Chance(1.0))
    assert calls == [
        "1 sends POST order-0001",
        "1 waits 0.5",
        "2 sends POST order-0001",
        "2 answered 500",
        "2 waits 1.0",
        "3 sends POST order-0001",
        "3 answered 200",
    ]


# The key of the service


def test_a_key_that_changes_between_attempts_is_picked_up() -> None:
    keys = iter(["svc_old", "svc_new"])
    played = play(GET, [answered(503, None), OK], api_key=lambda: next(keys))
    assert [request.headers["authorization"] for request in played.sent] == ["Bearer svc_old", "Bearer svc_new"]


def test_a_missing_key_at_a_retry_hides_no_possible_execution() -> None:
    keys = iter(["svc_old"])
    played = play(KEYED, [DROPPED], api_key=lambda: next(keys, ""))
    assert isinstance(played.error, APIConnectionError)
    assert (played.error.maybe_executed, played.error.idempotency_key) == (True, "order-0001")
    keys = iter(["svc_old"])
    with pytest.raises(ConfigurationError):
        play(KEYED, [REFUSED], api_key=lambda: next(keys, ""))
