"""Decides the steps of one call: requests, retry delays, the result and the error. Nothing in this module does I/O.

The flow is a generator. It yields `Send` and receives the result of the attempt; it yields `Sleep` and continues after
the delay. The async and the sync client both run it, so they cannot differ in anything it decides.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from booking_sdk import _retries
from booking_sdk._body import ACCEPTED_ENCODING
from booking_sdk._clock import ClientClock
from booking_sdk._config import Config, validated_api_key
from booking_sdk._parse import InvalidBody, Parse
from booking_sdk._retries import AttemptResult, Failure
from booking_sdk.errors import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    ConfigurationError,
    Interruption,
    ResponseTooLargeError,
    ResponseValidationError,
    attach_interruption,
    error_class,
    error_code,
)
from booking_sdk.options import Attempt, RetryDecision, Sending
from booking_sdk.request import RequestSpec
from booking_sdk.response import APIResponse, Response, ResponseMeta

T = TypeVar("T")

log = logging.getLogger("booking_sdk")


@dataclass(slots=True)
class CallProgress:
    """The progress of an attempt, recorded by the transport in case another exception ends it."""

    sent: bool = True
    """False only when no part of the request can have reached the service."""


@dataclass(frozen=True, slots=True)
class Send:
    """The instruction to send one attempt."""

    method: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes | None = field(repr=False)
    connect_s: float
    total_s: float
    max_response_bytes: int
    progress: CallProgress = field(default_factory=CallProgress, compare=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    """The instruction to wait before the next attempt."""

    seconds: float


Steps = Generator[Send | Sleep, AttemptResult | None, T]


def flow(spec: RequestSpec, parse: Parse[T], config: Config, clock: ClientClock) -> Steps[T]:
    """Yield the steps of one call and return its result.

    An exception that interrupts a step, such as a cancellation, is thrown into the generator. It is raised again with
    the call's details attached; see `errors.interruption`.

    Raises:
        APIError: The call returned no result.
        ConfigurationError: No attempt could be sent.
    """
    return _Flow(spec, parse, config.for_call(spec.options), clock).steps()


class _Flow(Generic[T]):
    """The state of one call between its attempts."""

    def __init__(self, spec: RequestSpec, parse: Parse[T], config: Config, clock: ClientClock) -> None:
        self.spec = spec
        self.parse = parse
        self.config = config
        self.clock = clock
        self.started_at = clock.monotonic()
        self.number = 0
        self.maybe_executed = False
        self.last_error: APIConnectionError | APIStatusError | None = None
        """The error of the attempt before, during a retry."""

    def steps(self) -> Steps[T]:
        try:
            return (yield from self._attempts())
        except (APIError, GeneratorExit):
            raise
        except ConfigurationError as error:
            if self.last_error is None or not self.last_error.maybe_executed:
                raise
            # The client was closed during the delay, or its key has become invalid. A ConfigurationError would say
            # that nothing was sent, although an attempt before was.
            raise self.last_error from error
        except BaseException as error:
            attach_interruption(error, self._interruption())
            raise

    def _attempts(self) -> Steps[T]:
        while True:
            self.number += 1
            sending = Sending(self.spec.method, self.spec.path, self.number, self.spec.key)
            log.debug("%s: attempt %d", self._label(), self.number)
            self._call_hook(self.config.hooks.on_send, sending)
            result = yield from self._send_attempt()
            if isinstance(result, Response):
                meta = self._meta(result)
                log.debug(
                    "%s: %d after %.3f s, request %s",
                    self._label(),
                    meta.status_code,
                    self._elapsed_s(),
                    meta.request_id,
                )
                self._call_hook(self.config.hooks.on_response, sending, meta)
                if result.is_success or self._is_already_deleted(result) or self._is_unchanged(result):
                    return self._value(result, meta)
            attempt = self._failed_attempt(result, error_code(result) if isinstance(result, Response) else None)
            if attempt.wait is None:
                raise attempt.error
            self.last_error = attempt.error
            log.info(
                "%s: attempt %d failed (%s), next in %.2f s", self._label(), self.number, attempt.error, attempt.wait
            )
            self._call_hook(self.config.hooks.on_retry, attempt)
            yield Sleep(attempt.wait)

    def _send_attempt(self) -> Generator[Send | Sleep, AttemptResult | None, AttemptResult]:
        send = self._send()
        try:
            result = yield send
        except BaseException:
            self.maybe_executed |= send.progress.sent and self.spec.method != "GET"
            raise
        assert result is not None, "a Send receives the result of its attempt"
        return result

    def _interruption(self) -> Interruption:
        return Interruption(self.spec.method, self.spec.path, self.spec.key, self.maybe_executed, self.number)

    def _call_hook(self, hook: Callable[..., None] | None, *arguments: object) -> None:
        """Call a hook and log its exceptions: a broken hook must not fail the call."""
        if hook is None:
            return
        try:
            hook(*arguments)
        except Exception:
            log.exception("%s: a hook failed", self._label())

    # The request -----------------------------------------------------------------------------------------------------

    def _send(self) -> Send:
        timeout, remaining = self.config.timeout, self._remaining_s()
        total = timeout.total if remaining is None else min(timeout.total, remaining)
        return Send(
            self.spec.method,
            self.config.base_url + self.spec.target,
            self._headers(),
            self.spec.body,
            min(timeout.connect, total),
            total,
            self.config.max_response_bytes,
        )

    def _headers(self) -> tuple[tuple[str, str], ...]:
        headers = [
            ("accept", "application/json"),
            ("accept-encoding", ACCEPTED_ENCODING),
            ("user-agent", self.config.user_agent),
            *self.config.default_headers,
            # Read for every attempt: the key may have been rotated in between.
            ("authorization", f"Bearer {validated_api_key(self.config.api_key())}"),
        ]
        if self.spec.body is not None:
            headers.append(("content-type", "application/json"))
        if self.spec.key is not None:
            headers.append(("idempotency-key", self.spec.key))
        return tuple(dict(headers).items())

    def _remaining_s(self) -> float | None:
        """Return the seconds until the deadline, always above 0: no attempt begins after the deadline."""
        if self.config.deadline is None:
            return None
        return max(0.001, self.config.deadline - self._elapsed_s())

    def _elapsed_s(self) -> float:
        return self.clock.monotonic() - self.started_at

    # The result ------------------------------------------------------------------------------------------------------

    def _meta(self, response: Response) -> ResponseMeta:
        return ResponseMeta(response, idempotency_key=self.spec.key, attempts=self.number, elapsed_s=self._elapsed_s())

    def _is_already_deleted(self, response: Response) -> bool:
        """Return True for a 404 to a DELETE after an attempt without response, which may have deleted the resource."""
        if self.spec.method != "DELETE" or not self.maybe_executed:
            return False
        return response.status_code == 404 and _retries.is_conclusive(response.status_code, error_code(response))

    def _is_unchanged(self, response: Response) -> bool:
        """Return True for a 304 to a condition of the caller, who gets the response unchanged."""
        has_condition = "if-none-match" in dict(self.config.default_headers)
        return response.status_code == 304 and has_condition and self.spec.is_raw

    def _value(self, response: Response, meta: ResponseMeta) -> T:
        if response.is_too_large:
            problem = f"is larger than the {self.config.max_response_bytes} bytes of max_response_bytes"
            raise self._invalid(ResponseTooLargeError, response, meta, None, problem)
        if self.spec.is_raw:
            return APIResponse(response, meta, lambda: self._parsed(response, meta))  # type: ignore[return-value]
        return self._parsed(response, meta)

    def _parsed(self, response: Response, meta: ResponseMeta) -> T:
        try:
            return self.parse(response, meta)
        except InvalidBody as invalid:
            where, problem = invalid.field_path, invalid.problem
        raise self._invalid(ResponseValidationError, response, meta, where, problem)

    def _invalid(
        self,
        kind: type[ResponseValidationError],
        response: Response,
        meta: ResponseMeta,
        field_path: str | None,
        problem: str,
    ) -> ResponseValidationError:
        request = f" (request {meta.request_id})" if meta.request_id else ""
        return kind(
            f"{self._label()}: the response {response.status_code} cannot be parsed:"
            f" {field_path or 'the body'} {problem}{request}",
            response=response,
            field_path=field_path,
            idempotency_key=self.spec.key,
            maybe_executed=self.spec.method != "GET",
            attempts=self.number,
        )

    # Errors and retries --------------------------------------------------------------------------------------------

    def _error(self, result: AttemptResult, code: str | None) -> APIConnectionError | APIStatusError:
        kind = _retries.failure_kind(result, code)
        if self.spec.method != "GET":
            self.maybe_executed = _retries.maybe_executed(
                self.spec.retry_safety, result, code, kind, self.maybe_executed
            )
        if isinstance(result, Response):
            return error_class(result.status_code, code)(
                result,
                retry_after=_retries.retry_after_s(result, self.clock.wall()),
                idempotency_key=self.spec.key,
                maybe_executed=self.maybe_executed,
                attempts=self.number,
            )
        connection_error = APITimeoutError if result.timed_out else APIConnectionError
        return connection_error(
            self._message(result),
            idempotency_key=self.spec.key,
            maybe_executed=self.maybe_executed,
            attempts=self.number,
        )

    def _message(self, failure: Failure) -> str:
        message = f"{self._label()} at {_address(self.config.base_url)}{failure.via}: {failure.reason}"
        if not self.maybe_executed:
            return message
        if self.spec.key is None:
            return f"{message}; it may have been carried out"
        return (
            f"{message}; it may have been carried out, which the same call with the same key settles: {self.spec.key}"
        )

    def _label(self) -> str:
        return f"{self.spec.method} {self.spec.path}"

    def _failed_attempt(self, result: AttemptResult, code: str | None) -> Attempt:
        """Return the failed attempt with its error, and with the delay before the next attempt if there is one."""
        error = self._error(result, code)
        delay = self._retry_delay_s(result, code, error)
        attempt = Attempt(self.spec.method, self.spec.path, self.number, error, self._elapsed_s(), delay)
        if self.config.retry and self.number <= self.config.max_retries:
            attempt = replace(attempt, wait=self._custom_delay_s(self.config.retry, attempt))
        if attempt.wait is not None and not self._is_before_deadline(attempt.wait):
            attempt = replace(attempt, wait=None)
        return attempt

    def _retry_delay_s(
        self, result: AttemptResult, code: str | None, error: APIConnectionError | APIStatusError
    ) -> float | None:
        """Return the delay before the next attempt, by `_retries.RETRYABLE`; None when there is none."""
        is_retryable = self.spec.retry_safety in _retries.RETRYABLE[_retries.failure_kind(result, code)]
        if not is_retryable or self.number > self.config.max_retries:
            return None
        retry_after = error.retry_after if isinstance(error, APIStatusError) else None
        if retry_after is None:
            return _retries.backoff_s(self.number - 1, self.clock.random())
        return retry_after if retry_after <= _retries.RETRY_AFTER_MAX_S else None

    def _is_before_deadline(self, delay_s: float) -> bool:
        """Return True when the delay ends before the deadline."""
        return self.config.deadline is None or self._elapsed_s() + delay_s < self.config.deadline

    def _custom_delay_s(self, decide: RetryDecision, attempt: Attempt) -> float | None:
        """Return the delay of the caller's `retry` function; the SDK's own when the function raises."""
        try:
            return decide(attempt)
        except Exception:
            log.exception("%s: the retry decision failed", self._label())
            return attempt.wait


def _address(base_url: str) -> str:
    """Return the host and the port of a base URL."""
    url = urlsplit(base_url)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"
