"""Everything the SDK raises, as a tree.

    BookingError
    ├─ ConfigurationError (ValueError)
    ├─ PaginationError
    ├─ EventsLost .after .before .checkpoint
    └─ APIError .idempotency_key .maybe_executed .attempts
       ├─ APIConnectionError
       │  └─ APITimeoutError
       ├─ ResponseValidationError .response .field_path
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

A status chooses the branch and a code the leaf; a code added later raises the branch and keeps the code. Every error
can be pickled, and none says a secret or a body in its text. What fails in verifying a webhook is
`WebhookVerificationError`, a tree of its own.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from booking_sdk.response import Headers, Response

if TYPE_CHECKING:
    from booking_core.models.errors import ErrorDetail

# More of it than this is not one sentence of the service, but somebody else's page.
_MESSAGE_LENGTH_MAX = 300


_CREDENTIALS = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/@]*@")


def one_line(text: str) -> str:
    """Return a text of somebody else's as one short line, in which a terminal finds nothing to obey."""
    line = " ".join(text.split())[:_MESSAGE_LENGTH_MAX]
    return line if line.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


class BookingError(Exception):
    """Whatever the SDK raises of its own."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__.copy())


def _rebuilt(kind: type[BookingError], arguments: tuple[Any, ...], state: dict[str, Any]) -> BookingError:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class ConfigurationError(BookingError, ValueError):
    """The client cannot be made, or cannot be used like this. Nothing was sent."""


class PaginationError(BookingError):
    """The service answered pages that lead nowhere: a cursor that came before, or none where more follows."""


class EventsLost(BookingError):
    """A follower of the feed was away for so long that events may have been deleted before it read them.

    The service keeps events for a time, 90 days unless its operator chose another. How many of the deleted ones the
    follower would have been given is not known: they may have been of other types, or not readable with its key.
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
        """Where to go on without the lost ones: `follow(after=error.checkpoint)`."""


class APIError(BookingError):
    """A call that was sent, and did not give its result."""

    def __init__(
        self, message: str, *, idempotency_key: str | None = None, maybe_executed: bool = False, attempts: int = 1
    ) -> None:
        super().__init__(message)
        self.idempotency_key: str | None = idempotency_key
        """The key of every attempt; the same call with this key settles what happened, and does nothing twice."""
        self.maybe_executed: bool = maybe_executed
        """Whether an attempt of this call may have made the change; of earlier calls with the key it says nothing."""
        self.attempts: int = attempts
        """How many requests were sent, or tried to be."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later, and does no harm: with the same key, where there is one."""
        return self.idempotency_key is not None or not self.maybe_executed


@dataclass(frozen=True, slots=True)
class Interruption:
    """A call that something else ended, such as a cancellation or Ctrl-C; from `interruption(error)`."""

    method: str
    path: str
    idempotency_key: str | None
    """The same call with this key settles what happened, and does nothing twice."""
    maybe_executed: bool
    """Whether an attempt of this call may have made the change."""
    attempts: int
    """How many requests were sent, or tried to be."""


_INTERRUPTION = "_booking_sdk_interruption"


def mark(error: BaseException, interrupted: Interruption) -> None:
    """Note on an exception of any kind which call it ended: what can be read, and what a traceback shows."""
    with suppress(AttributeError, TypeError):  # one with slots, and no room
        setattr(error, _INTERRUPTION, interrupted)
        error.idempotency_key = interrupted.idempotency_key  # type: ignore[attr-defined]
        error.maybe_executed = interrupted.maybe_executed  # type: ignore[attr-defined]
    if interrupted.maybe_executed:
        key = interrupted.idempotency_key
        settles = "" if key is None else f", which the same call with the same key settles: {key}"
        error.add_note(f"{interrupted.method} {interrupted.path} may have been carried out{settles}")


