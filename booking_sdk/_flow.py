"""One call, from the first attempt to its result: what to send, how long to wait, what to raise, what to return.

A generator that does none of it. It yields `Send` and is sent the outcome; it yields `Sleep` and is resumed after it.
The two clients obey it, and differ in nothing else.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from booking_sdk import _retries
from booking_sdk._clock import Clock
from booking_sdk._config import Config, usable_key
from booking_sdk._parse import Parse, Unreadable
from booking_sdk._retries import Failure, Outcome
from booking_sdk.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    ConfigurationError,
    Interruption,
    ResponseValidationError,
    code_of,
    kind_of,
    mark,
)
from booking_sdk.options import Attempt, RetryDecision, Sending
from booking_sdk.request import Spec
from booking_sdk.response import APIResponse, Response, ResponseMeta

T = TypeVar("T")

log = logging.getLogger("booking_sdk")


@dataclass(slots=True)
class Progress:
    """How far an attempt came, told by the transport when it ends with an exception that is no outcome."""

    sent: bool = True
    """False only when nothing of the request can have reached the service."""


@dataclass(frozen=True, slots=True)
class Send:
    """An attempt to be made."""

    method: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes | None = field(repr=False)
    connect_s: float
    total_s: float
    progress: Progress = field(default_factory=Progress, compare=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A wait to be waited."""

    seconds: float


Steps = Generator[Send | Sleep, Outcome | None, T]


def flow(spec: Spec, parse: Parse[T], config: Config, clock: Clock) -> Steps[T]:
    """The steps of one call.

    Whatever stops the call from outside, such as a cancellation, is thrown in; it is raised again with what is known of
    the call.

    Raises:
        APIError: the call did not give its result.
        ConfigurationError: no attempt could be made, or none that mattered.
    """
    return _Flow(spec, parse, config.for_call(spec.options), clock).steps()


