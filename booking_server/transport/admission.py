"""Refuse requests above the capacity of the process, before they are routed and queued.

The requests in flight have places. When all are taken, an organization is admitted up to an equal part of them. Once
the event loop has been late for a second, every late tick halves the places; they grow again when it is on time.
Requests whose key this process has not found valid share one part, and so do those without a key.

Refusals with 429 or 503 are sent at once while there are few. In a flood of them, each is sent a second later: a client
that retries at once costs one refusal a second for each of its connections, and takes the processor from nobody.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from booking_core.base.errors import BookingError, Unavailable
from booking_server.execution.authenticator import Credentials
from booking_server.execution.executor import busy
from booking_server.fastapi_ext.requests import read_body
from booking_server.refusals import respond_to
from booking_server.request_state import path_of, state_of

TICK_S = 0.1
IDLE_TICK_S = 0.5
"""The time between two ticks while no request is in flight: nothing has to be decided soon."""
LATE_S = 0.1
"""The lag above which the event loop is late. A pause of the garbage collector is shorter."""
LATE_FOR_S = 1.0
"""Seconds of lateness without a break before anything is refused for it. A burst of hundreds of requests is shorter."""
PLACES_MIN, PLACES_MAX = 256, 1024
"""Requests in flight, of all organizations together. The fewest keep the batches full. The most are answered in time: a
longer queue would refuse requests after they have waited for seconds."""
AT_ONCE = 50
"""Refusals in a tick that are sent at once."""
PAUSE_S = 1.0
"""The time after which the others are sent: the shortest `Retry-After`."""
REFUSED = frozenset({429, 503})
"""The statuses of refusals that a client may retry."""
LATE = "late"
"""The reason of refusals while the event loop is late."""
WITHOUT_KEY, UNKNOWN_KEY = "(no key)", "(unknown key)"
"""The owners of requests that belong to no organization."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are never refused or delayed here."""


class Admission:
    """Decides which requests of a service may begin. Used on the event loop only.

    Args:
        organization_of: returns the organization of a key that was valid when it was last looked up.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, organization_of: Callable[[Credentials], str | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._organization_of = organization_of
        self._clock = clock
        self._in_flight: Counter[str] = Counter()
        """By owner, without those that have none."""
        self._total = 0
        """The requests in flight of all owners."""
        self._places = PLACES_MAX
        self._refused_in_tick = 0
        self._late_since_s: float | None = None
        self._late = busy(0, LATE)

    def owner_of(self, credentials: Credentials) -> str:
        """Return the organization of a request, or one of the two other owners."""
        if isinstance(credentials.key, BookingError):
            return WITHOUT_KEY
        return self._organization_of(credentials) or UNKNOWN_KEY

    def refusal(self, owner: str) -> Unavailable | None:
        """Return the refusal of a request, or None if it is admitted. An owner without a request in flight is."""
        part = max(1, self._places // (len(self._in_flight) + 1))  # one part is left for another one to come
        is_refused = self._total >= self._places and self._in_flight.get(owner, 0) >= part
        return self._late if is_refused else None

    def pause_s(self) -> float:
        """Count a refusal, and return the seconds after which it is to be sent."""
        self._refused_in_tick += 1
        return PAUSE_S if self._refused_in_tick > AT_ONCE else 0.0

    def begin(self, owner: str) -> None:
        """Count a request that is admitted."""
        self._in_flight[owner] += 1
        self._total += 1

    def end(self, owner: str) -> None:
        """Note that a request is no longer in flight."""
        self._in_flight[owner] -= 1
        self._total -= 1
        if not self._in_flight[owner]:
            del self._in_flight[owner]

    # Each tick -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Tick while the body runs."""
        task = asyncio.create_task(self._tick_forever())
        try:
            yield
        finally:
            task.cancel()

    async def _tick_forever(self) -> None:
        while True:
            tick_s = TICK_S if self._in_flight or self._refused_in_tick else IDLE_TICK_S
            due_s = self._clock() + tick_s
            await asyncio.sleep(tick_s)
            self.tick(self._clock() - due_s)

    def tick(self, lag_s: float) -> None:
        """Adapt to the lag of the event loop."""
        now_s, self._refused_in_tick = self._clock(), 0
        if lag_s <= LATE_S:
            self._late_since_s = None
            self._places = min(PLACES_MAX, self._places + self._places // 4)
            return
        if self._late_since_s is None:
            self._late_since_s = now_s - lag_s
        if self._places < PLACES_MAX or now_s - self._late_since_s >= LATE_FOR_S:
            self._places = max(PLACES_MIN, self._places // 2)
            self._late = busy(2 * lag_s, LATE)


class AdmissionMiddleware:
    """Refuses requests that are not admitted, counts the others while they are processed, and delays refusals."""

    def __init__(self, app: ASGIApp, *, admission: Admission) -> None:
        self.app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope) in PROBES:
            await self.app(scope, receive, send)
            return

        async def send_in_time(message: Message) -> None:
            if message.get("status") in REFUSED:
                await asyncio.sleep(self._admission.pause_s())
            await send(message)

        owner = self._admission.owner_of(state_of(scope).credentials)
        refusal = self._admission.refusal(owner)
        if refusal is not None:
            await read_body(scope, receive)  # or the connection would be closed
            await respond_to(Request(scope), refusal)(scope, receive, send_in_time)
            return
        self._admission.begin(owner)
        try:
            await self.app(scope, receive, send_in_time)
        finally:
            self._admission.end(owner)
