"""The exceptions of the SDK.

    BookingError
    ├─ ConfigurationError (ValueError)
    ├─ PaginationError
    ├─ EventsLost .after .before .checkpoint
    └─ APIError .idempotency_key .maybe_executed .attempts
       ├─ APIConnectionError
       │  └─ APITimeoutError
       ├─ ResponseValidationError .response .field_path
       │  └─ ResponseTooLargeError
       └─ APIStatusError .status_code .code .message .details .request_id .headers .body .retry_after .retryable
          ├─ BadRequestError 400            ─ IdempotencyKeyRequiredError
          ├─ AuthenticationError 401        ─ ApiKeyMissingError, ApiKeyInvalidError, ApiKeyRevokedError,
          │                                   ApiKeyExpiredError
          ├─ PermissionDeniedError 403      ─ InsufficientScopeError .required_scope, AppNotEnabledError,
          │                                   PlanUpgradeRequiredError
          ├─ NotFoundError 404
          ├─ ConflictError 409              ─ InsufficientCapacityError .seats_available,
          │                                   IdempotencyInProgressError
          ├─ UnprocessableEntityError 422   ─ IdempotencyKeyReusedError
          ├─ RateLimitError 429
          └─ ServerError 5xx

The status selects the class, and the error code a subclass. A code that is newer than this SDK raises the class of its
status and keeps the code. All errors can be pickled, and no message contains a secret or a body. Webhook verification
raises `WebhookVerificationError`, which is not a `BookingError`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from booking_sdk.response import Headers, Response

if TYPE_CHECKING:
    from booking_core.models.errors import ErrorDetail

# A longer text is not an error message of the service, but for example the HTML page of a proxy.
_MESSAGE_LENGTH_MAX = 300


_CREDENTIALS = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/@]*@")


def one_line(text: str) -> str:
    """Return an untrusted text as one short line without control characters, safe for a terminal."""
    line = " ".join(text.split())[:_MESSAGE_LENGTH_MAX]
    return line if line.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class BookingError(Exception):
    """The base class of all exceptions of the SDK."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.args, self.__dict__.copy())


def _unpickle(kind: type[BookingError], arguments: tuple[Any, ...], state: dict[str, Any]) -> BookingError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class ConfigurationError(BookingError, ValueError):
    """The client cannot be created or used like this. No request was sent."""


class PaginationError(BookingError):
    """The cursor of a page is missing although more items follow, or leads back to an earlier page."""


class EventsLost(BookingError):
    """Events may have been deleted before a follower of the feed read them.

    The service keeps events for 90 days, unless its operator set another retention. The number of lost events is not
    known: deleted events may have had other types, or may not have been visible to the key.
    """

    def __init__(self, after: int, before: int, checkpoint: str) -> None:
        super().__init__(
            f"up to {before - after - 1} events were deleted before they were read: those between {after} and {before}"
        )
        self.after: int = after
        """The `sequence` of the last event that was read."""
        self.before: int = before
        """The `sequence` of the oldest event that is kept."""
        self.checkpoint: str = checkpoint
        """The position after the lost events: `follow(after=error.checkpoint)` continues there."""


class APIError(BookingError):
    """A call that was sent and returned no result."""

    def __init__(
        self, message: str, *, idempotency_key: str | None = None, maybe_executed: bool = False, attempts: int = 1
    ) -> None:
        super().__init__(message)
        self.idempotency_key: str | None = idempotency_key
        """The key of all attempts. Repeat the call with it: the service executes a request once per key."""
        self.maybe_executed: bool = maybe_executed
        """True when an attempt of this call may have made the change. Earlier calls with the key are not considered."""
        self.attempts: int = attempts
        """The number of attempts, including those that could not connect."""

    @property
    def retryable(self) -> bool:
        """True when the call may succeed later and is safe to repeat, with the same key if there is one."""
        return self.idempotency_key is not None or not self.maybe_executed


@dataclass(frozen=True, slots=True)
class Interruption:
    """A call that another exception ended, such as a cancellation or Ctrl-C; `interruption(error)` returns it."""

    method: str
    path: str
    idempotency_key: str | None
    """The key of all attempts. Repeat the call with it: the service executes a request once per key."""
    maybe_executed: bool
    """True when an attempt of this call may have made the change."""
    attempts: int
    """The number of attempts, including those that could not connect."""


_INTERRUPTION = "_booking_sdk_interruption"


