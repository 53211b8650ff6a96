"""The rate limit: buckets that fill with time, in memory and in Redis (decision K5)."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.serving.servers import free_port

from booking_core.base.settings import RateLimit
from booking_server.execution import rate_limit
from booking_server.execution.rate_limit import Limiter, MemoryLimiter, Reading, RedisLimiter, open_limiter

TEN = RateLimit(10, 60)
START = 1_795_262_400.0


class Clock:
    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> MemoryLimiter:
    return MemoryLimiter(clock)


def take(limiter: Limiter, name: str = "key:1", limit: RateLimit = TEN) -> Reading:
    (reading,) = limiter.take_many([(name, limit)])
    return reading


def outcomes(limiter: Limiter, count: int, name: str = "key:1", limit: RateLimit = TEN) -> list[bool]:
    """Return for each of so many requests if it passes."""
    return [not take(limiter, name, limit).retry_after_s for _ in range(count)]


# In memory, by a clock that the test moves ---------------------------------------------------------------------------


def test_the_headers_count_down_and_tell_when_the_bucket_is_full_again(limiter: MemoryLimiter) -> None:
    readings = [take(limiter) for _ in range(11)]
    assert [reading.remaining for reading in readings] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert {reading.limit for reading in readings} == {10}
    assert [reading.reset for reading in readings[:2]] == [START + 6, START + 12]
    assert readings[-1].reset == START + 60
    assert readings[3].headers == [
        (b"x-ratelimit-limit", b"10"),
        (b"x-ratelimit-remaining", b"6"),
        (b"x-ratelimit-reset", b"%d" % (START + 24)),
    ]


def test_a_refusal_says_after_how_many_seconds_the_next_will_pass(limiter: MemoryLimiter, clock: Clock) -> None:
    outcomes(limiter, 10)
    refused = take(limiter)
    assert refused.retry_after_s == 6
    clock.at += refused.retry_after_s - 1
    assert [take(limiter).retry_after_s, limiter.peek("key:1", TEN).retry_after_s] == [1, 1]
    clock.at += 1
    assert [limiter.peek("key:1", TEN).retry_after_s, take(limiter).retry_after_s] == [0, 0]


def test_a_refusal_never_says_zero_seconds(limiter: MemoryLimiter) -> None:
    quick = RateLimit(1000, 1)
    outcomes(limiter, 1000, limit=quick)
    assert take(limiter, limit=quick).retry_after_s == 1


@pytest.mark.parametrize(
    ("steps", "passed"),
    [
        pytest.param([(0, 13)], [10], id="a-burst-takes-what-the-bucket-holds"),
        pytest.param([(0, 10), (30, 6), (3600, 11)], [10, 5, 10], id="it-fills-evenly-and-never-above-its-brim"),
        pytest.param([(6, 1)] * 200, [1] * 200, id="at-an-even-pace-nobody-is-ever-refused"),
        pytest.param([(0, 5), (-3600, 6), (6, 2)], [5, 5, 1], id="a-clock-that-steps-back-neither-fills-nor-empties"),
    ],
)
def test_a_bucket_fills_with_time(
    limiter: MemoryLimiter, clock: Clock, steps: list[tuple[int, int]], passed: list[int]
) -> None:
    """Each step is a move of the clock in seconds, and a number of requests. The first ones of them pass."""
    for (seconds, requests), passes in zip(steps, passed, strict=True):
        clock.at += seconds
        assert outcomes(limiter, requests) == [True] * passes + [False] * (requests - passes)


def test_memory_is_bounded_whoever_calls(limiter: MemoryLimiter, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "_BUCKETS_MAX", 100)
    limiter.peek("key:never", TEN)
    assert limiter._buckets == {}
    outcomes(limiter, 10, "key:old")
    for number in range(10_000):
        clock.at += 0.001
        outcomes(limiter, 1, f"address:{number}")
        assert len(limiter._buckets) <= 100
    assert outcomes(limiter, 1, "address:9999") == [True]
    assert take(limiter, "address:9999").remaining == 7  # the youngest are remembered
    assert take(limiter, "key:old").remaining == 9  # the oldest is forgotten, and so full


# In memory and in Redis ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "redis"])
def any_limiter(request: pytest.FixtureRequest) -> Limiter:
    """Return a limiter of each kind, on the clock of the machine."""
    return open_limiter("memory://" if request.param == "memory" else request.getfixturevalue("redis_url"))


HOUR = RateLimit(10, 3600)


def test_a_bucket_counts_down_and_refuses(any_limiter: Limiter) -> None:
    readings = [take(any_limiter, "key:read", HOUR) for _ in range(11)]
    assert [reading.remaining for reading in readings] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert 355 <= readings[-1].retry_after_s <= 360
    assert 3595 <= readings[-1].reset - time.time() <= 3601
    assert outcomes(any_limiter, 1, "key:another", HOUR) == [True]
    assert outcomes(any_limiter, 1, "address:key:read", HOUR) == [True]
    assert outcomes(any_limiter, 1, "key:read", HOUR) == [False]


def test_looking_at_a_bucket_takes_nothing(any_limiter: Limiter) -> None:
    assert [any_limiter.peek("key:seen", HOUR).remaining for _ in range(3)] == [10] * 3
    outcomes(any_limiter, 9, "key:seen", HOUR)
    assert [any_limiter.peek("key:seen", HOUR).remaining for _ in range(3)] == [1] * 3
    outcomes(any_limiter, 1, "key:seen", HOUR)
    assert 355 <= any_limiter.peek("key:seen", HOUR).retry_after_s <= 360


def test_threads_share_one_bucket_without_losing_count(any_limiter: Limiter) -> None:
    limit = RateLimit(200, 3600)
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(lambda _: outcomes(any_limiter, 50, "key:threads", limit), range(8)))
    assert sum(map(sum, passed)) == 200


def test_a_batch_is_counted_in_its_order(any_limiter: Limiter) -> None:
    three, two = RateLimit(3, 3600), RateLimit(2, 3600)
    readings = any_limiter.take_many([("key:batch", three), ("key:two", two), *[("key:batch", three)] * 3])
    assert [reading.remaining for reading in readings] == [2, 1, 1, 0, 0]
    assert [bool(reading.retry_after_s) for reading in readings] == [False] * 4 + [True]
    assert [reading.limit for reading in readings] == [3, 2, 3, 3, 3]


# In Redis ------------------------------------------------------------------------------------------------------------


def test_processes_share_a_bucket_in_redis(redis_url: str) -> None:
    one, other = RedisLimiter(redis_url), RedisLimiter(redis_url)
    passed = [outcomes(limiter, 1, "key:shared", HOUR)[0] for limiter in (one, other) * 6]
    assert passed == [True] * 10 + [False] * 2


def test_a_batch_is_one_call_of_redis(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, calls = RedisLimiter(redis_url), []
    script = limiter._script
    monkeypatch.setattr(limiter, "_script", lambda names, values: calls.append(names) or script(names, values))
    limiter.take_many([(f"key:called-{number}", HOUR) for number in range(5)])
    assert len(calls) == 1


def test_a_bucket_in_redis_expires_when_it_would_be_full(redis_url: str) -> None:
    import redis

    limiter = RedisLimiter(redis_url)
    limiter.peek("key:expires", TEN)
    with redis.Redis.from_url(redis_url) as client:
        assert not client.exists("booking:rate:key:expires")
        take(limiter, "key:expires")
        assert 0 < client.ttl("booking:rate:key:expires") <= 61


def test_a_store_without_script_or_connection_loses_no_count(redis_url: str) -> None:
    import redis

    limiter = RedisLimiter(redis_url)
    remaining = [take(limiter, "key:lossless", HOUR).remaining]
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
        remaining.append(take(limiter, "key:lossless", HOUR).remaining)
        client.client_kill_filter(_type="normal", skipme=True)
    remaining.append(take(limiter, "key:lossless", HOUR).remaining)
    assert remaining == [9, 8, 7]
    assert limiter.failed_open == 0


# A store that fails ----------------------------------------------------------------------------------------------


def let_through(limiter: RedisLimiter) -> None:
    readings = [*limiter.take_many([("key:1", RateLimit(1, 60))] * 2), take(limiter, limit=RateLimit(1, 60))]
    assert [(reading.limit, reading.remaining, reading.retry_after_s) for reading in readings] == [(1, 1, 0)] * 3
    assert limiter.failed_open == 3


def test_a_store_that_is_away_lets_requests_through_and_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    let_through(RedisLimiter(f"redis://:secret@127.0.0.1:{free_port()}"))
    assert "the request goes through" in caplog.text
    assert "secret" not in caplog.text


def test_a_store_that_never_answers_delays_only_one_batch() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        let_through(RedisLimiter(f"redis://127.0.0.1:{listener.getsockname()[1]}"))
        listener.settimeout(0.05)
        listener.accept()[0].close()
        with pytest.raises(TimeoutError):  # the later call did not connect
            listener.accept()


def test_the_store_is_chosen_by_its_url() -> None:
    assert isinstance(open_limiter("memory://"), MemoryLimiter)
    assert isinstance(open_limiter("redis://127.0.0.1:1"), RedisLimiter)
