"""The request log: a line for a request, with its operation, its result and its caller, and nothing that it sent.

Which requests have a line is decided by `takes`, so that the others cost a comparison.
"""

import logging
import random
import time
from collections.abc import Callable

from starlette.types import Scope

from booking_core.base import tokens
from booking_core.base.errors import BookingError
from booking_server.execution.authenticator import bearer_token

log = logging.getLogger("booking.requests")

REASON = "booking.reason"
"""The key of a request's scope with the reason of a refusal with 503."""
# In the order of the fields of a line.
_TEXT = "%s %s: status %s, code %s, reason %s, %.1f ms, request %s, organization %s, key %s"
_FAILED = 500
_UNAVAILABLE = 503
UNAVAILABLE_MAX = 100
"""The lines of refusals with 503 in a second. An overloaded process must not spend its time on them; the metrics count
all."""


class RequestLog:
    """Writes a line for a share of the requests, and for each one that fails or is refused with 503.

    Args:
        share: from 0 to 1.
        organization_of: returns the organization of a key that was valid when it was last looked up.
        sample: returns 0 to 1; the request is logged if that is below the share.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        share: float,
        organization_of: Callable[[str], str | None],
        *,
        sample: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._share = share
        self._organization_of = organization_of
        self._sample = sample
        self._clock = clock
        self._second = 0
        self._unavailable = 0
        """The lines of refusals with 503 in this second."""

    def takes(self, status: int) -> bool:
        """Return whether a request with that status has a line."""
        if status >= _FAILED:
            return status != _UNAVAILABLE or self._takes_unavailable()
        return self._share > 0 and self._sample() < self._share

    def _takes_unavailable(self) -> bool:
        second = int(self._clock())
        self._unavailable = self._unavailable + 1 if second == self._second else 1
        self._second = second
        return self._unavailable <= UNAVAILABLE_MAX

    def write(self, scope: Scope, status: int | None, code: str | None, duration_s: float) -> None:
        """Write the line of a request.

        Args:
            status: None if the client left before the response began.
            code: of a refusal.
        """
        organization_id, prefix = self._caller(scope)
        fields = {
            "method": scope["method"],
            "operation": getattr(scope.get("endpoint"), "__name__", None),
            "status": status,
            "code": code,
            "reason": scope.get(REASON),
            "duration_ms": round(duration_s * 1000, 3),
            "request_id": scope["booking.request_id"],
            "organization_id": organization_id,
            "key_prefix": prefix,
        }
        is_failure = status is not None and status >= _FAILED and status != _UNAVAILABLE
        log.log(logging.WARNING if is_failure else logging.INFO, _TEXT, *fields.values(), extra=fields)

    def _caller(self, scope: Scope) -> tuple[str | None, str | None]:
        """Return the organization and the public prefix of a valid key.

        Any other text in the header may be a secret of another service.
        """
        try:
            key = bearer_token(scope["headers"])
        except BookingError:
            return None, None
        organization_id = self._organization_of(key)
        return organization_id, tokens.api_key_prefix(key) if organization_id else None
