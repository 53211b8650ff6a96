"""The rate limit (decision K5): the headers, the refusal, and the requests that it does not affect."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from support.api.answers import ANSWERS
from support.api.api import Api
from support.api.raw import RawAnswer, call
from support.api.refusals import Answered, nothing_changes, refused
from support.world.world import World

from booking_core.base import tokens
from booking_core.base.settings import RateLimit
from booking_core.db import tables
from booking_core.organizations import keys
from booking_server.execution.rate_limit import ANONYMOUS, LOOK_UPS, LOOK_UPS_RESERVED, MemoryLimiter
from booking_server.transport import admission

pytestmark = pytest.mark.one_database

LIMIT = RateLimit(3, 60)
HEADERS = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
NOW = 1_795_262_400.0


class Ticking:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def passing(limited_app: TestClient, monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """The limiter's clock; all buckets are full."""
    ticking = Ticking()
    monkeypatch.setattr(admission, "PAUSE_S", 0.0)
    limited_app.app.state.service.authenticator.limiter = MemoryLimiter(ticking)  # type: ignore[attr-defined]
    return ticking


@pytest.fixture
def limited(limited_app: TestClient, world: World, passing: Ticking) -> Api:
    """The limited application, with an unused key."""
    return Api(limited_app, world)


def reading(answer: Answered) -> tuple[int, int, int]:
    limit, remaining, reset = (int(answer.headers[name]) for name in HEADERS)
    return limit, remaining, reset


def test_each_request_takes_one_and_reports_the_remaining_number(limited: Api) -> None:
    assert reading(limited.get("/me")) == (3, 2, NOW + 20)
    assert reading(limited.get("/me")) == (3, 1, NOW + 40)
    assert reading(limited.get("/me")) == (3, 0, NOW + 60)
    refusal = limited.get("/me")
    refused(refusal, 429, "rate_limited")
    assert reading(refusal) == (3, 0, NOW + 60)
    assert int(refusal.headers["retry-after"]) == 20


def test_a_rate_limited_request_leaves_its_idempotency_key_unused(limited: Api, world: World, passing: Ticking) -> None:
    departure = world.departure(world.experience())
    for _ in range(3):
        limited.get("/me")
    with nothing_changes(world):
        refused(limited.book(departure, key="refused-at-first"), 429, "rate_limited")
    passing.at += 60
    created = limited.book(departure, key="refused-at-first")
    assert created.status_code == 201
    assert "idempotent-replayed" not in created.headers
    replayed = limited.book(departure, key="refused-at-first")
    assert (replayed.content, replayed.headers["idempotent-replayed"]) == (created.content, "true")
    assert [reading(created)[1], reading(replayed)[1]] == [2, 1]


