"""How often a key, or an address that sends none, may call (decision K5): a token bucket for each.

A bucket holds as many tokens as the limit allows and fills evenly over its window. In memory for one process, in Redis
for several; when Redis does not answer, the request goes through: the limiter protects the service, it is not part
of it.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from booking_core.settings import RateLimit
from booking_server.execution.clients import network_of

log = logging.getLogger("booking.rate_limit")

ANONYMOUS = RateLimit(60, 60)
"""Requests without a valid key, for each client address."""

_BUCKETS_MAX = 100_000


def anonymous_bucket(address: str) -> str:
    """Return the name of the bucket of clients without a valid key at that address."""
    return f"address:{network_of(address)}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the x-ratelimit headers say."""

    limit: int
    remaining: int
    reset: int
    """Unix seconds at which the bucket is full again."""
    retry_after_s: int = 0
    """More than 0: this request is one too many."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-ratelimit-limit", b"%d" % self.limit),
            (b"x-ratelimit-remaining", b"%d" % self.remaining),
            (b"x-ratelimit-reset", b"%d" % self.reset),
        ]


class Limiter(Protocol):
    """Counts requests by a name."""

    failures: int
    """The number of times that the store did not answer, so that requests were let through."""

    def take(self, name: str, limit: RateLimit) -> Reading:
        """Takes one token; a reading with `retry_after_s` when there was none."""
        ...

    def peek(self, name: str, limit: RateLimit) -> Reading:
        """Return what `take` would say of a bucket that is empty, and take nothing."""
        ...

    def ping(self) -> None:
        """Raise an error if the store does not answer."""
        ...


def _reading(limit: RateLimit, tokens: float, now: float, taken: bool) -> Reading:
    per_second = limit.requests / limit.seconds
    full_in = (limit.requests - tokens) / per_second
    wait = 0 if taken else max(1, math.ceil((1 - tokens) / per_second))
    return Reading(limit.requests, int(tokens), math.ceil(now + full_in), wait)


class MemoryLimiter:
    """Buckets of this process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.failures = 0
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def _tokens(self, name: str, limit: RateLimit, now: float) -> float:
        tokens, since = self._buckets.get(name, (float(limit.requests), now))
        # A clock that steps back must not empty a bucket.
        return min(limit.requests, tokens + max(0.0, now - since) * limit.requests / limit.seconds)

    def peek(self, name: str, limit: RateLimit) -> Reading:
        now = self._now()
        with self._lock:
            tokens = self._tokens(name, limit, now)
        return _reading(limit, tokens, now, tokens >= 1)

    def ping(self) -> None:
        """Do nothing: memory always answers."""

    def take(self, name: str, limit: RateLimit) -> Reading:
        now = self._now()
        with self._lock:
            tokens = self._tokens(name, limit, now)
            taken = tokens >= 1
            tokens -= taken
            if len(self._buckets) >= _BUCKETS_MAX and name not in self._buckets:
                self._forget_oldest()
            self._buckets[name] = tokens, now
        return _reading(limit, tokens, now, taken)

    def _forget_oldest(self) -> None:
        """Drops the half that was used least lately, so that memory stays flat whoever calls."""
        by_age = sorted(self._buckets, key=lambda name: self._buckets[name][1])
        for name in by_age[: len(by_age) // 2]:
            del self._buckets[name]


_TAKE = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'since')
local capacity, rate = tonumber(ARGV[1]), tonumber(ARGV[1]) / tonumber(ARGV[2])
local gained = math.max(0, now - (tonumber(state[2]) or now)) * rate
local tokens = math.min(capacity, (tonumber(state[1]) or capacity) + gained)
local taken = tokens >= 1 and 1 or 0
if ARGV[3] == '0' then
    return {taken, tostring(tokens), tostring(now)}
end
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'since', tostring(now))
redis.call('EXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2])) + 1)
return {taken, tostring(tokens), tostring(now)}
"""


_QUIET_S = 1.0
"""A store that failed is not asked again for so long: each request would wait for its time-out."""


def _unlimited(limit: RateLimit) -> Reading:
    return Reading(limit.requests, limit.requests, math.ceil(time.time()))


class RedisLimiter:
    """Buckets that several processes share, on the clock of the Redis server."""

    def __init__(self, url: str) -> None:
        import redis  # an extra: only an operator with several processes has it

        self._error = redis.RedisError
        client: Any = redis.Redis.from_url(url, socket_timeout=0.2, socket_connect_timeout=0.2)
        self._client = client
        self._script = client.register_script(_TAKE)
        self._quiet_until = 0.0
        self.failures = 0

    def ping(self) -> None:
        """Raise an error if the server does not answer."""
        self._client.ping()

    def take(self, name: str, limit: RateLimit) -> Reading:
        return self._asked(name, limit, takes=1)

    def peek(self, name: str, limit: RateLimit) -> Reading:
        return self._asked(name, limit, takes=0)

    def _asked(self, name: str, limit: RateLimit, *, takes: int) -> Reading:
        if time.monotonic() < self._quiet_until:
            return _unlimited(limit)
        try:
            taken, tokens, now = self._script(
                keys=[f"booking:rate:{name}"], args=[limit.requests, limit.seconds, takes]
            )
        except self._error as error:
            self.failures += 1
            log.warning("the rate limit store does not answer, the request goes through: %s", type(error).__name__)
            self._quiet_until = time.monotonic() + _QUIET_S
            return _unlimited(limit)
        return _reading(limit, float(tokens), float(now), bool(taken))


def open_limiter(store: str) -> Limiter:
    """The limiter of that store's URL."""
    return MemoryLimiter() if store.startswith("memory://") else RedisLimiter(store)
