"""Requests above the capacity of a process are refused before they are routed, and never requests of a quiet
organization."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.connections import Connection, SteppedLoop, echo, stepped_loop
from support.world import SECRET, FixedClock, make_world

from booking_core.base import tokens
from booking_core.base.clock import system_clock
from booking_core.base.errors import RateLimited, Unavailable
from booking_core.base.settings import RateLimit, Settings
from booking_core.db.engine import Database
from booking_core.organizations import keys
from booking_server.api.middleware import REFUSALS, RequestContextMiddleware
from booking_server.app import create_app
from booking_server.execution import authenticator
from booking_server.http import admission as rules
from booking_server.http.admission import PLACES_MAX, Admission, AdmissionMiddleware, Refusal

Scope = dict[str, Any]
Admitted = tuple[str, Scope]
LATE_S = rules.LATE_FOR_S
ON_TIME_S = 0.0
FULL = Unavailable(retry_after_s=3, reason="queue")
GUESS = tokens.new_api_key()[:-1] + "-"


def asked(key: str = "", path: str = "/api/v1/bookings", method: str = "POST", address: str = "192.0.2.1") -> Scope:
    """Return the scope of a request."""
    headers = [(b"authorization", f"Bearer {key}".encode())] if key else []
    return {"type": "http", "method": method, "path": path, "headers": headers, "client": (address, 1)}


class Traffic:
    """Requests to an admission whose clock only moves when it is set. Keys that begin with a capital are known."""

    def __init__(self) -> None:
        self.at = 100.0
        self.admission = Admission(lambda key: key[0] if key[0].isupper() else None, clock=lambda: self.at)

    def send(self, key: str, count: int = 1, **request: str) -> list[Admitted]:
        """Send requests; return those that are in flight now."""
        return [self.begin(scope) for scope in [asked(key, **request)] * count if self.refusal(scope) is None]

    def begin(self, scope: Scope) -> Admitted:
        owner = self.admission.owner_of(scope)
        self.admission.begin(owner)
        return owner, scope

    def refusal(self, scope: Scope) -> Refusal | None:
        return self.admission.refusal(self.admission.owner_of(scope), scope)

    def end(self, *admitted: Admitted, refusals: Sequence[Refusal] = ()) -> None:
        for owner, scope in admitted:
            self.admission.end(owner, scope, refusals)

    def limit(self, scope: Scope, free_in_s: float) -> RateLimited:
        """Let the rate limit refuse a request, and return the refusal."""
        headers = [(b"x-ratelimit-remaining", b"0")]
        refusal = RateLimited(7, free_at_s=self.at + free_in_s, headers=headers)
        self.end(self.begin(scope), refusals=[refusal])
        return refusal


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


# Queues --------------------------------------------------------------------------------------------------------------


def test_nothing_is_refused_while_loop_and_queues_keep_up(traffic: Traffic) -> None:
    traffic.admission.tick(ON_TIME_S)
    assert len(traffic.send("A", 5000)) == 5000


@pytest.mark.parametrize(
    ("scope", "is_repeated"),
    [
        (asked("A"), True),
        (asked("A2"), True),
        (asked("A", "/api/v1/bookings/"), False),
        (asked("A", method="GET"), False),
        (asked("A", "/api/v1/bookings/1/cancel"), False),
        (asked("A", "/api/v1/customers"), False),
        (asked("B"), False),
    ],
    ids=["same", "another-key", "longer-path", "method", "single-resource", "path", "another-organization"],
)
def test_the_refusal_of_a_queue_is_repeated_for_that_organization_and_operation(
    traffic: Traffic, scope: Scope, is_repeated: bool
) -> None:
    (*_, last) = traffic.send("A", 9)
    traffic.end(last, refusals=[FULL])
    assert traffic.refusal(scope) is (FULL if is_repeated else None)


def test_a_refused_organization_gets_one_request_in_for_each_answer(traffic: Traffic) -> None:
    *waiting, last = traffic.send("A", 33)
    traffic.end(last, refusals=[FULL])
    traffic.end(*(waiting.pop() for _ in range(4)))
    for _ in range(100):  # and the queue is not called without need
        assert traffic.send("A", 10) == []
        traffic.end(waiting.pop())
        (admitted,) = traffic.send("A", 10)
        waiting.append(admitted)


def test_an_organization_asks_the_queue_again_after_a_second(traffic: Traffic) -> None:
    *_, last = traffic.send("A", 9)
    traffic.end(last, refusals=[FULL])
    traffic.at += rules.REPEATED_MAX_S - 0.1
    traffic.admission.tick(ON_TIME_S)
    assert traffic.send("A") == []
    traffic.at += 0.1
    assert len(traffic.send("A", 100)) == 100  # until the queue refuses one of them


def test_one_request_at_a_time_may_always_ask_the_queue(traffic: Traffic) -> None:
    traffic.end(*traffic.send("A"), refusals=[FULL])
    assert len(traffic.send("A")) == 1


@pytest.mark.parametrize("key", ["", GUESS], ids=["no-key", "unknown-key"])
def test_a_queue_full_of_unknown_clients_decides_about_each(traffic: Traffic, key: str) -> None:
    (*_, last) = traffic.send(key, 9)
    traffic.end(last, refusals=[FULL])
    assert traffic.refusal(asked(key)) is None


# A late event loop ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lags_s", "admitted"), [([0.15] * 4, 1000), ([0.15] * 4 + [0.0, 0.15], 1000), ([0.15] * 6, 0)]
)
def test_a_loop_is_late_when_it_stays_late_for_a_second(traffic: Traffic, lags_s: list[float], admitted: int) -> None:
    """A burst is shorter."""
    traffic.send("A", 2000)
    for lag_s in lags_s:
        traffic.at += 0.2
        traffic.admission.tick(lag_s)
    assert len(traffic.send("A", 1000)) == admitted


def test_a_late_loop_refuses_a_flood_and_not_its_neighbours(traffic: Traffic) -> None:
    flood = traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    assert traffic.send("A", 100) == []
    assert len(traffic.send("B", 50)) == 50
    assert len(traffic.send("C", 50)) == 50
    assert traffic.send("A", 100) == []
    traffic.end(*flood)
    assert len(traffic.send("A", 50)) == 50


def test_a_flood_gets_an_equal_part_and_leaves_another_free(traffic: Traffic) -> None:
    traffic.send("B", 1)
    for _ in range(10):
        traffic.admission.tick(LATE_S)
    assert len(traffic.send("A", 1000)) == rules.PLACES_MIN // 3


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
    traffic.admission.tick(LATE_S)
    assert traffic.send("guess-1001") == traffic.send("") == []
    assert len(traffic.send("B", 100)) == 100
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
    assert parts[:4] == [PLACES_MAX // 2 // 3, PLACES_MAX // 4 // 3, PLACES_MAX // 8 // 3, PLACES_MAX // 8 // 3]
    assert parts[4:] == sorted(parts[4:])
    assert parts[-1] == PLACES_MAX


def test_the_retry_after_of_a_late_loop_is_twice_its_lag(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(3.5)
    refusal = traffic.refusal(asked("A"))
    assert isinstance(refusal, Unavailable)
    assert (refusal.reason, refusal.retry_after_s) == ("late", 7)


# Rate limits ---------------------------------------------------------------------------------------------------------


def test_a_key_over_its_limit_is_refused_until_its_next_token(traffic: Traffic) -> None:
    refusal = traffic.limit(asked("A"), 0.5)
    assert traffic.refusal(asked("A")) is refusal
    for other in (asked("A2"), asked("A", method="GET"), asked("A", "/api/v1/nothing"), asked("B")):
        assert traffic.refusal(other) is None
    traffic.at += 0.5
    assert traffic.refusal(asked("A")) is None


def test_a_key_over_its_limit_is_looked_up_again_after_a_second(traffic: Traffic) -> None:
    refusal = traffic.limit(asked("A"), 30.0)
    traffic.at += rules.REPEATED_MAX_S / 2
    traffic.admission.tick(ON_TIME_S)
    assert traffic.refusal(asked("A")) is refusal
    traffic.at += rules.REPEATED_MAX_S / 2
    assert traffic.refusal(asked("A")) is None


@pytest.mark.parametrize(
    ("scope", "is_repeated"),
    [
        (asked("guessed-1"), True),
        (asked("guessed-2"), True),
        (asked(), True),
        (asked("guessed-1", address="::ffff:192.0.2.1"), True),
        (asked("guessed-1", method="GET"), False),
        (asked("guessed-1", address="192.0.2.2"), False),
        (asked("A"), False),
        (asked(tokens.new_api_key()), False),
    ],
    ids=["same", "other-guess", "no-key", "mapped", "method", "other-address", "seen-key", "right-checksum"],
)
def test_an_address_over_its_limit_is_refused_whatever_key_it_guesses(
    traffic: Traffic, scope: Scope, is_repeated: bool
) -> None:
    traffic.limit(asked("guessed-1"), 0.5)
    assert isinstance(traffic.refusal(scope), RateLimited if is_repeated else type(None))
    traffic.at += 0.5
    assert traffic.refusal(scope) is None


# Impatient clients ---------------------------------------------------------------------------------------------------


def test_few_refusals_are_sent_at_once_and_all_others_a_second_later(traffic: Traffic) -> None:
    for _ in range(3):
        traffic.admission.tick(ON_TIME_S)
        pauses = [traffic.admission.pause_s() for _ in range(rules.AT_ONCE + 2)]
        assert pauses == [0.0] * rules.AT_ONCE + [rules.PAUSE_S] * 2


class Load:
    """A service in simulated time that answers ten requests in a step, the organizations in turn, and whose event
    loop is late while more than 500 are in flight."""

    STEPS, ANSWERED_IN_STEP, IN_FLIGHT_ON_TIME = 100, 10, 500

    def __init__(self, arrivals: dict[str, int]) -> None:
        self.traffic = Traffic()
        self.accepted: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._in_flight: dict[str, deque[Admitted]] = {key: deque() for key in arrivals}
        self._arrivals = arrivals
        """Requests of each key in a step."""

    def run(self) -> "Load":
        for _ in range(self.STEPS):
            for key, count in self._arrivals.items():
                self._send(key, count)
            self._answer()
            self.traffic.at += rules.TICK_S
            in_flight = sum(map(len, self._in_flight.values()))
            self.traffic.admission.tick(LATE_S if in_flight > self.IN_FLIGHT_ON_TIME else ON_TIME_S)
        return self

    def _send(self, key: str, count: int) -> None:
        admitted = self.traffic.send(key, count)
        self.sent[key] += count
        self.accepted[key] += len(admitted)
        self._in_flight[key] += admitted

    def _answer(self) -> None:
        turns = (requests for _ in range(self.ANSWERED_IN_STEP) for requests in self._in_flight.values() if requests)
        for requests in islice(turns, self.ANSWERED_IN_STEP):
            self.traffic.end(requests.popleft())


def test_under_a_flood_every_request_of_a_neighbour_is_accepted() -> None:
    load = Load({"A": 1000, "B": 1, "C": 2}).run()
    assert (load.accepted["B"], load.accepted["C"]) == (load.sent["B"], load.sent["C"])
    assert Load.STEPS * (Load.ANSWERED_IN_STEP - 3) <= load.accepted["A"] < load.sent["A"] / 10


# Connections ---------------------------------------------------------------------------------------------------------


class Turnstile(Admission):
    """Refuses requests for `/refused` and for guests' pages."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.ended = 0

    def refusal(self, owner: str, scope: Any) -> Refusal | None:
        return FULL if scope["path"].startswith(("/refused", "/manage/", "/healthz")) else None

    def end(self, owner: str, scope: Any, refusals: Sequence[Refusal] = ()) -> None:
        super().end(owner, scope, refusals)
        self.ended += 1