def test_each_key_has_a_limit_of_its_own(limited: Api) -> None:
    other = Api(limited.client, limited.world, limited.world.key())
    assert [limited.get("/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert other.get("/me").status_code == 200


def test_a_read_beyond_the_limit_is_neither_validated_nor_run(limited: Api, queries: list[str]) -> None:
    assert [limited.get(path).status_code for path in ("/me", "/customers", "/bookings")] == [200] * 3
    assert len([text for text in queries if "FROM customers" in text]) == 1
    for path in ("/customers", "/customers?limit=0", "/customers/abc"):
        refused(limited.get(path), 429, "rate_limited")
    assert len([text for text in queries if "FROM customers" in text]) == 1


def anonymous(client: TestClient, address: str, **arguments: object) -> RawAnswer:
    return call(client, "GET", "/api/v1/me", address=address, **arguments)  # type: ignore[arg-type]


def test_requests_without_a_good_key_are_limited_by_their_address(limited: Api) -> None:
    revoked = limited.world.key(revoked_at=0)
    bad = [None, "svc_" + "a" * 40, revoked]
    for number in range(ANONYMOUS.requests):
        answer = anonymous(limited.client, "203.0.113.1", key=bad[number % 3])
        assert answer.status_code == 401
        assert reading(answer)[:2] == (60, 59 - number)
    for key in bad:
        refused(anonymous(limited.client, "203.0.113.1", key=key), 429, "rate_limited")
    refused(anonymous(limited.client, "203.0.113.2"), 401, "api_key_missing")


@pytest.fixture
def spent(limited: Api, passing: Ticking) -> str:
    """An address that has sent as many requests as it may without a valid key. All keys may be looked up again."""
    for _ in range(ANONYMOUS.requests):
        assert anonymous(limited.client, "203.0.113.1", key="svc_" + "a" * 40).status_code == 401
    limited.client.app.state.service.authenticator.look_ups = MemoryLimiter(passing)  # type: ignore[attr-defined]
    return "203.0.113.1"


@pytest.fixture
def queries(limited_app: TestClient) -> Iterator[list[str]]:
    """The statements that the application runs from here on."""
    statements: list[str] = []
    database = limited_app.app.state.service.database  # type: ignore[attr-defined]
    database.observer = statements.append
    yield statements
    database.observer = None


def test_an_address_that_is_over_its_limit_costs_few_statements(limited: Api, spent: str, queries: list[str]) -> None:
    queries.clear()
    for number in range(50):
        refused(anonymous(limited.client, spent, key=f"svc_{number}"), 429, "rate_limited")
        key = f"svc_{number:040}"
        refused(anonymous(limited.client, spent, key=key), 429, "rate_limited")
        posted = call(limited.client, "POST", "/api/v1/bookings", key=key, address=spent, pieces=[b"{}"])
        refused(posted, 429, "rate_limited")
        assert reading(posted)[:2] == (60, 0)
        assert int(posted.headers["retry-after"]) >= 1
    assert len(queries) == LOOK_UPS.requests - LOOK_UPS_RESERVED


def test_a_valid_key_works_beside_a_broken_client_of_its_address(limited: Api, spent: str) -> None:
    assert anonymous(limited.client, spent, key=limited.key).status_code == 200
    for _ in range(LOOK_UPS.requests):
        refused(anonymous(limited.client, spent, key=tokens.new_api_key()), 429, "rate_limited")
    good = anonymous(limited.client, spent, key=limited.key)
    assert (good.status_code, reading(good)[:2]) == (200, (3, 1))


def test_strangers_at_an_address_shut_no_valid_key_out(limited: Api, spent: str) -> None:
    """A process that has seen none of the keys, as after a restart, at an address whose bucket strangers keep empty."""
    unused = [limited.world.key() for _ in range(10)]
    for number in range(100):
        refused(anonymous(limited.client, spent, key=f"svc_{number:040}"), 429, "rate_limited")
        refused(anonymous(limited.client, spent), 429, "rate_limited")
    assert [anonymous(limited.client, spent, key=key).status_code for key in unused] == [200] * 10


def test_keys_with_a_right_checksum_are_looked_up_twice_a_second(limited: Api, passing: Ticking, spent: str) -> None:
    unused = [limited.world.key() for _ in range(2)]
    for _ in range(LOOK_UPS.requests):
        refused(anonymous(limited.client, spent, key=tokens.new_api_key()), 429, "rate_limited")
    refused(anonymous(limited.client, spent, key=unused[0]), 429, "rate_limited")
    passing.at += 1
    assert [anonymous(limited.client, spent, key=key).status_code for key in unused] == [200, 200]


def test_pages_of_guests_have_a_bucket_of_their_own(limited: Api) -> None:
    for _ in range(ANONYMOUS.requests):
        assert call(limited.client, "GET", "/manage/nothing", address="203.0.113.14").status_code == 404
    refusal = call(limited.client, "GET", "/manage/nothing", address="203.0.113.14")
    assert (refusal.status_code, reading(refusal)[1]) == (429, 0)
    assert int(refusal.headers["retry-after"]) >= 1
    assert b"Too many visits" in refusal.content
    refused(anonymous(limited.client, "203.0.113.14"), 401, "api_key_missing")


def test_a_wrong_key_is_looked_up_once_a_minute(limited: Api, passing: Ticking, spent: str, queries: list[str]) -> None:
    limited.world.change(tables.api_keys, limited.get("/me").json()["key"]["id"], revoked_at=0)
    queries.clear()
    for key in (limited.key, tokens.new_api_key()):
        for _ in range(5):
            refused(anonymous(limited.client, spent, key=key), 429, "rate_limited")
    assert len(queries) == 2
    passing.at += 60
    anonymous(limited.client, spent, key=limited.key)
    assert len(queries) == 3


def test_a_valid_key_waits_for_no_wrong_keys_that_are_repeated(limited: Api, passing: Ticking, spent: str) -> None:
    """Fifty wrong keys with a right checksum, each of them once a second: all were looked up after 15 s."""
    wrong = [tokens.new_api_key() for _ in range(50)]
    for _ in range(17):
        passing.at += 1
        for key in wrong:
            anonymous(limited.client, spent, key=key)
    refused(anonymous(limited.client, spent, key=wrong[0]), 429, "rate_limited")
    assert anonymous(limited.client, spent, key=limited.world.key()).status_code == 200


PAIRS_OF_ADDRESSES = [
    ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),
    ("2001:db8:1:2::1", "2001:0DB8:0001:0002:0:0:0:9", True),
    ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
    ("::ffff:198.51.100.7", "198.51.100.7", True),
    ("::ffff:198.51.100.7", "::FFFF:c633:6407", True),
    ("::ffff:198.51.100.7", "::ffff:198.51.100.8", False),
    ("198.51.100.7", "198.51.100.8", False),
    ("fe80::1%eth0", "fe80::2", True),
    ("no address", "unix:", True),
]
"""Two addresses, and whether they have one bucket."""


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("/api/v1/me", PAIRS_OF_ADDRESSES),
        *((path, PAIRS_OF_ADDRESSES[:3]) for path in ("/api/v1/nothing", "/manage/nothing", "/api/v1/openapi.json")),
    ],
)
def test_an_ipv6_client_is_its_64_and_a_mapped_address_its_ipv4(
    limited: Api, target: str, addresses: list[tuple[str, str, bool]]
) -> None:
    for first, second, are_one in addresses:
        limited.client.app.state.service.authenticator.limiter = MemoryLimiter(lambda: NOW)  # type: ignore[attr-defined]
        assert reading(call(limited.client, "GET", target, address=first))[1] == 59
        assert reading(call(limited.client, "GET", target, address=second))[1] == (58 if are_one else 59)