def attach_interruption(error: BaseException, interrupted: Interruption) -> None:
    """Attach the interrupted call to an exception, as attributes and as a note for the traceback."""
    with suppress(AttributeError, TypeError):  # an exception class with __slots__
        setattr(error, _INTERRUPTION, interrupted)
        error.idempotency_key = interrupted.idempotency_key  # type: ignore[attr-defined]
        error.maybe_executed = interrupted.maybe_executed  # type: ignore[attr-defined]
    if interrupted.maybe_executed:
        key = interrupted.idempotency_key
        advice = "" if key is None else f", which the same call with the same key settles: {key}"
        error.add_note(f"{interrupted.method} {interrupted.path} may have been carried out{advice}")


def interruption(error: BaseException) -> Interruption | None:
    """Return the call of the SDK that a foreign exception ended; None when it ended no call.

        try:
            async with asyncio.timeout(2):
                await client.bookings.create(...)
        except TimeoutError as error:
            interrupted = interruption(error)

    A cancellation that was converted to another exception, as here, is found as its cause or context.
    """
    visited: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in visited:
        visited.add(id(one))
        value = getattr(one, _INTERRUPTION, None)
        if isinstance(value, Interruption):
            return value
        one = one.__cause__ or one.__context__
    return None


class APIConnectionError(APIError):
    """No response: the service could not be reached, or the connection broke."""


class APITimeoutError(APIConnectionError):
    """No response within the timeout."""


class ResponseValidationError(APIError):
    """The service answered with a success, but the body cannot be parsed. The request was executed."""

    def __init__(
        self,
        message: str,
        *,
        response: Response,
        field_path: str | None = None,
        idempotency_key: str | None = None,
        maybe_executed: bool = False,
        attempts: int = 1,
    ) -> None:
        super().__init__(message, idempotency_key=idempotency_key, maybe_executed=maybe_executed, attempts=attempts)
        self.response: Response = response
        """The unparsed response."""
        self.field_path: str | None = field_path
        """The first invalid field, such as `data.3.created_at`; None when the body is not JSON."""

    @property
    def retryable(self) -> bool:
        """Always False: the same call would get the same response."""
        return False


class ResponseTooLargeError(ResponseValidationError):
    """The body is larger than the client's `max_response_bytes`, and was not read to its end."""


class APIStatusError(APIError):
    """The service answered with an error status."""

    def __init__(
        self,
        response: Response,
        *,
        retry_after: float | None = None,
        idempotency_key: str | None = None,
        maybe_executed: bool = False,
        attempts: int = 1,
    ) -> None:
        self.status_code: int = response.status_code
        self.headers: Headers = response.headers
        self.body: Any = response.json_or_text()
        """The body as parsed JSON, or as text when it is not JSON."""
        self.retry_after: float | None = retry_after
        """The delay of the Retry-After header in seconds; None without the header."""
        super().__init__(
            self._message(), idempotency_key=idempotency_key, maybe_executed=maybe_executed, attempts=attempts
        )

    def _field(self, name: str) -> Any:
        return self.body.get(name) if isinstance(self.body, Mapping) else None

    @property
    def code(self) -> str | None:
        """The error code, to branch on. It may be newer than this SDK. None when the response is not from the API."""
        code = self._field("code")
        return code if isinstance(code, str) else None

    @property
    def message(self) -> str:
        """The error message for people; do not branch on it."""
        message = self._field("error")
        if self.code is not None and isinstance(message, str):
            return one_line(message)
        if self.location is not None:
            return f"a redirect to {self.location}, which is not followed; is the base URL right?"
        return "the response is not from the API; is the base URL right?"

    @property
    def location(self) -> str | None:
        """The target of a redirect, without credentials and query; None for any other response."""
        location = self.headers.get("location")
        if location is None or not 300 <= self.status_code < 400:
            return None
        before_query = location.partition("?")[0].partition("#")[0]
        return one_line(_CREDENTIALS.sub(r"\1//", before_query))

    @property
    def details(self) -> tuple["ErrorDetail", ...]:
        """The fields or conditions that the service rejected, where it names them."""
        from booking_core.models.errors import ErrorDetail

        entries = self._field("details")
        complete = [one for one in entries if isinstance(one, Mapping)] if isinstance(entries, list) else []
        return tuple(
            ErrorDetail.model_construct(**{"field": None, "reason": "", "message": "", **one}) for one in complete
        )

    @property
    def request_id(self) -> str | None:
        """The id of the request in the service's logs; quote it in support requests."""
        return self.headers.get("x-request-id")

    @property
    def retryable(self) -> bool:
        """True when the call may succeed later and is safe to repeat, with the same key if there is one."""
        temporary = self.status_code in (408, 429) or self.status_code >= 500
        return temporary and super().retryable

    def _message(self) -> str:
        request = f" (request {one_line(self.request_id)})" if self.request_id else ""
        return f"{self.status_code} {one_line(self.code or 'without a code')}: {self.message}{self._others()}{request}"

    def _others(self) -> str:
        """Return the number of further problems, which the message does not name."""
        others = len(self.details) - 1
        return "" if others < 1 else f" (and {others} more {'problem' if others == 1 else 'problems'}, in details)"


