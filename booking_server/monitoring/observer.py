"""Observes each request once, for the metrics, the request log and the trace."""

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from booking_core.base import tokens
from booking_server.execution.authenticator import Credentials
from booking_server.monitoring.metrics import Metrics
from booking_server.request_state import RequestState, state_of

if TYPE_CHECKING:
    from booking_server.tracing.tracing import Tracing

log = logging.getLogger("booking.requests")

_FAILED, _UNAVAILABLE = 500, 503
UNAVAILABLE_MAX = 100
"""The lines of refusals with 503 in a second. An overloaded process must not spend its time on them; the metrics count
all."""
_PARTS = {
    "code": "code {}",
    "reason": "reason {}",
    "duration_ms": "{:.1f} ms",
    "request_id": "request {}",
    "organization_id": "organization {}",
    "key_prefix": "key {}",
}
"""The parts of a line after the status, by field. A field without a value has none."""


# The request log -----------------------------------------------------------------------------------------------------


class RequestLog:
    """Writes a line for a share of the requests, and for each request that fails or is refused with 503.

    A line has the operation, its result and its caller, and nothing that the request sent. `takes` decides which
    requests have one, and costs the others a comparison.

    Args:
        share: from 0 to 1.
        organization_of: returns the organization of a key that was valid when it was last looked up.
        sample: returns 0 to 1; the request is logged if that is below the share.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        share: float,
        organization_of: Callable[[Credentials], str | None],
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

    def write(self, scope: Scope, status: int | None, duration_s: float) -> None:
        """Write the line of a request.

        Args:
            status: None if the client left before the response began.
        """
        state = state_of(scope)
        organization_id, prefix = self._caller(state)
        fields = {
            "method": scope["method"],
            "operation": getattr(scope.get("endpoint"), "__name__", None),
            "status": status,
            "code": state.error_code,
            "reason": state.reason,
            "duration_ms": round(duration_s * 1000, 3),
            "request_id": state.request_id,
            "organization_id": organization_id,
            "key_prefix": prefix,
        }
        is_failure = status is not None and status >= _FAILED and status != _UNAVAILABLE
        log.log(logging.WARNING if is_failure else logging.INFO, "%s", _line(fields), extra=fields)

    def _caller(self, state: RequestState) -> tuple[str | None, str | None]:
        """Return the organization and the public prefix of a valid key.

        Any other text in the header may be a secret of another service.
        """
        organization_id = self._organization_of(state.credentials)
        return organization_id, tokens.api_key_prefix(str(state.credentials.key)) if organization_id else None


def _line(fields: Mapping[str, Any]) -> str:
    request = " ".join(filter(None, (fields["method"], fields["operation"])))
    result = "no response" if fields["status"] is None else f"status {fields['status']}"
    parts = (part.format(fields[name]) for name, part in _PARTS.items() if fields[name] is not None)
    return f"{request}: {', '.join((result, *parts))}"


# The observer --------------------------------------------------------------------------------------------------------


class RequestObserver:
    """Observes the requests of one process.

    Args:
        counts: counts each request.
        log: writes the lines of those that have one.
        tracer: makes a span of each request.
    """

    def __init__(
        self,
        counts: Metrics,
        log: RequestLog | None = None,
        tracer: "Tracing | None" = None,
    ) -> None:
        self.counts = counts
        self.log = log
        self.tracer = tracer

    def begin(self, scope: Scope) -> float:
        """Return the start time of a request, for `end`."""
        if self.tracer is not None:
            self.tracer.begin_request(scope)
        return time.perf_counter()

    def end(self, scope: Scope, status: int, begun_s: float) -> None:
        """Count, log and trace a request.

        Args:
            status: of the response; 0 if the client had disconnected before it began.
        """
        seconds, state = time.perf_counter() - begun_s, state_of(scope)
        if not state.is_withdrawn:
            self.counts.observe_request(scope, status, seconds)
            if status == _UNAVAILABLE and state.reason:
                self.counts.observe_refusal(state.reason)
            if self.log is not None and self.log.takes(status):
                self.log.write(scope, status or None, seconds)
        if self.tracer is not None:
            self.tracer.end_request(scope, status)
