"""Refuse requests above the capacity of the process, before they are routed and queued.

Two rules decide, and both look only at the requests in flight of an organization:

- An organization whose request a queue has refused gets the same answer again for that operation while it has nearly
  as many requests in flight as the queue had room for. One more is admitted for each that is answered. The queue
  decides again after a second at most.
- Once the event loop has been late for a second, an organization has an equal part of the places in flight. Every late
  tick halves the places; they grow again when it is on time, until there is no bound.

An organization with few requests in flight is refused by neither rule. Requests whose key this process has not seen to
be valid share one part, and so do those without a key.

A refusal by the rate limit of a key, or of the address of keys that were not seen to be valid, is repeated in the same
way until the bucket has a token, at most for a second. It follows from the clock alone, and nothing is looked up.

Refusals are sent at once while there are few. In a flood of them, each is sent a second later. So an impatient client
costs one refusal a second for each of its connections.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from booking_core.base import tokens
from booking_core.base.errors import BookingError, RateLimited, Unavailable
from booking_server.api.middleware import REASON, REFUSALS
from booking_server.execution.authenticator import bearer_token, network_of
from booking_server.execution.executor import busy
from booking_server.fastapi_ext.requests import read_body
from booking_server.http.refusals import path_of, respond

TICK_S = 0.1
IDLE_TICK_S = 0.5
"""The time between two ticks while no request is in flight: nothing has to be decided soon."""
LATE_S = 0.1
"""The lag above which the event loop is late. A pause of the garbage collector is shorter."""
LATE_FOR_S = 1.0
"""Seconds of lateness without a break before anything is refused for it. A burst of hundreds of requests is shorter."""
PLACES_MIN, PLACES_MAX = 256, 2048
"""Requests in flight, of all organizations together, while the event loop is late. The fewest keep the batches full;
above the most nothing is refused for being late."""
REPEATED_MAX_S = 1.0
"""The longest time that a refusal is repeated before the queue, or the limiter, decides again."""
AT_ONCE = 50
"""Refusals in a tick that are sent at once."""
PAUSE_S = 1.0
"""The time after which the others are sent: the shortest `Retry-After`."""
LATE = "late"
"""The reason of refusals while the event loop is late."""
WITHOUT_KEY, UNKNOWN_KEY = "(no key)", "(unknown key)"
"""The owners of requests that belong to no organization."""
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are never refused here."""

Refusal = Unavailable | RateLimited
Operation = tuple[str, int, str]
"""The method, the number of parts of the path, and the first ones. It tells lists from single resources."""


class Repeated(NamedTuple):
    """A refusal that is repeated."""

    refusal: Refusal
    below: int
    """A request is admitted while its owner has fewer in flight."""
    until_s: float


