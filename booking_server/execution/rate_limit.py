"""The rate limit of a key, or of an address that sends none (decision K5): a token bucket for each.

A bucket holds as many tokens as the limit allows and fills evenly over its window. In memory for one process, in Redis
for several; when Redis does not answer, the request goes through: the limiter protects the service, it is not part
of it. `failed_open` counts these requests.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from booking_core.base.errors import RateLimited
from booking_core.base.settings import RateLimit

log = logging.getLogger("booking.rate_limit")

ANONYMOUS = RateLimit(60, 60)
"""Requests without a valid key, for each client address."""

LOOK_UPS = RateLimit(20, 10)
"""Look-ups of keys that this process has not seen, for each client address over its limit (decision K5)."""
LOOK_UPS_RESERVED = 10
"""Of these, for keys with a right checksum: guesses of strangers at the same address mostly have a wrong one."""
LOOK_UPS_OF_WRONG_KEY = RateLimit(1, 60)
"""Look-ups of a wrong key from addresses over their limit: a client that repeats it leaves theirs to others."""

_BUCKETS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of the x-ratelimit headers."""

    limit: int
    remaining: int
    reset: int
    """The Unix time, in seconds, when the bucket is full again."""
    retry_after_s: int = 0
    """More than 0: this request is one too many."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-ratelimit-limit", b"%d" % self.limit),
            (b"x-ratelimit-remaining", b"%d" % self.remaining),
            (b"x-ratelimit-reset", b"%d" % self.reset),
        ]

    def refusal(self) -> RateLimited:
        """Return the refusal of a request whose key or address exceeds its limit."""
        return RateLimited(self.retry_after_s)


Ask = tuple[str, RateLimit]
"""The name of a bucket, and its limit."""


def _reading(limit: RateLimit, tokens: float, now: float, is_counted: bool) -> Reading:
    per_second = limit.requests / limit.seconds
    reset = math.ceil(now + (limit.requests - tokens) / per_second)
    if is_counted:
        return Reading(limit.requests, int(tokens), reset)
    return Reading(limit.requests, int(tokens), reset, max(1, math.ceil((1 - tokens) / per_second)))


class MemoryLimiter:
    """Buckets of this process."""

    failed_open = 0
    """Requests that passed uncounted, since the store did not answer: none."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, name: str, limit: RateLimit) -> Reading:
        """Take one token."""
        now = self._now()
        with self._lock:
            tokens = self._tokens(name, limit, now)
            is_counted = tokens >= 1
            tokens -= is_counted
            if len(self._buckets) >= _BUCKETS_MAX and name not in self._buckets:
                self._forget_oldest()
            self._buckets[name] = tokens, now
        return _reading(limit, tokens, now, is_counted)

    def take_many(self, asks: Sequence[Ask]) -> list[Reading]:
        """Take one token for each request of a batch, in order; a reading with `retry_after_s` where there was none."""
        return [self.take(name, limit) for name, limit in asks]

    def peek(self, name: str, limit: RateLimit) -> Reading:
        """Return the reading of a request that takes nothing."""
        now = self._now()
        with self._lock:
            tokens = self._tokens(name, limit, now)
        return _reading(limit, tokens, now, tokens >= 1)

    def ping(self) -> None:
        """Do nothing: memory always answers."""

    def _tokens(self, name: str, limit: RateLimit, now: float) -> float:
        tokens, since = self._buckets.get(name, (float(limit.requests), now))
        # A clock that steps back must not empty a bucket.
        return min(limit.requests, tokens + max(0.0, now - since) * limit.requests / limit.seconds)

    def _forget_oldest(self) -> None:
        """Drop the half that was used least recently, which bounds the memory."""
        by_age = sorted(self._buckets, key=lambda name: self._buckets[name][1])
        for name in by_age[: len(by_age) // 2]:
            del self._buckets[name]


_TAKE = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local answer = {tostring(now)}
for i, key in ipairs(KEYS) do
    local state = redis.call('HMGET', key, 'tokens', 'since')
    local capacity, seconds = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    local gained = math.max(0, now - (tonumber(state[2]) or now)) * capacity / seconds
    local tokens = math.min(capacity, (tonumber(state[1]) or capacity) + gained)
    local taken = tokens >= 1 and 1 or 0
    if ARGV[1] == '1' then
        tokens = tokens - taken
        redis.call('HSET', key, 'tokens', tostring(tokens), 'since', tostring(now))
        redis.call('EXPIRE', key, math.ceil(seconds) + 1)
    end
    answer[i + 1] = taken .. ' ' .. tostring(tokens)
end
return table.concat(answer, ' ')
"""
"""Takes a token from each bucket, or reads it; returns the time, and for each bucket whether a token was taken and how
many are left. The client parses one text in a third of the time of a list."""

_TIMEOUT_S = 0.2
"""The longest wait for the store, in seconds."""
_QUIET_S = 1.0
"""A store that failed is not called again for so long: each batch would wait for its time-out."""


class RedisLimiter:
    """Buckets that several processes share, on the clock of the Redis server. A batch is one call of a script."""

    def __init__(self, url: str) -> None:
        import redis  # an extra: only an operator with several processes has it
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._error = redis.RedisError
        # A connection that the server has closed is opened again. A call that timed out is not repeated.
        retry = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=retry
        )
        self._script: Any = self._client.register_script(_TAKE)
        self._quiet_until_s = 0.0
        self.failed_open = 0

    def take_many(self, asks: Sequence[Ask]) -> list[Reading]:
        return self._read(asks, takes=1)

    def peek(self, name: str, limit: RateLimit) -> Reading:
        return self._read([(name, limit)], takes=0)[0]

    def ping(self) -> None:
        """Raise an error if the server does not answer."""
        self._client.ping()

    def _read(self, asks: Sequence[Ask], *, takes: int) -> list[Reading]:
        if not asks:
            return []
        try:
            if time.monotonic() >= self._quiet_until_s:
                return self._readings(asks, takes)
        except self._error as error:
            log.warning("the rate limit store does not answer, the request goes through: %s", type(error).__name__)
            self._quiet_until_s = time.monotonic() + _QUIET_S
        self.failed_open += len(asks)
        return [Reading(limit.requests, limit.requests, math.ceil(time.time())) for _, limit in asks]

    def _readings(self, asks: Sequence[Ask], takes: int) -> list[Reading]:
        names = [f"booking:rate:{name}" for name, _ in asks]
        limits = [number for _, limit in asks for number in (limit.requests, limit.seconds)]
        now, *states = map(float, self._script(names, [takes, *limits]).split())
        buckets = zip(asks, states[::2], states[1::2], strict=True)
        return [_reading(limit, tokens, now, bool(is_counted)) for (_, limit), is_counted, tokens in buckets]


Limiter = MemoryLimiter | RedisLimiter
"""Counts requests by a name."""


def open_limiter(store: str) -> Limiter:
    """Return the limiter of a store's URL."""
    return MemoryLimiter() if store.startswith("memory://") else RedisLimiter(store)