GET = b"GET /refused HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n"
POST = b"POST /refused HTTP/1.1\r\nHost: x\r\n"
ACCEPTED = b"GET /accepted HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSING = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as made:
        yield made


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
        "error": str(FULL),
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
        ([b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"], [200], "open"),
    ],
    ids=["one-by-one", "pipelined", "half-a-body", "body", "chunked", "too-large-a-body", "closing", "probe"],
)
def test_the_connection_is_kept_and_each_request_is_answered_in_its_turn(
    connection: Connection, turnstile: Turnstile, pieces: list[bytes], statuses: list[int], state: str
) -> None:
    connection.send(*pieces)
    assert [each.status for each in connection.responses] == statuses
    assert connection.state == state
    assert turnstile.ended == statuses.count(200)


def test_a_refused_request_whose_body_never_ends_is_aborted(connection: Connection) -> None:
    connection.send(POST + b"Content-Length: 10\r\n\r\n", b"12345")
    connection.pass_time(30)
    assert connection.state == "aborted"


def test_a_request_counts_until_its_client_has_gone_and_its_work_ended(loop: SteppedLoop, turnstile: Turnstile) -> None:
    is_done = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert scope[REFUSALS] == []
        await is_done.wait()

    connection = Connection(loop, behind(turnstile, slow))
    connection.send(ACCEPTED)
    connection.transport.abort()
    connection.settle()
    assert turnstile.ended == 0
    is_done.set()
    connection.settle()
    assert turnstile.ended == 1