def test_the_client_address_is_not_taken_from_a_header(limited: Api) -> None:
    for number in range(ANONYMOUS.requests):
        anonymous(limited.client, "203.0.113.4", headers=[("x-forwarded-for", f"198.51.100.{number}")])
    refused(anonymous(limited.client, "203.0.113.4", headers=[("x-real-ip", "198.51.100.1")]), 429, "rate_limited")


def test_an_unknown_path_is_counted_and_never_refused(limited: Api) -> None:
    for number in range(ANONYMOUS.requests + 5):
        answer = call(limited.client, "GET", "/api/v1/nothing", address="203.0.113.5", key=limited.key)
        refused(answer, 404, "not_found")
        assert reading(answer)[:2] == (60, max(0, 59 - number))
    assert call(limited.client, "TRACE", "/api/v1/me", address="203.0.113.5").status_code == 405
    refused(anonymous(limited.client, "203.0.113.5"), 429, "rate_limited")
    assert limited.get("/me").status_code == 200


@pytest.mark.parametrize("name", ANSWERS)
def test_every_response_reports_the_remaining_number(limited: Api, departure: str, name: str) -> None:
    status, ask = ANSWERS[name]
    answer = ask(limited, departure)
    assert answer.status_code == status
    limit, remaining, reset = reading(answer)
    assert 0 <= remaining < limit
    assert NOW < reset <= NOW + 60


def test_without_a_limit_no_request_is_refused(api: Api) -> None:
    assert {anonymous(api.client, "203.0.113.6").status_code for _ in range(ANONYMOUS.requests + 10)} == {401}


def test_an_internal_error_reports_the_remaining_number(limited: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(keys, "present", fail)
    answer = limited.get("/me")
    refused(answer, 500, "internal_error")
    assert reading(answer)[:2] == (3, 2)
