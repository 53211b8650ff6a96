"""Admission: refuses requests above what the process can do, before anything is done for them.

A request that reaches the application is parsed, routed, queued for a thread and observed. Where all of that ends in a
refusal, it costs ten times what a refusal by the protocol class does, and the processor time of as many bookings. Two
rules decide, and both look only at the requests in flight of an organization:

- An organization whose request a queue has refused is given the same answer again for that operation while it has
  nearly as many requests in flight as the queue had room for: until a quarter of them have been answered, at most for
  the `Retry-After` that it was told.
- Once the event loop has been late for a second, an organization has an equal part of the places in flight. Every tick
  at which it is late halves the places; they grow again when it is on time, until there is no bound.

An organization with few requests in flight is refused by neither, whatever others do. Requests whose key this process
has not seen to be valid share one part, and so do those without a key.

A third rule is for one key, and for all requests of an address whose keys were not seen to be valid. When the rate
limit has refused them an operation, they get the same answer again for that operation until the bucket has a token, at
most for a second: an answer that follows from the clock alone needs neither a thread nor a look-up of the key, which
other organizations wait for.

A refusal is sent at once while there are few. In a flood of them, a client that asks again over the same connection
before its `Retry-After` is over gets the next one when it is over, a second later at most. So a connection costs one
refusal a second, however impatient its client is.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from booking_core.base import tokens
from booking_core.base.errors import RateLimited, Unavailable
from booking_server.execution.executor import busy
from booking_server.execution.rate_limit import RATE
from booking_server.http.framing import RequestHead

log = logging.getLogger("booking.http")

STATE = "admission"
"""The key of the admission in the lifespan's state."""
TICK_S = 0.1
LATE_S = 0.1
"""The lag above which the event loop is late. A pause of the garbage collector is shorter."""
LATE_FOR_S = 1.0
"""Seconds of lateness without a break before anything is refused for it. A burst of hundreds of requests is shorter."""
PLACES_MIN, PLACES_MAX = 256, 2048
"""Requests in flight, of all organizations together, while the event loop is late. The fewest keep the batches full;
above the most nothing is refused for being late."""
LOG_S = 10.0
"""The seconds between two lines about refusals."""
LATE = "late"
"""The reason of refusals while the event loop is late."""
LIMITED_MAX_S = 1.0
"""The longest time for which the refusal of a key or an address is repeated before the limiter and the database are
asked again: the key may have been revoked, or the bucket be forgotten."""
AT_ONCE = 50
"""Refusals in a tick that are sent at once; from then on clients that do not wait have to."""
DELAY_MAX_S = 1.0
"""The longest delay of a refusal: the shortest `Retry-After`, and a tenth of the time after which clients give up."""
PROBES = frozenset({b"/healthz", b"/readyz", b"/metrics"})
"""Paths that are never refused here."""

_KEYS_MAX = 20_000

Client = tuple[str, bytes]
"""The host of the connection, and the X-Forwarded-For of the request where proxies are trusted."""
Subject = int | Client
"""The hash of a key's header, or a client without a valid key: that which a rate limit is for."""
Operation = tuple[str, int, bytes]
"""The method, the number of parts of the path, and the first ones. It tells lists from single resources."""