class Admission:
    """Decides which requests of a service may begin. Used on the event loop only.

    Args:
        organization_of: returns the organization of a key that was valid when it was last looked up.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, organization_of: Callable[[str], str | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._organization_of = organization_of
        self._clock = clock
        self._in_flight: Counter[str] = Counter()
        """By owner, without those that have none."""
        self._repeated: dict[tuple[str, Operation], Repeated] = {}
        """By the owner that a queue has refused, or the key or the address that a rate limit has refused."""
        self._refused_in_tick = 0
        self._places: int | None = None
        """None without a bound."""
        self._late_since_s: float | None = None
        self._late = busy(0, LATE)

    def owner_of(self, scope: Scope) -> str:
        """Return the organization of a request, or one of the two other owners."""
        try:
            return self._organization_of(bearer_token(scope["headers"])) or UNKNOWN_KEY
        except BookingError:
            return WITHOUT_KEY

    def pause_s(self) -> float:
        """Count a refusal, and return the seconds after which it is to be sent."""
        self._refused_in_tick += 1
        return PAUSE_S if self._refused_in_tick > AT_ONCE else 0.0

    def refusal(self, owner: str, scope: Scope) -> Refusal | None:
        """Return the refusal of a request, or None if it is admitted."""
        in_flight = self._in_flight.get(owner, 0)
        if self._repeated:
            operation = operation_of(scope)
            for refused in (owner, limited_by(owner, scope)):
                found = self._repeated.get((refused, operation))
                if found and in_flight >= found.below and found.until_s > self._clock():
                    return found.refusal
        if self._places is not None and in_flight and in_flight >= self._part(self._places):
            return self._late
        return None

    def begin(self, owner: str) -> None:
        """Count a request that is admitted."""
        self._in_flight[owner] += 1

    def end(self, owner: str, scope: Scope, refusals: Sequence[Refusal] = ()) -> None:
        """Note that a request is no longer in flight.

        Args:
            refusals: the refusal by a queue, or by a rate limit, if that was the response.
        """
        self._in_flight[owner] -= 1
        for refusal in refusals:
            self._repeat(refusal, owner, scope)
        if not self._in_flight[owner]:
            del self._in_flight[owner]

    def _repeat(self, refusal: Refusal, owner: str, scope: Scope) -> None:
        """Repeat the refusal for its operation. A path that does not exist is never refused for the limit."""
        until_s = self._clock() + REPEATED_MAX_S
        if isinstance(refusal, RateLimited):
            refused, below, until_s = limited_by(owner, scope), 0, min(until_s, refusal.free_at_s or 0.0)
        else:
            in_flight = self._in_flight[owner]
            refused, below = owner, max(1, in_flight - in_flight // 8)
        if refused not in (WITHOUT_KEY, UNKNOWN_KEY):
            self._repeated[refused, operation_of(scope)] = Repeated(refusal, below, until_s)

    def _part(self, places: int) -> int:
        """Return the equal part of an organization, when one part is left for another one to come."""
        return max(1, places // (len(self._in_flight) + 1))

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
        """Adapt to the lag of the event loop, and forget refusals that are not repeated any more."""
        now_s, self._refused_in_tick = self._clock(), 0
        if self._repeated:
            self._repeated = {key: each for key, each in self._repeated.items() if each.until_s > now_s}
        if lag_s <= LATE_S:
            self._late_since_s = None
            if self._places is not None:
                grown = self._places + self._places // 4
                self._places = grown if grown < PLACES_MAX else None
            return
        if self._late_since_s is None:
            self._late_since_s = now_s - lag_s
        if self._places is not None or now_s - self._late_since_s >= LATE_FOR_S:
            self._places = max(PLACES_MIN, (self._places or PLACES_MAX) // 2)
            self._late = busy(2 * lag_s, LATE)


class AdmissionMiddleware:
    """Refuses requests that are not admitted, and counts the others while they are processed."""

    def __init__(self, app: ASGIApp, *, admission: Admission) -> None:
        self.app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        admission = self._admission
        owner = admission.owner_of(scope)
        refusal = admission.refusal(owner, scope)
        if refusal is None or path_of(scope) in PROBES:
            refusals = scope[REFUSALS] = []
            admission.begin(owner)
            try:
                await self.app(scope, receive, send)
            finally:
                admission.end(owner, scope, refusals)
        else:
            if isinstance(refusal, Unavailable):
                scope[REASON] = refusal.reason
            await asyncio.sleep(admission.pause_s())
            await read_body(scope, receive)  # or the connection would be closed
            await respond(refusal, scope, receive, send)


def operation_of(scope: Scope) -> Operation:
    """Return the operation of a request, found without its route."""
    parts = path_of(scope).split("/")
    return scope["method"], len(parts), "/".join(parts[:4])


def limited_by(owner: str, scope: Scope) -> str:
    """Return the key or the address whose limit may refuse a request; where that has to be looked up, its owner.

    An unknown key with a right checksum is looked up even if its address exceeds its limit.
    """
    if owner != WITHOUT_KEY:
        key = bearer_token(scope["headers"])
        if owner != UNKNOWN_KEY:
            return f"key {hash(key)}"
        if tokens.has_checksum(key):
            return owner
    client = scope.get("client")
    return f"address {network_of(client[0] if client else '')}"
