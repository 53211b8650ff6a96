"""The curve of an overload is compared with the service while the same requests go to another server."""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from bench import sink
from bench.kinds import Curve, Curved
from bench.load import Request, factories_by_key
from bench.measure import Sample
from bench.overload import created_per_cpu_s
from bench.processes import HOST, Server


def sample(throughput: float, statuses: dict[str, int]) -> Sample:
    return Sample(throughput, 1.0, 2.0, 100, statuses, 300.0, 200.0, 10.0, 0.1, 0.1)


def curve(*, has_reference: bool) -> Curved:
    entry = Curve("curve", "POST", "times", (1, 10), (1,), lambda stage, stack: None, has_reference=has_reference)
    levels = {
        level: {
            "created": [sample(900.0 / level, {}), sample(600.0 / level, {})],
            "reference": [sample(1000.0, {})] * 2,
        }
        for level in (1, 10)
    }
    return Curved(entry, levels, [], [])


def test_the_ratio_to_the_reference_is_taken_at_each_level() -> None:
    ratios = [curve(has_reference=True).ratio(level) for level in (1, 10)]
    assert [ratio and ratio.median for ratio in ratios] == [pytest.approx(0.75), pytest.approx(0.075)]
    assert curve(has_reference=False).ratio(1) is None


def test_what_a_cpu_second_created_counts_the_refusals_as_spent() -> None:
    assert created_per_cpu_s(sample(1.0, {"201": 1000})) == pytest.approx(2000)
    assert created_per_cpu_s(sample(1.0, {"201": 1000, "503": 3000, "unsent": 50})) == pytest.approx(500)
    assert created_per_cpu_s(sample(1.0, {"unsent": 50})) == 0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with sink.served() as running:
        yield running


def test_the_server_that_does_nothing_answers_every_request_on_its_connection(server: Server) -> None:
    with closing(HTTPConnection(HOST, server.port)) as connection:
        for _ in range(3):
            connection.request("POST", "/", b"{}")
            response = connection.getresponse()
            assert (response.status, response.getheader("Content-Length")) == (503, str(len(response.read())))


def test_a_connection_sends_the_requests_of_one_key_only() -> None:
    requests = [
        Request("POST", f"/{number}", {"Authorization": f"Bearer {key}"}) for number in range(3) for key in ("a", "b")
    ]
    sent = [b"".join(make() for _ in range(6)) for make in factories_by_key(requests, 80)]
    assert [each.count(b"Bearer a") for each in sent] == [6, 0]
    assert [each.count(b"Bearer b") for each in sent] == [0, 6]
    assert all(each.count(b"POST /%d " % number) == 2 for each in sent for number in range(3))