class Owner:
    """An organization, all requests without a key, or all with a key that was not seen to be valid."""

    __slots__ = ("in_flight", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0


@dataclass(frozen=True, slots=True)
class Hold:
    """An operation that a queue has refused an organization."""

    above: int
    """It is over when the organization has no more requests in flight."""
    below: int
    """A request is admitted while the organization has fewer in flight: one for each that is answered."""
    refusal: Unavailable
    until_s: float


class Admission:
    """Decides which requests of a process reach the application. Used on the event loop only.

    Args:
        organization_of: returns the organization of an Authorization header's value whose key was valid when it was
            last looked up.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, organization_of: Callable[[bytes], str | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_pressed = False
        """A request may have to be refused; otherwise `refusal` need not be called."""
        self.observe: Callable[[str, int], None] = _ignore
        """Called with a reason and the number of refusals since the last call."""
        self._organization_of = organization_of
        self._clock = clock
        self._unknown = Owner("(unknown key)")
        self._without_key = Owner("(no key)")
        self._by_key: dict[int, Owner] = {}
        """By the hash of the header's value, which tells nothing of the key."""
        self._by_organization: dict[str, Owner] = {}
        self._forget()
        self._active = 0
        """Owners with requests in flight."""
        self._holds: dict[tuple[Owner, Operation], Hold] = {}
        self._limited: dict[tuple[Subject, Operation], tuple[float, RateLimited]] = {}
        """Until when an operation is refused by a rate limit, and the refusal."""
        self._places: int | None = None
        """None without a bound."""
        self._late_since_s: float | None = None
        self._late = busy(0, LATE)
        self._refused: Counter[str] = Counter()
        """By reason, since the last tick."""
        self._refused_in_tick = 0
        self._refused_of: Counter[str] = Counter()
        """By owner, since the last line of the log."""
        self._logged_s = float("-inf")

    # Each request ----------------------------------------------------------------------------------------------------

    def refusal(self, head: RequestHead) -> Unavailable | None:
        """Return the refusal of a request, or None if it is admitted."""
        owner = self._by_key.get(hash(head.authorization), self._unknown)
        if not owner.in_flight:
            return None
        found = self._held(owner, head)
        if found is None and self._places is not None and owner.in_flight >= self._part(self._places):
            found = self._late
        if found is None or _path(head.target) in PROBES:
            return None
        self._refused[found.reason] += 1
        self._refused_in_tick += 1
        self._refused_of[owner.name] += 1
        return found

    def of_rate_limit(self, head: RequestHead, client: Client) -> RateLimited | None:
        """Return the refusal of a request whose key is known to have no token of its rate limit, or whose client, where
        its key was not seen to be valid."""
        if not self._limited:
            return None
        place: tuple[Subject, Operation] = hash(head.authorization), operation_of(head)
        found = self._limited.get(place)
        if found is None and self._organization_of(head.authorization) is None and not _may_be_key(head.authorization):
            place = client, place[1]
            found = self._limited.get(place)
        if found is None:
            return None
        (until_s, refusal), now_s = found, self._clock()
        if now_s >= until_s:
            del self._limited[place]
            return None
        self._refused[RATE] += 1
        self._refused_in_tick += 1
        retry_after_s = max(1, math.ceil((refusal.free_at_s or 0) - now_s))
        return RateLimited(retry_after_s, headers=refusal.headers, of_address=refusal.of_address)

    def next_refusal_s(self, refusal: Unavailable | RateLimited) -> float:
        """Return the time from which on a client that gets this refusal now is refused again without a delay."""
        return self._clock() + min(refusal.retry_after_s, DELAY_MAX_S)

    def delay_s(self, next_refusal_s: float) -> float:
        """Return the seconds after which a client that was refused before may get the next refusal."""
        if self._refused_in_tick <= AT_ONCE:
            return 0.0
        return max(0.0, next_refusal_s - self._clock())

    def begin(self, head: RequestHead) -> Owner:
        """Count a request that is admitted, and return its owner."""
        owner = self._by_key.get(hash(head.authorization), self._unknown)
        if not owner.in_flight:
            self._active += 1
        owner.in_flight += 1
        return owner

    def end(
        self, owner: Owner, head: RequestHead, client: Client, refusals: Sequence[Unavailable | RateLimited] = ()
    ) -> None:
        """Note that a request is no longer in flight.

        Args:
            refusals: the refusal by a queue, or by a rate limit, if that was the response.
        """
        owner.in_flight -= 1
        if not owner.in_flight:
            self._active -= 1
        if owner is self._unknown:
            self._recognize(head.authorization)
        for refusal in refusals:
            if isinstance(refusal, RateLimited):
                self._limit(refusal, client if refusal.of_address else hash(head.authorization), head)
            elif owner is not self._unknown and owner is not self._without_key:
                self._hold(refusal, owner, head)

    def _held(self, owner: Owner, head: RequestHead) -> Unavailable | None:
        if not self._holds:
            return None
        operation = operation_of(head)
        hold = self._holds.get((owner, operation))
        if hold is None:
            return None
        if owner.in_flight <= hold.above:
            del self._holds[owner, operation]
            return None
        return hold.refusal if owner.in_flight >= hold.below else None

    def _part(self, places: int) -> int:
        """Return the equal part of an organization, when one part is left for another one to come."""
        return max(1, places // (self._active + 1))

    def _recognize(self, authorization: bytes) -> None:
        organization = self._organization_of(authorization)
        if organization is None:
            return
        if len(self._by_key) >= _KEYS_MAX:
            self._forget()
        owner = self._by_organization.setdefault(organization, Owner(organization))
        self._by_key[hash(authorization)] = owner

    def _forget(self) -> None:
        self._by_key = {hash(b""): self._without_key}
        self._by_organization = {}

    def _hold(self, refusal: Unavailable, owner: Owner, head: RequestHead) -> None:
        """Refuse the organization that operation for now. One request at a time may always ask the queue."""
        until_s = self._clock() + refusal.retry_after_s
        in_flight = owner.in_flight
        above, below = in_flight - max(1, in_flight // 4), in_flight - max(1, in_flight // 8)
        self._holds[owner, operation_of(head)] = Hold(above, below, refusal, until_s)
        self.is_pressed = True

    def _limit(self, refusal: RateLimited, subject: Subject, head: RequestHead) -> None:
        """Refuse that operation until the subject has a token. Only what was refused before: a path that does not exist
        is never refused for the limit."""
        until_s = min(refusal.free_at_s or 0.0, self._clock() + LIMITED_MAX_S)
        self._limited[subject, operation_of(head)] = until_s, refusal
        self.is_pressed = True

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
            due_s = self._clock() + TICK_S
            await asyncio.sleep(TICK_S)
            try:
                self.tick(self._clock() - due_s)
            except Exception:  # without ticks nothing would ever be admitted again
                log.exception("refusals above capacity could not be reported")

    def tick(self, lag_s: float) -> None:
        """Adapt to the lag of the event loop, forget holds that have expired, and report refusals."""
        now_s = self._clock()
        self._adapt(now_s, lag_s)
        if self._holds:
            self._holds = {key: hold for key, hold in self._holds.items() if hold.until_s > now_s}
        if self._limited:
            self._limited = {key: each for key, each in self._limited.items() if each[0] > now_s}
        self.is_pressed = self._places is not None or bool(self._holds) or bool(self._limited)
        refused, self._refused, self._refused_in_tick = self._refused, Counter(), 0
        for reason, count in refused.items():
            self.observe(reason, count)
        if self._refused_of:
            self._log(now_s)

    def _adapt(self, now_s: float, lag_s: float) -> None:
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

    def _log(self, now_s: float) -> None:
        if now_s - self._logged_s < LOG_S:
            return
        total, ((most, count),) = self._refused_of.total(), self._refused_of.most_common(1)
        fields = {"requests": total, "organization_id": most, "of_organization": count}
        log.warning("refused %d requests above capacity, most of them of %s: %d", total, most, count, extra=fields)
        self._refused_of.clear()
        self._logged_s = now_s


def operation_of(head: RequestHead) -> Operation:
    """Return what the request asks for, without the ids in its path."""
    parts = _path(head.target).split(b"/")
    return head.method, len(parts), b"/".join(parts[:4])


def _may_be_key(authorization: bytes) -> bool:
    """Return whether a header has a key with a right checksum, which is looked up even where its address is over its
    limit."""
    return tokens.has_checksum(authorization.rpartition(b" ")[2].decode("latin-1"))


def _path(target: bytes) -> bytes:
    return target.partition(b"?")[0]


def _ignore(_reason: str, _count: int) -> None:
    """Observe nothing."""
