"""Every way an operation can refuse, as a tree of exceptions. The server turns each into a status, once."""

from collections.abc import Sequence
from typing import ClassVar

from booking_core.models.errors import ErrorCode, ErrorDetail
from booking_core.models.reasons import ErrorReason
from booking_core.models.scopes import Scope


class BookingError(Exception):
    """A refusal with a code for programs, a message for people, and details where a field can be named."""

    code: ClassVar[ErrorCode]
    message: ClassVar[str]

    def __init__(self, message: str | None = None, *, details: Sequence[ErrorDetail] = ()) -> None:
        super().__init__(message or self.message)
        self.details = tuple(details)

    @property
    def extra(self) -> dict[str, object]:
        """Fields of the error body beyond the common ones."""
        return {}


class Malformed(BookingError):
    """The request has the wrong shape, type, range or format (400)."""

    code = ErrorCode.VALIDATION_FAILED
    message = "The request is not valid."

    @classmethod
    def at(cls, field: str, message: str, reason: ErrorReason) -> "Malformed":
        """Return the error for a wrong field."""
        return cls(f"{field}: {message}", details=[ErrorDetail(field=field, reason=reason, message=message)])


class Unprocessable(BookingError):
    """The request is well-formed and cannot be fulfilled (422)."""

    code = ErrorCode.VALIDATION_FAILED
    message = "The request cannot be fulfilled."

    @classmethod
    def at(cls, field: str, message: str, reason: ErrorReason) -> "Unprocessable":
        """Return the error for a field that cannot be fulfilled."""
        return cls(message, details=[ErrorDetail(field=field, reason=reason, message=message)])


class IdempotencyKeyRequired(BookingError):
    code = ErrorCode.IDEMPOTENCY_KEY_REQUIRED
    message = "This endpoint needs an Idempotency-Key header."


class IdempotencyKeyReused(BookingError):
    code = ErrorCode.IDEMPOTENCY_KEY_REUSED
    message = "This Idempotency-Key was used with a different request."


class IdempotencyInProgress(BookingError):
    code = ErrorCode.IDEMPOTENCY_IN_PROGRESS
    message = "A request with this Idempotency-Key is still running."


class ApiKeyMissing(BookingError):
    code = ErrorCode.API_KEY_MISSING
    message = "Send the API key as 'Authorization: Bearer <API_KEY>'."


class ApiKeyInvalid(BookingError):
    code = ErrorCode.API_KEY_INVALID
    message = "This is not a known API key."


class ApiKeyRevoked(BookingError):
    code = ErrorCode.API_KEY_REVOKED
    message = "This API key was revoked."


class ApiKeyExpired(BookingError):
    code = ErrorCode.API_KEY_EXPIRED
    message = "This API key has expired."


class AppNotEnabled(BookingError):
    code = ErrorCode.APP_NOT_ENABLED
    message = "The API app is off for this organization."


class PlanUpgradeRequired(BookingError):
    code = ErrorCode.PLAN_UPGRADE_REQUIRED
    message = "The organization's plan does not include the API."


class InsufficientScope(BookingError):
    code = ErrorCode.INSUFFICIENT_SCOPE
    message = "The API key lacks a scope."

    def __init__(self, required_scope: Scope) -> None:
        super().__init__(f"The API key lacks the scope {required_scope}.")
        self.required_scope = required_scope

    @property
    def extra(self) -> dict[str, object]:
        return {"required_scope": str(self.required_scope)}


class NotFound(BookingError):
    """No such thing, or another organization's: the two are one by construction."""

    code = ErrorCode.NOT_FOUND
    message = "There is no such resource."

    def __init__(
        self, message: str | None = None, *, noun: str | None = None, details: Sequence[ErrorDetail] = ()
    ) -> None:
        super().__init__(message, details=details)
        self.noun = noun
        """The kind of the resource, which the command line lists in its hint."""

    @classmethod
    def of(cls, noun: str, name: str | None = None) -> "NotFound":
        """Return the error for a resource, which the caller named if it is not an id of a path."""
        return cls(f"There is no such {noun}." if name is None else f"There is no {noun} {name!r}.", noun=noun)


class MethodNotAllowed(BookingError):
    code = ErrorCode.METHOD_NOT_ALLOWED
    message = "This path does not take that method."

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__()
        self.allowed = tuple(allowed)


class PayloadTooLarge(BookingError):
    code = ErrorCode.PAYLOAD_TOO_LARGE
    message = "The request body is larger than 256 KiB."


class HeadersTooLarge(BookingError):
    """The head of a request is larger than it may be (431)."""

    code = ErrorCode.HEADERS_TOO_LARGE
    message = "The request line and headers are larger than 64 KiB, or there are more than 100 headers."


class UnsupportedMediaType(BookingError):
    code = ErrorCode.UNSUPPORTED_MEDIA_TYPE
    message = "Send the body as 'Content-Type: application/json', in UTF-8, uncompressed."


class InsufficientCapacity(BookingError):
    code = ErrorCode.INSUFFICIENT_CAPACITY
    message = "Not enough seats."

    def __init__(self, seats_available: int) -> None:
        super().__init__(f"Not enough seats: {seats_available} available.")
        self.seats_available = seats_available

    @property
    def extra(self) -> dict[str, object]:
        return {"seats_available": self.seats_available}


class Conflict(BookingError):
    """The request conflicts with the current state; the reason is in the details."""

    code = ErrorCode.CONFLICT
    message = "The request conflicts with the current state."

    def __init__(self, reason: ErrorReason, message: str, field: str | None = None) -> None:
        super().__init__(message, details=[ErrorDetail(field=field, reason=reason, message=message)])
        self.reason = reason


class RateLimited(BookingError):
    """More requests came than the limit allows (429)."""

    code = ErrorCode.RATE_LIMITED
    message = "Too many requests; see the x-ratelimit-* headers."

    def __init__(self, retry_after_s: int) -> None:
        super().__init__()
        self.retry_after_s = retry_after_s


class Unavailable(BookingError):
    """The database is unavailable, or busy for longer than a client should wait (503).

    Args:
        for_all: every other request fails now for the same reason, so waiting requests need not be tried.
        fault: the fault of the machine below the database; for the log, not for clients.
        is_locked: another transaction kept a lock for longer than this one may wait.
        retry_after_s: seconds until a retry may succeed, where the queue tells; 1 by default, 10 with a fault.
        reason: of the refusal, for metrics; by default from the other arguments.
    """

    code = ErrorCode.SERVICE_UNAVAILABLE
    message = "The service is busy or its database is unavailable; try again."

    def __init__(
        self,
        message: str | None = None,
        *,
        for_all: bool = False,
        fault: str | None = None,
        is_locked: bool = False,
        retry_after_s: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self._reason = reason
        self.for_all = for_all
        self.fault = fault
        self.is_locked = is_locked
        self.retry_after_s = retry_after_s or (1 if fault is None else 10)

    @property
    def reason(self) -> str:
        """Return why the request is refused: `fault`, `database`, `locked`, `queue`, `late`, `list_timeout` or
        `busy`."""
        if self._reason:
            return self._reason
        if self.fault:
            return "fault"
        if self.is_locked:
            return "locked"
        return "database" if self.for_all else "busy"


def is_outage(error: BaseException) -> bool:
    """Return whether the database fails for every caller: other work would fail at once, too."""
    return isinstance(error, Unavailable) and error.for_all
