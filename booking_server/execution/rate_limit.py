"""How often a key, or an address that sends none, may call (decision K5): a token bucket for each.

A bucket holds as many tokens as the limit allows and fills evenly over its window. In memory for one process, in Redis
for several; when Redis does not answer, the request goes through: the limiter protects the service, it is not part
of it. `failed_open` counts these requests.
"""

import asyncio
import hashlib
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from booking_core.base.errors import RateLimited
from booking_core.base.settings import RateLimit
from booking_server.execution.clients import network_of

log = logging.getLogger("booking.rate_limit")

ANONYMOUS = RateLimit(60, 60)
"""Requests without a valid key, for each client address."""

LOOK_UPS = RateLimit(20, 10)
"""Look-ups of keys that this process has not seen, for each client address over its limit (decision K5)."""
LOOK_UPS_RESERVED = 10
"""Of these, for keys with a right checksum: guesses of strangers at the same address mostly have a wrong one."""

_BUCKETS_MAX = 100_000
_AHEAD_MAX = 128
"""Requests that are counted by one call."""


def anonymous_bucket(address: str, kind: str = "address") -> str:
    """Return the name of the bucket of clients without a valid key at that address.

    Args:
        kind: requests with another kind have a separate bucket.
    """
    return f"{kind}:{network_of(address)}"


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of the x-ratelimit headers."""

    limit: int
    remaining: int
    reset: int
    """Unix seconds at which the bucket is full again."""
    retry_after_s: int = 0
    """More than 0: this request is one too many."""
    free_at_s: float = field(default=0.0, compare=False)
    """Monotonic seconds before which the bucket has no token, where this request is one too many."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"x-ratelimit-limit", b"%d" % self.limit),
            (b"x-ratelimit-remaining", b"%d" % self.remaining),
            (b"x-ratelimit-reset", b"%d" % self.reset),
        ]

    def refusal(self) -> RateLimited:
        """Return the refusal of a request whose key, or else its address, is over its limit."""
        return RateLimited(self.retry_after_s, free_at_s=self.free_at_s, headers=self.headers)


Ask = tuple[str, RateLimit]
"""The name of a bucket, and its limit."""


class Limiter(Protocol):
    """Counts requests by a name."""

    failed_open: int
    """Requests that passed uncounted, since the store did not answer."""
    is_remote: bool
    """The store is asked over a socket: on the event loop where possible, so that no thread waits for it."""

    def take_ahead(self, ask: Ask) -> "asyncio.Future[Reading]":
        """Take one token as `take` does, on the event loop, together with the requests that wait there."""
        ...

    async def aclose(self) -> None:
        """Close the connection of the event loop."""
        ...

    def take(self, name: str, limit: RateLimit) -> Reading:
        """Takes one token; a reading with `retry_after_s` when there was none."""
        ...

    def take_many(self, asks: Sequence[Ask]) -> list[Reading]:
        """Take one token for each request of a batch, in order, as `take` does."""
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
    reset = math.ceil(now + full_in)
    if taken:
        return Reading(limit.requests, int(tokens), reset)
    wait_s = (1 - tokens) / per_second
    return Reading(limit.requests, int(tokens), reset, max(1, math.ceil(wait_s)), time.monotonic() + wait_s)