def test_a_client_that_retries_at_once_gets_one_refusal_a_second(connection: Connection, turnstile: Turnstile) -> None:
    turnstile._refused_in_tick = rules.AT_ONCE
    for refused in range(5):
        connection.send(GET)
        connection.pass_time(0.9)
        assert len(connection.responses) == refused
        connection.pass_time(0.1)
        assert len(connection.responses) == refused + 1
    connection.send(ACCEPTED, ACCEPTED)  # admitted requests never wait
    assert [each.status for each in connection.responses][-2:] == [200, 200]


# The service ---------------------------------------------------------------------------------------------------------


def answer(client: TestClient, key: str, path: str = "/api/v1/me") -> Any:
    """Ask with a key, and return the status, the headers and the body of the answer."""
    found = client.get(path, headers={"Authorization": f"Bearer {key}"})
    return found.status_code, dict(found.headers), found.json()


def without_id(answered: Any) -> Any:
    """Return an answer without the fields that differ between two equal answers."""
    status, headers, body = answered
    return status, headers | {"x-request-id": ""}, body | {"request_id": ""}


@pytest.fixture
def client(fresh_database_url: str) -> Iterator[TestClient]:
    """A client of a service that allows three requests an hour with a key."""
    limit = RateLimit(3, 3600)
    settings = Settings(database_url=fresh_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=limit)
    with TestClient(create_app(settings)) as running:
        yield running


