"""The observer of requests: times each request once, for the metrics, the request log and the trace.

It is a value of the lifespan's state, which an ASGI server puts into the scope of each request. So a request that the
parser of HTTP refuses, before the application sees it, is counted and logged as any other.
"""

import re
import time
from collections.abc import Callable
from typing import Protocol

from starlette.types import Message, Scope

from booking_server.api.request_log import REASON, RequestLog

STATE = "observer"
"""The key of the observer in the lifespan's state."""
WITHDRAWN = "booking.withdrawn"
"""The key in the scope of a request that is refused in another scope, since its body is invalid."""

REFUSALS = "booking.refusals"
"""The key in the scope of a list that takes the refusal of the request by a queue or by the rate limit of its key."""

_CODE = re.compile(rb'"code":"([a-z0-9_]+)"')
"""The code in the body of an error. Quotation marks in the text before it are escaped."""
REFUSED = 400
FAILED = 500
_UNAVAILABLE = 503


class Counts(Protocol):
    """The metrics of requests."""

    def observe_request(self, scope: Scope, status: int, seconds: float) -> None: ...
    def observe_refusal(self, reason: str) -> None: ...


class RequestTracer(Protocol):
    """The trace of requests. It keeps its state in their scopes."""

    def begin_request(self, scope: Scope) -> None: ...
    def end_request(self, scope: Scope, status: int, code: str | None) -> None: ...


class RequestObserver:
    """Observes the requests of one process.

    Args:
        counts: counts each request.
        log: writes the lines of those that have one.
        tracer: makes a span of each request.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        counts: Counts,
        log: RequestLog | None = None,
        tracer: RequestTracer | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.counts = counts
        self.log = log
        self.tracer = tracer
        self._clock = clock

    def begin(self, scope: Scope) -> float:
        """Return the time at which a request began, for `end`."""
        if self.tracer is not None:
            self.tracer.begin_request(scope)
        return self._clock()

    def end(self, scope: Scope, status: int, code: str | None, begun_s: float) -> None:
        """Count, log and trace a request.

        Args:
            status: of the response; 0 if the client had disconnected before it began.
            code: of a refusal.
        """
        seconds = self._clock() - begun_s
        if WITHDRAWN not in scope:
            self.counts.observe_request(scope, status, seconds)
            if status == _UNAVAILABLE and REASON in scope:
                self.counts.observe_refusal(scope[REASON])
            if self.log is not None and self.log.takes(status):
                self.log.write(scope, status or None, code, seconds)
        if self.tracer is not None:
            self.tracer.end_request(scope, status, code)


def code_of(message: Message) -> str | None:
    """Return the code in the body of a refusal."""
    found = _CODE.search(message.get("body", b""))
    return str(found[1], "ascii") if found else None