def interruption(error: BaseException) -> Interruption | None:
    """Return which call of the SDK an exception ended that is not the SDK's own; None when it ended none.

        try:
            async with asyncio.timeout(2):
                await client.bookings.create(...)
        except TimeoutError as error:
            interrupted = interruption(error)

    A cancellation that was turned into another exception, as here, is found as its cause or context.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        found = getattr(one, _INTERRUPTION, None)
        if isinstance(found, Interruption):
            return found
        one = one.__cause__ or one.__context__
    return None


class APIConnectionError(APIError):
    """No answer came: the service could not be reached, or the connection broke."""


class APITimeoutError(APIConnectionError):
    """No answer came in time."""


class ResponseValidationError(APIError):
    """The service answered a success that cannot be read. What was asked for was done."""

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
        """The answer as it came."""
        self.field_path: str | None = field_path
        """Where in the body the first surprise is, such as `data.3.created_at`; none when it is not JSON."""

    @property
    def retryable(self) -> bool:
        """Never: the same call would be answered the same."""
        return False


class APIStatusError(APIError):
    """The service answered, and not with a success."""

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
        """The parsed JSON, or the text of whatever else came."""
        self.retry_after: float | None = retry_after
        """Seconds to wait, as the answer asked; none when it did not."""
        super().__init__(
            self._sentence(), idempotency_key=idempotency_key, maybe_executed=maybe_executed, attempts=attempts
        )

    def _field(self, name: str) -> Any:
        return self.body.get(name) if isinstance(self.body, Mapping) else None

    @property
    def code(self) -> str | None:
        """The value to branch on, also one that this version does not know; none when the answer is not the API's."""
        code = self._field("code")
        return code if isinstance(code, str) else None

    @property
    def message(self) -> str:
        """The service's sentence for people; do not branch on it."""
        message = self._field("error")
        if self.code is not None and isinstance(message, str):
            return one_line(message)
        if self.location is not None:
            return f"a redirect to {self.location}, which is not followed; is the base URL right?"
        return "the answer is not one of the API; is the base URL right?"

    @property
    def location(self) -> str | None:
        """Return where a redirect leads, without what may be secret in it; None for any other answer."""
        location = self.headers.get("location")
        if location is None or not 300 <= self.status_code < 400:
            return None
        before_query = location.partition("?")[0].partition("#")[0]
        return one_line(_CREDENTIALS.sub(r"\1//", before_query))

    @property
    def details(self) -> tuple["ErrorDetail", ...]:
        """Which fields or conditions were refused, where the service names them."""
        from booking_core.models.errors import ErrorDetail

        found = self._field("details")
        complete = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
        return tuple(
            ErrorDetail.model_construct(**{"field": None, "reason": "", "message": "", **one}) for one in complete
        )

    @property
    def request_id(self) -> str | None:
        """What to tell the service's support."""
        return self.headers.get("x-request-id")

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later, and does no harm: with the same key, where there is one."""
        temporary = self.status_code in (408, 429) or self.status_code >= 500
        return temporary and super().retryable

    def _sentence(self) -> str:
        request = f" (request {one_line(self.request_id)})" if self.request_id else ""
        return f"{self.status_code} {one_line(self.code or 'without a code')}: {self.message}{request}"


class BadRequestError(APIStatusError):
    """400: the request has the wrong shape."""


class IdempotencyKeyRequiredError(BadRequestError):
    """The endpoint wants an Idempotency-Key. The SDK's own methods always send one."""


class AuthenticationError(APIStatusError):
    """401: the key is no good."""


class ApiKeyMissingError(AuthenticationError):
    """No key arrived; something between here and the service took the header away."""


class ApiKeyInvalidError(AuthenticationError):
    """The service does not know the key."""


class ApiKeyRevokedError(AuthenticationError):
    """The merchant revoked the key."""


class ApiKeyExpiredError(AuthenticationError):
    """The key is past its expiry."""


class PermissionDeniedError(APIStatusError):
    """403: the key is good, and may not do this."""


class InsufficientScopeError(PermissionDeniedError):
    """The key lacks a scope."""

    @property
    def required_scope(self) -> str | None:
        """The scope that is missing."""
        scope = self._field("required_scope")
        return scope if isinstance(scope, str) else None


class AppNotEnabledError(PermissionDeniedError):
    """The organization has the API switched off."""


class PlanUpgradeRequiredError(PermissionDeniedError):
    """The organization's plan does not include the API."""


class NotFoundError(APIStatusError):
    """404: there is no such thing, or it is another organization's."""


class ConflictError(APIStatusError):
    """409: the present state does not allow it; `details` says which condition."""


class InsufficientCapacityError(ConflictError):
    """Not enough seats are left."""

    @property
    def seats_available(self) -> int | None:
        """How many are."""
        seats = self._field("seats_available")
        return seats if isinstance(seats, int) else None


class IdempotencyInProgressError(ConflictError):
    """Another request with the same key still runs."""

    @property
    def retryable(self) -> bool:
        """Always: the same call gets the other one's answer once that has finished."""
        return True


class UnprocessableEntityError(APIStatusError):
    """422: understood, and impossible to fulfil."""


class IdempotencyKeyReusedError(UnprocessableEntityError):
    """The key was used before, for a request that differs from this one."""


class RateLimitError(APIStatusError):
    """429: too many requests."""


class ServerError(APIStatusError):
    """5xx: it failed on the service's side, or on the way there."""


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


def code_of(response: Response) -> str | None:
    """The code in the body of an answer; none when it is not the API's."""
    body = response.json_or_text()
    code = body.get("code") if isinstance(body, Mapping) else None
    return code if isinstance(code, str) else None


def kind_of(status_code: int, code: str | None) -> type[APIStatusError]:
    """The class of an answer: its status's, or the one of its code where that belongs to the status."""
    branch = ServerError if status_code >= 500 else _BY_STATUS.get(status_code, APIStatusError)
    leaf = _BY_CODE.get(code or "", branch)
    return leaf if issubclass(leaf, branch) and branch is not APIStatusError else branch