@pytest.fixture
def valid_keys(fresh_database_url: str) -> list[str]:
    """Keys of two organizations."""
    with contextlib.closing(Database(fresh_database_url)) as database:
        return [make_world(database, FixedClock(system_clock())).key() for _ in range(2)]


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each key that is looked up."""
    found: list[str] = []
    identify_many = keys.identify_many

    def counting(tx: Any, texts: Sequence[str], *others: Any) -> Any:
        found.extend(texts)
        return identify_many(tx, texts, *others)

    monkeypatch.setattr(keys, "identify_many", counting)
    return found


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_late_service_refuses_before_a_key_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, looked_up: list[str], client: TestClient
) -> None:
    state = client.app.state  # type: ignore[attr-defined]
    owner = state.admission.owner_of(asked("svc_x"))
    monkeypatch.setattr(state.admission, "_in_flight", Counter({owner: 3000}))
    monkeypatch.setattr(state.admission, "_places", rules.PLACES_MIN)
    monkeypatch.setattr(state.admission, "tick", lambda _: None)
    status, headers, body = answer(client, "svc_x")
    assert (status, headers["retry-after"], body["code"]) == (503, "1", "service_unavailable")
    assert looked_up == []
    assert answer(client, "svc_x", "/healthz")[0] == 200
    monkeypatch.setattr(state.admission, "_in_flight", Counter())
    assert answer(client, "svc_x")[0] == 401
    assert len(looked_up) == 1
    counted = state.monitor.metrics.registry.get_sample_value
    assert counted("booking_http_unavailable_total", {"reason": "late"}) == 1
    assert counted("booking_http_requests_total", {"operation": "(unrouted)", "status": "503"}) == 1


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_refusal_by_a_queue_is_repeated_before_the_queue(
    monkeypatch: pytest.MonkeyPatch, client: TestClient, valid_keys: list[str]
) -> None:
    state, key = client.app.state, valid_keys[0]  # type: ignore[attr-defined]
    asked_queue: list[object] = []

    def full(*job: object) -> None:
        asked_queue.append(job)
        raise FULL

    assert answer(client, key)[0] == 200
    state.admission.begin(state.admission.owner_of(asked(key)))
    monkeypatch.setattr(rules, "REPEATED_MAX_S", 3600.0)
    monkeypatch.setattr(state.service.reads, "_submit", full)
    made, *repeated = [answer(client, key) for _ in range(3)]
    assert (made[0], made[1]["retry-after"], made[2]["code"]) == (503, "3", "service_unavailable")
    assert without_id(repeated[0])[0] == 503
    assert len(asked_queue) == 1


def test_a_key_that_asks_on_beyond_its_limit_costs_no_look_up(
    monkeypatch: pytest.MonkeyPatch, looked_up: list[str], client: TestClient, valid_keys: list[str]
) -> None:
    """Its refusals pass through no lane, where they would delay other organizations."""
    monkeypatch.setattr(rules, "REPEATED_MAX_S", 3600.0)
    offender, neighbour = valid_keys
    assert [answer(client, offender)[0] for _ in range(3)] == [200] * 3
    made = answer(client, offender)
    before = len(looked_up)
    repeated = [answer(client, offender) for _ in range(5)]
    assert len(looked_up) == before
    assert [without_id(each) for each in repeated] == [without_id(made)] * len(repeated)
    assert (made[0], made[2]["code"], made[1]["x-ratelimit-remaining"]) == (429, "rate_limited", "0")
    assert 1000 < int(made[1]["retry-after"]) <= 1200
    assert len({headers["x-request-id"] for _, headers, _ in repeated}) == len(repeated)
    assert answer(client, offender, "/api/v1/nothing")[0] == 404
    assert answer(client, neighbour)[0] == 200
    counted = client.app.state.monitor.metrics.registry.get_sample_value  # type: ignore[attr-defined]
    assert counted("booking_http_requests_total", {"operation": "(unrouted)", "status": "429"}) == len(repeated)


def test_an_address_over_its_limit_admits_only_valid_keys(
    monkeypatch: pytest.MonkeyPatch, client: TestClient, valid_keys: list[str]
) -> None:
    """Guesses beyond the limit pass through no lane, and a key that was seen to be valid is used beside them."""
    monkeypatch.setattr(authenticator, "ANONYMOUS", RateLimit(3, 3600))
    monkeypatch.setattr(rules, "REPEATED_MAX_S", 3600.0)
    seen, unseen = valid_keys
    assert answer(client, seen)[0] == 200
    assert [answer(client, f"svc_x{n}")[0] for n in range(3)] == [401] * 3
    made = answer(client, "svc_y")
    with monkeypatch.context() as patch:
        patch.setattr(client.app.state.service.reads, "_submit", pytest.fail)  # type: ignore[attr-defined]
        repeated = [answer(client, f"svc_y{n}") for n in range(5)]
    assert [without_id(each) for each in repeated] == [without_id(made)] * 5
    assert (made[0], made[2]["code"], made[1]["x-ratelimit-limit"]) == (429, "rate_limited", "3")
    assert [answer(client, key)[0] for key in (seen, unseen)] == [200, 200]
