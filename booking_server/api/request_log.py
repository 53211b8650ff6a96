"""The request log: a line for a request, with its operation, its result and its caller, and nothing that it sent.

The log is a value of the lifespan's state, which an ASGI server puts into the scope of each request. So a request that
the framing of HTTP refuses is logged too, and without the log a request costs one look-up in a dict.
"""

import logging
import random
import re
import time
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Scope

from booking_core import tokens
from booking_core.errors import BookingError
from booking_server.execution.authenticator import bearer_token

log = logging.getLogger("booking.requests")

STATE = "request_log"
"""The key of the log in the lifespan's state."""
_CODE = re.compile(rb'"code":"([a-z0-9_]+)"')
"""The code in the body of an error. Quotation marks in the text before it are escaped."""
_TEXT = (
    "%s %s: status %s, code %s, %.1f ms, request %s, organization %s, key %s"  # in the order of the fields of a line
)
_REFUSED = 400
_FAILED = 500
_UNAVAILABLE = 503


class RequestLog:
    """Writes a line for a share of the requests, and for each one that fails by a defect.

    A refusal with 503 is no defect: its cause has a line of its own, and the metrics count it by its reason.

    Args:
        share: from 0 to 1.
        organization_of: returns the organization of a key that was valid when it was last looked up.
        sample: returns 0 to 1; the request is logged if that is below the share.
    """

    def __init__(
        self,
        share: float,
        organization_of: Callable[[str], str | None],
        *,
        sample: Callable[[], float] = random.random,
    ) -> None:
        self._share = share
        self._organization_of = organization_of
        self._sample = sample

    def begin(self, scope: Scope) -> "Entry":
        """Return the entry of a request that has just arrived."""
        return Entry(self, scope)

    def write(self, scope: Scope, status: int | None, code: str | None, duration_s: float) -> None:
        """Write the line of a request, if it gets one.

        Args:
            status: None if the client left before the response began.
            code: of a refusal.
        """
        is_failure = status is not None and status >= _FAILED and status != _UNAVAILABLE
        if not is_failure and self._sample() >= self._share:
            return
        organization_id, prefix = self._caller(scope)
        fields = {
            "method": scope["method"],
            "operation": getattr(scope.get("endpoint"), "__name__", None),
            "status": status,
            "code": code,
            "duration_ms": round(duration_s * 1000, 3),
            "request_id": scope["booking.request_id"],
            "organization_id": organization_id,
            "key_prefix": prefix,
        }
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


class Entry:
    """The result of a request, until its line is written."""

    __slots__ = ("_code", "_log", "_scope", "_started", "_status")

    def __init__(self, request_log: RequestLog, scope: Scope) -> None:
        self._log = request_log
        self._scope = scope
        self._started = time.perf_counter()
        self._status: int | None = None
        self._code: str | None = None

    def note(self, message: Message) -> None:
        """Note the status of the response, and the code of a refusal."""
        if self._status is None:
            self._status = message.get("status")
        elif self._status >= _REFUSED and self._code is None:
            found = _CODE.search(message.get("body", b""))
            self._code = found and str(found[1], "ascii")

    def fail(self) -> None:
        """Note an exception: Starlette responds to it outside of the middleware."""
        if self._status is None:
            self._status, self._code = _FAILED, "internal_error"

    def end(self) -> None:
        """Write the line."""
        self._log.write(self._scope, self._status, self._code, time.perf_counter() - self._started)


def begin(scope: Scope) -> Entry | None:
    """Return the entry of a request, or None if requests are not logged."""
    found: Any = scope["state"].get(STATE) if "state" in scope else None
    return found.begin(scope) if found is not None else None
