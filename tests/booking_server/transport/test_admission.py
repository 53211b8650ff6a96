"""Requests above the capacity of a process are refused before they are routed, and never requests of a quiet
organization."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.api.connections import Connection, SteppedLoop, echo, respond
from support.world.world import SECRET

from booking_core.base.errors import Unavailable
from booking_core.base.settings import Settings
from booking_core.organizations import keys
from booking_server.api.middleware import RequestContextMiddleware
from booking_server.app import create_app
from booking_server.execution.authenticator import Credentials
from booking_server.transport import admission as rules
from booking_server.transport.admission import PLACES_MAX, WITHOUT_KEY, Admission, AdmissionMiddleware

LATE_S = rules.LATE_FOR_S
ON_TIME_S = 0.0
LATE = Unavailable(retry_after_s=3, reason="late")


def sent_by(key: str) -> Credentials:
    """Return the credentials of a request."""
    return Credentials([(b"authorization", f"Bearer {key}".encode())] if key else [], "192.0.2.1")


def known_organization(credentials: Credentials) -> str | None:
    key = str(credentials.key)
    return key[0] if key[0].isupper() else None


class Traffic:
    """Requests to an admission whose clock only moves when it is set. Keys that begin with a capital are known."""

    def __init__(self) -> None:
        self.at = 100.0
        self.admission = Admission(known_organization, clock=lambda: self.at)

    def send(self, key: str, count: int = 1) -> list[str]:
        """Send requests; return the owners of those that are in flight now."""
        owner = self.owner_of(key)
        return [self.begin(owner) for _ in range(count) if self.admission.refusal(owner) is None]

    def begin(self, owner: str) -> str:
        self.admission.begin(owner)
        return owner

    def owner_of(self, key: str) -> str:
        return self.admission.owner_of(sent_by(key))

    def end(self, *owners: str) -> None:
        for owner in owners:
            self.admission.end(owner)


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


# A late event loop ---------------------------------------------------------------------------------------------------


def test_a_rush_takes_all_places_that_others_leave_free(traffic: Traffic) -> None:
    for number in range(20):
        traffic.send(chr(ord("B") + number))
    traffic.admission.tick(ON_TIME_S)
    assert len(traffic.send("A", 5000)) == PLACES_MAX - 20
    assert len(traffic.send("B")) == 1


@pytest.mark.parametrize(("lags_s", "admitted"), [([0.15] * 4, 100), ([0.15] * 4 + [0.0, 0.15], 100), ([0.15] * 6, 0)])
def test_a_loop_is_late_when_it_stays_late_for_a_second(traffic: Traffic, lags_s: list[float], admitted: int) -> None:
    """A burst is shorter."""
    traffic.send("A", 600)
    for lag_s in lags_s:
        traffic.at += 0.2
        traffic.admission.tick(lag_s)
    assert len(traffic.send("A", 100)) == admitted


def test_a_late_loop_refuses_a_flood_and_not_its_neighbours(traffic: Traffic) -> None:
    flood = traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    assert traffic.send("A", 100) == []
    assert len(traffic.send("B", 50)) == 50
    assert len(traffic.send("C", 50)) == 50
    assert traffic.send("A", 100) == []
    traffic.end(*flood)
    assert len(traffic.send("A", 50)) == 50


def test_a_flood_leaves_an_equal_part_to_another(traffic: Traffic) -> None:
    traffic.send("B", 1)
    for _ in range(10):
        traffic.admission.tick(LATE_S)
    assert len(traffic.send("A", 1000)) == rules.PLACES_MIN - 1
    assert len(traffic.send("B", 1000)) == rules.PLACES_MIN // 3 - 1


def test_places_grow_by_a_quarter_with_each_tick_in_time(traffic: Traffic) -> None:
    for _ in range(10):
        traffic.admission.tick(LATE_S)
    admitted = []
    for _ in range(3):
        admitted.append(len(traffic.send("A", 2 * PLACES_MAX)))
        traffic.end(*["A"] * admitted[-1])
        traffic.admission.tick(ON_TIME_S)
    assert admitted == [256, 320, 400]


def test_an_organization_without_a_request_in_flight_is_never_refused(traffic: Traffic) -> None:
    others = [chr(ord("D") + number % 20) + str(number) for number in range(20)]
    for key in others:
        traffic.send(key, 500)
    for _ in range(20):
        traffic.admission.tick(LATE_S)
        (admitted,) = traffic.send("B")
        traffic.end(admitted)


def test_keys_that_were_not_seen_to_be_valid_share_one_part(traffic: Traffic) -> None:
    guessed = [admitted for number in range(1000) for admitted in traffic.send(f"guess-{number}")]
    without = traffic.send("", 1000)
    for _ in range(2):
        traffic.admission.tick(LATE_S)
    assert traffic.send("guess-1001") == traffic.send("") == []
    assert len(traffic.send("B", 50)) == 50
    traffic.end(*guessed)
    assert len(traffic.send("guess-1002")) == 1
    assert traffic.send("") == []
    traffic.end(*without)
    assert len(traffic.send("")) == 1


def test_each_late_tick_halves_the_places_and_they_grow_back(traffic: Traffic) -> None:
    def part() -> int:
        admitted = traffic.send("A", PLACES_MAX)
        traffic.end(*admitted)
        return len(admitted)

    traffic.send("B", PLACES_MAX)
    parts = []
    for lag_s in [LATE_S] * 4 + [ON_TIME_S] * 12:
        traffic.admission.tick(lag_s)
        parts.append(part())
    assert parts[:4] == [PLACES_MAX // 2 // 3, PLACES_MAX // 4 // 3, rules.PLACES_MIN // 3, rules.PLACES_MIN // 3]
    assert parts[4:] == sorted(parts[4:])
    assert parts[-1] == PLACES_MAX // 3


def test_the_retry_after_of_a_late_loop_is_twice_its_lag(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(3.5)
    refusal = traffic.admission.refusal(traffic.owner_of("A"))
    assert refusal
    assert (refusal.reason, refusal.retry_after_s) == ("late", 7)


# Impatient clients ---------------------------------------------------------------------------------------------------


def test_few_refusals_are_sent_at_once_and_all_others_a_second_later(traffic: Traffic) -> None:
    for _ in range(3):
        traffic.admission.tick(ON_TIME_S)
        pauses = [traffic.admission.pause_s() for _ in range(rules.AT_ONCE + 2)]
        assert pauses == [0.0] * rules.AT_ONCE + [rules.PAUSE_S] * 2


# Connections ---------------------------------------------------------------------------------------------------------


class Turnstile(Admission):
    """Refuses requests without a key."""

    def __init__(self) -> None:
        super().__init__(known_organization)
        self.ended = 0

    def refusal(self, owner: str) -> Unavailable | None:
        return LATE if owner == WITHOUT_KEY else None

    def end(self, owner: str) -> None:
        super().end(owner)
        self.ended += 1


GET = b"GET /refused HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n"
POST = b"POST /refused HTTP/1.1\r\nHost: x\r\n"
ACCEPTED = b"GET /accepted HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer A\r\n\r\n"
CLOSING = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
def turnstile() -> Turnstile:
    return Turnstile()


@pytest.fixture
def connection(loop: SteppedLoop, turnstile: Turnstile) -> Connection:
    return Connection(loop, behind(turnstile))


def behind(admission: Admission, app: Any = echo) -> Any:
    """Return the application with an admission."""
    return RequestContextMiddleware(AdmissionMiddleware(app, admission=admission))


def test_a_refusal_has_the_shape_of_the_contract(connection: Connection) -> None:
    connection.send(GET.replace(b"X-Request-Id: mine-1\r\n", b""), GET)
    (first, second) = connection.responses
    assert first.status == second.status == 503
    assert first.json() == {
        "error": str(LATE),
        "code": "service_unavailable",
        "request_id": first.headers["x-request-id"],
    }
    assert first.headers["x-request-id"].startswith("req_")
    assert second.headers["x-request-id"] == second.json()["request_id"] == "mine-1"
    assert (first.headers["content-type"], first.headers["cache-control"]) == ("application/json", "no-store")
    assert first.headers["retry-after"] == "3"


def test_a_guest_who_is_refused_gets_a_page(connection: Connection) -> None:
    connection.send(b"GET /manage/token HTTP/1.1\r\nHost: x\r\nAccept-Language: de\r\n\r\n", ACCEPTED)
    page, accepted = connection.responses
    assert (page.status, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert page.headers["retry-after"] == "3"
    assert b'<html lang="de" ' in page.body
    assert accepted.status == 200


@pytest.mark.parametrize(
    ("pieces", "statuses", "state"),
    [
        ([GET, ACCEPTED, GET, ACCEPTED], [503, 200, 503, 200], "open"),
        ([ACCEPTED + GET + GET + ACCEPTED + GET], [200, 503, 503, 200, 503], "open"),
        ([POST + b"Content-Length: 10\r\n\r\n", b"GET /"], [], "open"),
        ([POST + b"Content-Length: 10\r\n\r\n", b"GET /", b"12345" + ACCEPTED], [503, 200], "open"),
        ([POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n0\r\n\r\n", ACCEPTED], [503, 200], "open"),
        ([POST + b"Content-Length: 9999999\r\n\r\n", b"GET ", ACCEPTED], [503], "half-closed"),
        ([CLOSING], [503], "half-closed"),
    ],
    ids=["one-by-one", "pipelined", "half-a-body", "body", "chunked", "too-large-a-body", "closing"],
)
def test_the_connection_is_kept_and_each_request_is_answered_in_its_turn(
    connection: Connection, turnstile: Turnstile, pieces: list[bytes], statuses: list[int], state: str
) -> None:
    connection.send(*pieces)
    assert [response.status for response in connection.responses] == statuses
    assert connection.state == state
    assert turnstile.ended == statuses.count(200)


def test_a_probe_is_neither_refused_nor_counted(connection: Connection, turnstile: Turnstile) -> None:
    connection.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert ([response.status for response in connection.responses], turnstile.ended) == ([200], 0)


def test_a_refused_request_whose_body_never_ends_is_aborted(connection: Connection) -> None:
    connection.send(POST + b"Content-Length: 10\r\n\r\n", b"12345")
    connection.pass_time(30)
    assert connection.state == "aborted"


def test_a_request_counts_until_its_client_has_gone_and_its_work_ended(loop: SteppedLoop, turnstile: Turnstile) -> None:
    is_done = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await is_done.wait()

    connection = Connection(loop, behind(turnstile, slow))
    connection.send(ACCEPTED)
    connection.transport.abort()
    connection.settle()
    assert turnstile.ended == 0
    is_done.set()
    connection.settle()
    assert turnstile.ended == 1


async def over_limit(scope: Any, receive: Any, send: Any) -> None:
    """Refuse a request as the rate limit does."""
    await respond(send, b"", 429)


@pytest.mark.parametrize("request_bytes", [GET, ACCEPTED], ids=["admission", "rate-limit"])
def test_a_client_that_retries_at_once_gets_one_refusal_a_second(
    loop: SteppedLoop, turnstile: Turnstile, request_bytes: bytes
) -> None:
    connection, others = Connection(loop, behind(turnstile, over_limit)), Connection(loop, behind(turnstile))
    turnstile._refused_in_tick = rules.AT_ONCE
    for refused in range(5):
        connection.send(request_bytes)
        connection.pass_time(0.9)
        assert len(connection.responses) == refused
        connection.pass_time(0.1)
        assert len(connection.responses) == refused + 1
    others.send(ACCEPTED, ACCEPTED)  # other answers never wait
    assert [response.status for response in others.responses] == [200, 200]


# The service ---------------------------------------------------------------------------------------------------------


def answer(client: TestClient, key: str, path: str = "/api/v1/me") -> Any:
    """Ask with a key, and return the status, the headers and the body of the answer."""
    response = client.get(path, headers={"Authorization": f"Bearer {key}"})
    return response.status_code, dict(response.headers), response.json()


@pytest.fixture
def client(fresh_database_url: str) -> Iterator[TestClient]:
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, secret_key_check="warn")
    with TestClient(create_app(settings)) as running:
        yield running


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each key that is looked up."""
    look_ups: list[str] = []
    identify_many = keys.identify_many

    def counting(tx: Any, texts: Sequence[str], *others: Any) -> Any:
        look_ups.extend(texts)
        return identify_many(tx, texts, *others)

    monkeypatch.setattr(keys, "identify_many", counting)
    return look_ups


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_late_service_refuses_before_a_key_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, looked_up: list[str], client: TestClient
) -> None:
    state = client.app.state  # type: ignore[attr-defined]
    owner = state.admission.owner_of(sent_by("svc_x"))
    monkeypatch.setattr(state.admission, "_in_flight", Counter({owner: 3000}))
    monkeypatch.setattr(state.admission, "_total", 3000)
    monkeypatch.setattr(state.admission, "_places", rules.PLACES_MIN)
    monkeypatch.setattr(state.admission, "tick", lambda _: None)
    status, headers, body = answer(client, "svc_x")
    assert (status, headers["retry-after"], body["code"]) == (503, "1", "service_unavailable")
    assert looked_up == []
    assert answer(client, "svc_x", "/healthz")[0] == 200
    monkeypatch.setattr(state.admission, "_in_flight", Counter())
    monkeypatch.setattr(state.admission, "_total", 0)
    assert answer(client, "svc_x")[0] == 401
    assert len(looked_up) == 1
    counted = state.monitor.metrics.registry.get_sample_value
    assert counted("booking_http_unavailable_total", {"reason": "late"}) == 1
    assert counted("booking_http_requests_total", {"operation": "(unrouted)", "status": "503"}) == 1
