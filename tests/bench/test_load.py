"""The load client sends as its plan says, and the sink counts what arrives."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench import sink
from bench.load import FRESH, Plan, Request, drive, factories, sending
from bench.processes import Server, wait_for


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with sink.served() as running:
        yield running


def test_a_connection_sends_the_requests_of_one_key_only() -> None:
    requests = [
        Request("POST", f"/{number}", {"Authorization": f"Bearer {key}"}) for number in range(3) for key in ("a", "b")
    ]
    sent = [b"".join(make() for _ in range(6)) for make in factories(Plan(80, requests, by_key=True))]
    assert [requests.count(b"Bearer a") for requests in sent] == [6, 0]
    assert [requests.count(b"Bearer b") for requests in sent] == [0, 6]
    assert all(requests.count(b"POST /%d " % number) == 2 for requests in sent for number in range(3))


def test_a_fresh_value_is_new_and_begins_with_the_time_of_sending() -> None:
    (make,) = factories(Plan(80, [Request("POST", "/", {"Idempotency-Key": FRESH}, FRESH)]))
    before = time.time_ns()
    values = [make().rpartition(b"\r\n\r\n")[2] for _ in range(2)]
    assert [len(value) for value in values] == [32, 32]
    assert before <= int(values[0][:16], 16) <= int(values[1][:16], 16) <= time.time_ns()
    assert values[0] != values[1]


def test_a_crowd_sends_each_of_its_requests_once(server: Server) -> None:
    sink.counted(server)
    result = asyncio.run(drive(Plan(server.port, [Request("POST", "/", body="{}")], 20, 0.0, 30.0, max_requests=20)))
    assert result.statuses == {"204": 20}
    assert result.total == sink.counted(server)["count"] == 20
    assert 0 < result.last_ms < 30_000


@pytest.mark.exhaustive
def test_an_open_loop_sends_at_its_rate(server: Server) -> None:
    plan = Plan(server.port, [Request("POST", "/", body="{}")], 4, 0.0, 0.2, rate=100.0)
    result = asyncio.run(drive(plan))
    assert 10 <= sum(result.statuses.values()) <= 20


@pytest.mark.exhaustive
def test_a_crowd_in_another_process_ends_with_its_block(server: Server) -> None:
    plan = Plan(server.port, [Request("POST", "/", body="{}")], 2, 0.0, 60.0)
    with sending(replace(plan, max_requests=5)) as result:
        assert result().statuses == {"204": 5}
    with sending(plan):
        wait_for(lambda: sink.counted(server)["count"], "the crowd")
    assert not multiprocessing.active_children()