class MemoryLimiter:
    """Buckets of this process."""

    failed_open = 0
    is_remote = False

    def __init__(self, now: Callable[[], float] = time.time) -> None:
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

    def take_many(self, asks: Sequence[Ask]) -> list[Reading]:
        return [self.take(name, limit) for name, limit in asks]

    def take_ahead(self, ask: Ask) -> "asyncio.Future[Reading]":
        taken: asyncio.Future[Reading] = asyncio.get_running_loop().create_future()
        taken.set_result(self.take(*ask))
        return taken

    async def aclose(self) -> None:
        """Do nothing: memory has no connection."""

    def _forget_oldest(self) -> None:
        """Drops the half that was used least lately, so that memory stays flat whoever calls."""
        by_age = sorted(self._buckets, key=lambda name: self._buckets[name][1])
        for name in by_age[: len(by_age) // 2]:
            del self._buckets[name]


_TAKE = b"""
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
"""Takes a token from each bucket, or looks at it; returns the time, and for each if it was taken and what is left. One
text is a third of the work of a list of them, for the client that parses it."""
_TAKE_SHA = hashlib.sha1(_TAKE, usedforsecurity=False).hexdigest().encode()


_TIMEOUT_S = 0.2
"""Seconds in which the store answers."""
_QUIET_S = 1.0
"""A store that failed is not asked again for so long: each request would wait for its time-out."""


def _unlimited(limit: RateLimit) -> Reading:
    return Reading(limit.requests, limit.requests, math.ceil(time.time()))


class RedisLimiter:
    """Buckets that several processes share, on the clock of the Redis server.

    A batch is one call of a script. It is written and read by redis-py's connection without its client, which costs ten
    times what the socket does (`decisions/0042`). Requests of known keys are counted on the event loop, before they go
    to a thread (`decisions/0048`); for the others each thread has a connection of its own.
    """

    is_remote = True

    def __init__(self, url: str) -> None:
        import redis  # an extra: only an operator with several processes has it

        self._errors = redis
        self._client: Any = redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
        self._connections: Any = self._client.connection_pool
        self._of_thread = threading.local()
        self._of_loop: _LoopCounter | None = None
        self._url = url
        self._quiet_until = 0.0
        self.failed_open = 0

    def ping(self) -> None:
        """Raise an error if the server does not answer."""
        self._client.ping()

    def take(self, name: str, limit: RateLimit) -> Reading:
        return self.take_many([(name, limit)])[0]

    def take_many(self, asks: Sequence[Ask]) -> list[Reading]:
        return self._asked(asks, b"1")

    def peek(self, name: str, limit: RateLimit) -> Reading:
        return self._asked([(name, limit)], b"0")[0]

    def take_ahead(self, ask: Ask) -> "asyncio.Future[Reading]":
        counter, loop = self._of_loop, asyncio.get_running_loop()
        if counter is None or counter.loop is not loop:
            counter = self._of_loop = _LoopCounter(self._url, loop, self._taken)
        return counter.take(ask)

    async def aclose(self) -> None:
        if self._of_loop:
            await self._of_loop.aclose()
            self._of_loop = None

    async def _taken(self, call: "AsyncCall", asks: Sequence[Ask]) -> list[Reading]:
        """Take a token for each request of a batch on the event loop."""
        if time.monotonic() < self._quiet_until:
            return self._passed(asks)
        arguments = _arguments(asks, b"1")
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                try:
                    answer = await call(_packed([b"EVALSHA", _TAKE_SHA, *arguments]))
                except self._errors.exceptions.NoScriptError:
                    answer = await call(_packed([b"EVAL", _TAKE, *arguments]))
            return _readings(asks, answer)
        except (self._errors.RedisError, OSError, TimeoutError) as error:
            return self._failed(asks, error)

    def _asked(self, asks: Sequence[Ask], takes: bytes) -> list[Reading]:
        if not asks:
            return []
        if time.monotonic() < self._quiet_until:
            return self._passed(asks)
        try:
            return _readings(asks, self._call(asks, takes))
        except self._errors.RedisError as error:
            return self._failed(asks, error)

    def _failed(self, asks: Sequence[Ask], error: Exception) -> list[Reading]:
        """Let a batch through, and those of the next moment."""
        log.warning("the rate limit store does not answer, the request goes through: %s", type(error).__name__)
        self._quiet_until = time.monotonic() + _QUIET_S
        return self._passed(asks)

    def _passed(self, asks: Sequence[Ask]) -> list[Reading]:
        self.failed_open += len(asks)
        return [_unlimited(limit) for _, limit in asks]

    def _call(self, asks: Sequence[Ask], takes: bytes) -> bytes:
        """Run the script by its hash; by its text where the server does not have it, since it was restarted."""
        arguments = _arguments(asks, takes)
        try:
            return self._sent(_packed([b"EVALSHA", _TAKE_SHA, *arguments]))
        except self._errors.exceptions.NoScriptError:
            return self._sent(_packed([b"EVAL", _TAKE, *arguments]))

    def _sent(self, command: bytes) -> bytes:
        """Send a command and return its answer; once more when the server has closed the connection meanwhile."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = self._connections.make_connection()
        try:
            return _answer(connection, command)
        except self._errors.TimeoutError:
            raise
        except self._errors.ConnectionError:
            return _answer(connection, command)


AsyncCall = Callable[[bytes], Awaitable[bytes]]
"""Sends a packed command and returns its answer."""


class _LoopCounter:
    """Takes tokens for the requests of one event loop: while a batch is asked for, the next one gathers."""

    def __init__(
        self,
        url: str,
        loop: asyncio.AbstractEventLoop,
        taken: Callable[[AsyncCall, Sequence[Ask]], Awaitable[list[Reading]]],
    ) -> None:
        from redis import asyncio as redis_asyncio
        from redis import exceptions

        self.loop = loop
        self._lost = exceptions.ConnectionError
        connections: Any = redis_asyncio.ConnectionPool.from_url(url)
        self._connection = connections.make_connection()
        self._taken = taken
        self._waiting: list[tuple[Ask, asyncio.Future[Reading]]] = []
        self._task: asyncio.Task[None] | None = None

    def take(self, ask: Ask) -> "asyncio.Future[Reading]":
        future: asyncio.Future[Reading] = self.loop.create_future()
        self._waiting.append((ask, future))
        if self._task is None:
            self._task = self.loop.create_task(self._run())
        return future

    async def aclose(self) -> None:
        await self._connection.disconnect()

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_AHEAD_MAX], self._waiting[_AHEAD_MAX:]
            readings = await self._taken(self._call, [ask for ask, _ in batch])
            for (_, future), reading in zip(batch, readings, strict=True):
                if not future.done():  # its client has disconnected
                    future.set_result(reading)
        self._task = None

    async def _call(self, command: bytes) -> bytes:
        """Send a command and return its answer; once more when the server has closed the connection meanwhile."""
        was_connected = self._connection.is_connected
        try:
            return await self._answer(command)
        except self._lost:
            if not was_connected:
                raise
            return await self._answer(command)

    async def _answer(self, command: bytes) -> bytes:
        await self._connection.send_packed_command(command, check_health=False)
        answer: bytes = await self._connection.read_response()
        return answer


def _arguments(asks: Sequence[Ask], takes: bytes) -> list[bytes]:
    """Return the arguments of the script."""
    arguments = [b"%d" % len(asks), *(b"booking:rate:" + name.encode() for name, _ in asks), takes]
    for _, limit in asks:
        arguments += (b"%d" % limit.requests, b"%d" % limit.seconds)
    return arguments


def _packed(parts: Sequence[bytes]) -> bytes:
    """Return a command as the server reads it."""
    return b"*%d\r\n%b" % (len(parts), b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))


def _answer(connection: Any, command: bytes) -> bytes:
    connection.send_packed_command([command], check_health=False)
    answer: bytes = connection.read_response()
    return answer


def _readings(asks: Sequence[Ask], answer: bytes) -> list[Reading]:
    """Return the readings of a batch from the answer of the script."""
    now, *found = map(float, answer.split())
    pairs = zip(asks, found[::2], found[1::2], strict=True)
    return [_reading(limit, tokens, now, bool(taken)) for (_, limit), taken, tokens in pairs]


def open_limiter(store: str) -> Limiter:
    """The limiter of that store's URL."""
    return MemoryLimiter() if store.startswith("memory://") else RedisLimiter(store)
