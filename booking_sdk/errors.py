"""Everything the SDK raises, as a tree.

    BookingError
    ├─ ConfigurationError (ValueError)
    ├─ PaginationError
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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from booking_sdk.response import Headers, Response

if TYPE_CHECKING:
    from booking_core.wire.errors import ErrorDetail

# More of it than this is not one sentence of the service, but somebody else's page.
_MESSAGE_LENGTH_MAX = 300


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
        if self.code is None or not isinstance(message, str):
            return "the answer is not one of the API; is the base URL right?"
        return " ".join(message.split())[:_MESSAGE_LENGTH_MAX]

    @property
    def details(self) -> tuple["ErrorDetail", ...]:
        """Which fields or conditions were refused, where the service names them."""
        from booking_core.wire.errors import ErrorDetail

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
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.status_code} {self.code or 'without a code'}: {self.message}{request}"


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