class _Flow(Generic[T]):
    """What is remembered between the attempts of one call."""

    def __init__(self, spec: Spec, parse: Parse[T], config: Config, clock: Clock) -> None:
        self.spec = spec
        self.parse = parse
        self.config = config
        self.clock = clock
        self.started_at = clock.monotonic()
        self.number = 0
        self.maybe_executed = False
        self.failed: APIConnectionError | APIStatusError | None = None
        """What the last attempt met, while another one follows."""

    def steps(self) -> Steps[T]:
        try:
            return (yield from self._attempts())
        except (APIError, GeneratorExit):
            raise
        except ConfigurationError as error:
            if self.failed is None or not self.failed.maybe_executed:
                raise
            # The client was closed meanwhile, or its key is gone. Which says that nothing was sent; and it was.
            raise self.failed from error
        except BaseException as error:
            mark(error, self._interruption())
            raise

    def _attempts(self) -> Steps[T]:
        while True:
            self.number += 1
            sending = Sending(self.spec.method, self.spec.path, self.number, self.spec.key)
            self._tell(self.config.hooks.on_send, sending)
            outcome = yield from self._outcome()
            if isinstance(outcome, Response):
                meta = self._meta(outcome)
                self._tell(self.config.hooks.on_response, sending, meta)
                if outcome.is_success or self._is_gone(outcome):
                    return self._result(outcome, meta)
            attempt = self._attempt(outcome, code_of(outcome) if isinstance(outcome, Response) else None)
            if attempt.wait is None:
                raise attempt.error
            self.failed = attempt.error
            log.info(
                "%s: attempt %d failed (%s), next in %.2f s", self._what(), self.number, attempt.error, attempt.wait
            )
            self._tell(self.config.hooks.on_retry, attempt)
            yield Sleep(attempt.wait)

    def _outcome(self) -> Generator[Send | Sleep, Outcome | None, Outcome]:
        """Make one attempt."""
        send = self._send()
        try:
            outcome = yield send
        except BaseException:
            self.maybe_executed |= send.progress.sent and self.spec.method != "GET"
            raise
        assert outcome is not None, "a Send is answered with its outcome"
        return outcome

    def _interruption(self) -> Interruption:
        return Interruption(self.spec.method, self.spec.path, self.spec.key, self.maybe_executed, self.number)

    def _tell(self, hook: Callable[..., None] | None, *told: object) -> None:
        """Call a hook. What it raises is logged: the call and its result are worth more than what watches them."""
        if hook is None:
            return
        try:
            hook(*told)
        except Exception:
            log.exception("%s: a hook failed", self._what())

    # What to send --------------------------------------------------------------------------------------------------

    def _send(self) -> Send:
        timeout, left = self.config.timeout, self._left_s()
        total = timeout.total if left is None else min(timeout.total, left)
        return Send(
            self.spec.method,
            self.config.base_url + self.spec.target,
            self._headers(),
            self.spec.body,
            min(timeout.connect, total),
            total,
        )

    def _headers(self) -> tuple[tuple[str, str], ...]:
        own = [
            ("accept", "application/json"),
            ("user-agent", self.config.user_agent),
            *self.config.headers,
            # Asked for at every attempt: a key that is rotated in between is picked up.
            ("authorization", f"Bearer {usable_key(self.config.api_key())}"),
        ]
        if self.spec.body is not None:
            own.append(("content-type", "application/json"))
        if self.spec.key is not None:
            own.append(("idempotency-key", self.spec.key))
        return tuple(dict(own).items())

    def _left_s(self) -> float | None:
        """What is left of the deadline; never nothing, since no attempt begins after it."""
        if self.config.deadline is None:
            return None
        return max(0.001, self.config.deadline - self._elapsed_s())

    def _elapsed_s(self) -> float:
        return self.clock.monotonic() - self.started_at

    # What to return ------------------------------------------------------------------------------------------------

    def _meta(self, response: Response) -> ResponseMeta:
        return ResponseMeta(response, idempotency_key=self.spec.key, attempts=self.number, elapsed_s=self._elapsed_s())

    def _is_gone(self, response: Response) -> bool:
        """Whether a deletion finds nothing because an attempt before it, which was not answered, deleted it."""
        if self.spec.method != "DELETE" or not self.maybe_executed:
            return False
        return response.status_code == 404 and _retries.is_settling(response.status_code, code_of(response))

    def _result(self, response: Response, meta: ResponseMeta) -> T:
        if self.spec.raw:
            return APIResponse(response, meta, lambda: self._parsed(response, meta))  # type: ignore[return-value]
        return self._parsed(response, meta)

    def _parsed(self, response: Response, meta: ResponseMeta) -> T:
        try:
            return self.parse(response, meta)
        except Unreadable as unreadable:
            where, problem = unreadable.field_path, unreadable.problem
        request = f" (request {meta.request_id})" if meta.request_id else ""
        raise ResponseValidationError(
            f"{self._what()}: the answer {response.status_code} cannot be read at {where or 'its start'}:"
            f" {problem}{request}",
            response=response,
            field_path=where,
            idempotency_key=self.spec.key,
            maybe_executed=self.spec.method != "GET",
            attempts=self.number,
        )

    # What to raise, and when ---------------------------------------------------------------------------------------

    def _error(self, outcome: Outcome, code: str | None) -> APIConnectionError | APIStatusError:
        ended = _retries.situation(outcome, code)
        if self.spec.method != "GET":
            self.maybe_executed = _retries.maybe_executed(self.spec.repeat, outcome, code, ended, self.maybe_executed)
        if isinstance(outcome, Response):
            return kind_of(outcome.status_code, code)(
                outcome,
                retry_after=_retries.retry_after_s(outcome, self.clock.wall()),
                idempotency_key=self.spec.key,
                maybe_executed=self.maybe_executed,
                attempts=self.number,
            )
        kind = APITimeoutError if outcome.timed_out else APIConnectionError
        return kind(
            self._sentence(outcome),
            idempotency_key=self.spec.key,
            maybe_executed=self.maybe_executed,
            attempts=self.number,
        )

    def _sentence(self, failure: Failure) -> str:
        sentence = f"{self._what()}: {failure.reason}"
        if not self.maybe_executed:
            return sentence
        if self.spec.key is None:
            return f"{sentence}; it may have been carried out"
        return (
            f"{sentence}; it may have been carried out, which the same call with the same key settles: {self.spec.key}"
        )

    def _what(self) -> str:
        return f"{self.spec.method} {self.spec.path}"

    def _attempt(self, outcome: Outcome, code: str | None) -> Attempt:
        """The failed attempt, and whether another one follows."""
        error = self._error(outcome, code)
        attempt = Attempt(
            self.spec.method, self.spec.path, self.number, error, self._elapsed_s(), self._wait_s(outcome, code, error)
        )
        if self.config.retry and self.number <= self.config.max_retries:
            attempt = replace(attempt, wait=self._decided(self.config.retry, attempt))
        if attempt.wait is not None and not self._is_in_time(attempt.wait):
            attempt = replace(attempt, wait=None)
        return attempt

    def _wait_s(self, outcome: Outcome, code: str | None, error: APIConnectionError | APIStatusError) -> float | None:
        """What the table says."""
        retried = self.spec.repeat in _retries.RETRIED[_retries.situation(outcome, code)]
        if not retried or self.number > self.config.max_retries:
            return None
        asked = error.retry_after if isinstance(error, APIStatusError) else None
        if asked is None:
            return _retries.backoff_s(self.number - 1, self.clock.random())
        return asked if asked <= _retries.RETRY_AFTER_MAX_S else None

    def _is_in_time(self, wait_s: float) -> bool:
        """Whether the deadline leaves time for more than the wait."""
        return self.config.deadline is None or self._elapsed_s() + wait_s < self.config.deadline

    def _decided(self, decide: RetryDecision, attempt: Attempt) -> float | None:
        """Return what the caller's decision says; what the table says when it fails."""
        try:
            return decide(attempt)
        except Exception:
            log.exception("%s: the retry decision failed", self._what())
            return attempt.wait