class BadRequestError(APIStatusError):
    """400: the request is malformed."""


class IdempotencyKeyRequiredError(BadRequestError):
    """The endpoint needs an Idempotency-Key. The methods of the SDK always send one."""


class AuthenticationError(APIStatusError):
    """401: the API key is not accepted."""


class ApiKeyMissingError(AuthenticationError):
    """The request arrived without a key: a proxy removed the header."""


class ApiKeyInvalidError(AuthenticationError):
    """The service does not know the key."""


class ApiKeyRevokedError(AuthenticationError):
    """The merchant revoked the key."""


class ApiKeyExpiredError(AuthenticationError):
    """The key is past its expiry."""


class PermissionDeniedError(APIStatusError):
    """403: the key is valid, but does not permit this."""


class InsufficientScopeError(PermissionDeniedError):
    """The key lacks a scope."""

    @property
    def required_scope(self) -> str | None:
        """The scope that is missing."""
        scope = self._field("required_scope")
        return scope if isinstance(scope, str) else None


class AppNotEnabledError(PermissionDeniedError):
    """The organization has not enabled the API."""


class PlanUpgradeRequiredError(PermissionDeniedError):
    """The organization's plan does not include the API."""


class NotFoundError(APIStatusError):
    """404: the resource does not exist, or belongs to another organization."""


class ConflictError(APIStatusError):
    """409: the current state does not allow the change; `details` names the condition."""


class InsufficientCapacityError(ConflictError):
    """Not enough seats are left."""

    @property
    def seats_available(self) -> int:
        """The number of seats that are left; 0 when the answer does not say."""
        seats = self._field("seats_available")
        return seats if isinstance(seats, int) else 0


class IdempotencyInProgressError(ConflictError):
    """Another request with the same key is still in progress."""

    @property
    def retryable(self) -> bool:
        """Always True: a repeated call gets the response of the other request once that has finished."""
        return True


class UnprocessableEntityError(APIStatusError):
    """422: the request is well-formed, but cannot be executed."""


class IdempotencyKeyReusedError(UnprocessableEntityError):
    """The Idempotency-Key was used before with a different request."""


class RateLimitError(APIStatusError):
    """429: too many requests."""


class ServerError(APIStatusError):
    """5xx: the service, or a proxy in front of it, failed."""


_BY_STATUS: dict[int, type[APIStatusError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    422: UnprocessableEntityError,
    429: RateLimitError,
}

_BY_CODE: dict[str, type[APIStatusError]] = {
    "idempotency_key_required": IdempotencyKeyRequiredError,
    "api_key_missing": ApiKeyMissingError,
    "api_key_invalid": ApiKeyInvalidError,
    "api_key_revoked": ApiKeyRevokedError,
    "api_key_expired": ApiKeyExpiredError,
    "insufficient_scope": InsufficientScopeError,
    "app_not_enabled": AppNotEnabledError,
    "plan_upgrade_required": PlanUpgradeRequiredError,
    "insufficient_capacity": InsufficientCapacityError,
    "idempotency_in_progress": IdempotencyInProgressError,
    "idempotency_key_reused": IdempotencyKeyReusedError,
}


def error_code(response: Response) -> str | None:
    """Return the error code of a response; None when the response is not from the API."""
    body = response.json_or_text()
    code = body.get("code") if isinstance(body, Mapping) else None
    return code if isinstance(code, str) else None


def error_class(status_code: int, code: str | None) -> type[APIStatusError]:
    """Return the exception class for a status and code."""
    by_status = ServerError if status_code >= 500 else _BY_STATUS.get(status_code, APIStatusError)
    by_code = _BY_CODE.get(code or "", by_status)
    return by_code if issubclass(by_code, by_status) and by_status is not APIStatusError else by_status
