"""Requests above what a process can do are refused before the application, and never those of a quiet organization."""

import asyncio
import contextlib
import logging
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any

import orjson
import pytest
import uvicorn
from support.connections import Connection, SteppedLoop, echo, stepped_loop
from support.world import SECRET, FixedClock, make_world

from booking_core.base.clock import system_clock
from booking_core.base.errors import RateLimited, Unavailable
from booking_core.base.settings import RateLimit, Settings
from booking_core.db.engine import Database
from booking_core.organizations import keys
from booking_server.api.middleware import REFUSALS
from booking_server.app import create_app
from booking_server.execution import authenticator
from booking_server.http import admission as rules
from booking_server.http.admission import PLACES_MAX, STATE, Admission, Owner
from booking_server.http.framing import RequestHead
from booking_server.http.protocol import HttpProtocol
from booking_server.http.refusals import refusing

Admitted = tuple[Owner, RequestHead]
LATE_S = rules.LATE_FOR_S
ON_TIME_S = 0.0
FULL = Unavailable(retry_after_s=3, reason="queue")
CLIENT = ("192.0.2.1", b"")


def a_request(authorization: str, path: str = "/api/v1/bookings", method: str = "POST") -> RequestHead:
    value = authorization.encode()
    return RequestHead(method, path.encode(), "1.1", [(b"authorization", value)], 0, True, authorization=value)


class Traffic:
    """Requests to an admission whose clock stands still until it is moved. Keys that begin with a capital are known."""

    def __init__(self) -> None:
        self.at = 100.0
        self.seen = 0
        self.admission = Admission(self._organization_of, clock=lambda: self.at)
        self.reported: Counter[str] = Counter()
        self.admission.observe = lambda reason, count: self.reported.update({reason: count})
        for key in ("A", "A2", "B", "C"):
            self.end(self.begin(a_request(key)))

    def _organization_of(self, authorization: bytes) -> str | None:
        self.seen += 1
        return authorization.decode()[0] if authorization[:1].isupper() else None

    def send(self, key: str, count: int = 1, **request: str) -> list[Admitted]:
        """Send requests; return those that are in flight now."""
        heads = [a_request(key, **request)] * count
        return [self.begin(head) for head in heads if self.refusal(head) is None]

    def begin(self, head: RequestHead) -> Admitted:
        return self.admission.begin(head), head

    def refusal(self, head: RequestHead) -> Unavailable | None:
        return self.admission.refusal(head) if self.admission.is_pressed else None

    def end(self, *admitted: Admitted, by_queue: bool = False) -> None:
        for owner, head in admitted:
            self.admission.end(owner, head, CLIENT, [FULL] if by_queue else [])


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


# Queues --------------------------------------------------------------------------------------------------------------


def test_nothing_is_refused_while_the_loop_is_on_time_and_no_queue_has_refused(traffic: Traffic) -> None:
    traffic.admission.tick(ON_TIME_S)
    assert not traffic.admission.is_pressed
    assert len(traffic.send("A", 5000)) == 5000


def test_the_refusal_of_a_queue_is_repeated_for_that_organization_and_operation(traffic: Traffic) -> None:
    (*_, last) = traffic.send("A", 9)
    traffic.end(last, by_queue=True)
    assert traffic.refusal(a_request("A")) is FULL
    assert traffic.refusal(a_request("A2")) is FULL  # another key of the organization
    assert traffic.refusal(a_request("B")) is None
    for other in (
        a_request("A", method="GET"),
        a_request("A", "/api/v1/bookings/1/cancel"),
        a_request("A", "/api/v1/customers"),
    ):
        assert traffic.refusal(other) is None
    assert traffic.refusal(a_request("A", "/api/v1/bookings?dry=run")) is FULL


def test_an_organization_asks_the_queue_again_when_a_quarter_of_its_requests_were_answered(traffic: Traffic) -> None:
    *waiting, last = traffic.send("A", 9)
    traffic.end(last, by_queue=True)
    traffic.end(waiting.pop())
    assert traffic.send("A") == []
    traffic.end(waiting.pop())
    assert len(traffic.send("A", 100)) == 100  # until the queue refuses one of them


def test_an_organization_that_a_queue_has_refused_gets_one_more_in_for_each_that_was_answered(traffic: Traffic) -> None:
    *waiting, last = traffic.send("A", 33)
    traffic.end(last, by_queue=True)
    traffic.end(*(waiting.pop() for _ in range(4)))
    for _ in range(100):  # and the queue is not asked in vain
        assert traffic.send("A", 10) == []
        traffic.end(waiting.pop())
        (admitted,) = traffic.send("A", 10)
        waiting.append(admitted)


def test_an_organization_asks_the_queue_again_after_the_time_of_retry_after(traffic: Traffic) -> None:
    *_, last = traffic.send("A", 9)
    traffic.end(last, by_queue=True)
    traffic.at += FULL.retry_after_s - 0.1
    traffic.admission.tick(ON_TIME_S)
    assert traffic.send("A") == []
    traffic.at += 0.1
    traffic.admission.tick(ON_TIME_S)
    assert not traffic.admission.is_pressed
    assert len(traffic.send("A")) == 1


def test_one_request_at_a_time_may_always_ask_the_queue(traffic: Traffic) -> None:
    traffic.end(*traffic.send("A"), by_queue=True)
    assert len(traffic.send("A")) == 1


# A late event loop ---------------------------------------------------------------------------------------------------


def test_a_burst_that_makes_the_loop_late_for_less_than_a_second_is_not_refused(traffic: Traffic) -> None:
    traffic.send("A", 2000)
    for _ in range(4):
        traffic.at += 0.2
        traffic.admission.tick(0.15)
    assert len(traffic.send("A", 1000)) == 1000
    traffic.admission.tick(ON_TIME_S)
    traffic.at += 0.2
    traffic.admission.tick(0.15)
    assert len(traffic.send("A", 1000)) == 1000


def test_a_loop_that_stays_late_is_late(traffic: Traffic) -> None:
    traffic.send("A", 2000)
    for _ in range(6):
        traffic.at += 0.2
        traffic.admission.tick(0.15)
    assert traffic.send("A", 1000) == []


def test_while_the_loop_is_late_a_flood_is_refused_and_its_neighbours_are_not(traffic: Traffic) -> None:
    flood = traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    assert traffic.send("A", 100) == []
    assert len(traffic.send("B", 50)) == 50
    assert len(traffic.send("C", 50)) == 50
    assert traffic.send("A", 100) == []
    traffic.end(*flood)
    assert len(traffic.send("A", 50)) == 50


def test_a_flood_takes_an_equal_part_and_leaves_one_for_the_next_organization(traffic: Traffic) -> None:
    traffic.send("B", 1)
    for _ in range(10):
        traffic.admission.tick(LATE_S)
    assert len(traffic.send("A", 1000)) == rules.PLACES_MIN // 3


def test_an_organization_without_a_request_in_flight_is_never_refused(traffic: Traffic) -> None:
    others = [chr(ord("D") + number % 20) + str(number) for number in range(20)]
    for key in others:
        traffic.end(traffic.begin(a_request(key)))
        traffic.send(key, 500)
    for _ in range(20):
        traffic.admission.tick(LATE_S)
        traffic.end(*traffic.send("B"))
    assert traffic.reported == {}


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
    assert not traffic.admission.is_pressed


def test_the_retry_after_of_a_late_loop_is_twice_its_lag(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(3.5)
    refusal = traffic.refusal(a_request("A"))
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_s) == ("late", 7)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/readyz?verbose"])
def test_probes_are_never_refused(traffic: Traffic, path: str) -> None:
    traffic.send("", 3000)
    traffic.admission.tick(LATE_S)
    assert traffic.send("", path="/docs", method="GET") == []
    assert len(traffic.send("", 5, path=path, method="GET")) == 5


def test_refusals_are_counted_by_reason_and_logged_in_sum(traffic: Traffic, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="booking.http")
    *_, last = traffic.send("A", 2000)
    traffic.end(last, by_queue=True)
    traffic.send("A", 30)
    traffic.admission.tick(LATE_S)
    traffic.send("A", 20, method="GET")
    traffic.admission.tick(LATE_S)
    assert traffic.reported == {"queue": 30, "late": 20}
    traffic.at += rules.LOG_S
    traffic.admission.tick(LATE_S)
    traffic.admission.tick(LATE_S)
    assert [record.getMessage() for record in caplog.records] == [
        "refused 30 requests above capacity, most of them of A: 30",
        "refused 20 requests above capacity, most of them of A: 20",
    ]


def test_ticks_go_on_when_a_refusal_cannot_be_reported(traffic: Traffic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "TICK_S", 0.0)
    reported = asyncio.Event()

    def report(reason: str, count: int) -> None:
        reported.set()
        raise OSError

    async def run() -> None:
        traffic.admission.observe = report
        async with traffic.admission.running():
            for _ in range(2):
                reported.clear()
                traffic.send("A", 3000)
                traffic.admission._adapt(traffic.at, LATE_S)
                traffic.admission.is_pressed = True
                assert traffic.send("A") == []
                await asyncio.wait_for(reported.wait(), 30)

    asyncio.run(run())


# Rate limits ---------------------------------------------------------------------------------------------------------


def over_limit(key: str, traffic: Traffic, free_in_s: float, *, of_address: bool = False) -> RateLimited:
    """Let the rate limit refuse a request of the key, and return the refusal."""
    headers = [(b"x-ratelimit-remaining", b"0")]
    refusal = RateLimited(7, free_at_s=traffic.at + free_in_s, headers=headers, of_address=of_address)
    owner, head = traffic.begin(a_request(key))
    traffic.admission.end(owner, head, CLIENT, [refusal])
    return refusal


def test_a_key_over_its_limit_is_refused_that_operation_until_it_has_a_token(traffic: Traffic) -> None:
    headers = over_limit("A", traffic, 0.5).headers
    assert traffic.admission.is_pressed
    repeated = traffic.admission.of_rate_limit(a_request("A"), CLIENT)
    assert repeated is not None
    assert (repeated.retry_after_s, repeated.headers) == (1, headers)
    for other in (a_request("A2"), a_request("A", method="GET"), a_request("A", "/api/v1/nothing"), a_request("B")):
        assert traffic.admission.of_rate_limit(other, CLIENT) is None
        assert traffic.refusal(other) is None
    traffic.at += 0.5
    assert traffic.admission.of_rate_limit(a_request("A"), CLIENT) is None
    traffic.admission.tick(ON_TIME_S)
    assert not traffic.admission.is_pressed
    assert traffic.reported == {"rate": 1}


def test_a_key_over_its_limit_is_looked_up_again_after_a_second(traffic: Traffic) -> None:
    over_limit("A", traffic, 30.0)
    traffic.at += rules.LIMITED_MAX_S / 2
    traffic.admission.tick(ON_TIME_S)
    repeated = traffic.admission.of_rate_limit(a_request("A"), CLIENT)
    assert repeated is not None
    assert repeated.retry_after_s == 30
    traffic.at += rules.LIMITED_MAX_S / 2
    traffic.admission.tick(ON_TIME_S)
    assert traffic.admission.of_rate_limit(a_request("A"), CLIENT) is None
    assert not traffic.admission.is_pressed


def test_an_address_over_its_limit_is_refused_whatever_key_it_guesses(traffic: Traffic) -> None:
    headers = over_limit("guessed-1", traffic, 0.5, of_address=True).headers
    for key in ("guessed-1", "guessed-2", ""):
        repeated = traffic.admission.of_rate_limit(a_request(key), CLIENT)
        assert repeated is not None
        assert (repeated.retry_after_s, repeated.headers, repeated.of_address) == (1, headers, True)
    assert traffic.admission.of_rate_limit(a_request("guessed-1", method="GET"), CLIENT) is None
    assert traffic.admission.of_rate_limit(a_request("A"), CLIENT) is None  # its key was seen to be valid
    for other in (("192.0.2.2", b""), (CLIENT[0], b"198.51.100.1")):
        assert traffic.admission.of_rate_limit(a_request("guessed-1"), other) is None
    traffic.at += 0.5
    assert traffic.admission.of_rate_limit(a_request("guessed-2"), CLIENT) is None
    traffic.admission.tick(ON_TIME_S)
    assert not traffic.admission.is_pressed


# Impatient clients ---------------------------------------------------------------------------------------------------


def test_few_refusals_are_sent_at_once(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    told_until_s = traffic.admission.next_refusal_s(FULL)
    for _ in range(20):
        traffic.send("A", rules.AT_ONCE)
        assert traffic.admission.delay_s(told_until_s) == 0
        traffic.admission.tick(LATE_S)


def test_in_a_flood_a_refusal_waits_until_the_client_was_told_to_come_again(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    told_until_s = traffic.admission.next_refusal_s(Unavailable(retry_after_s=1))
    traffic.send("A", rules.AT_ONCE + 1)
    traffic.at += 0.25
    assert traffic.admission.delay_s(told_until_s) == pytest.approx(0.75)
    traffic.at += 0.75
    assert traffic.admission.delay_s(told_until_s) == 0


def test_a_refusal_waits_for_a_second_at_most(traffic: Traffic) -> None:
    traffic.send("A", 3000)
    traffic.admission.tick(LATE_S)
    traffic.send("A", rules.AT_ONCE + 1)
    assert (
        traffic.admission.delay_s(traffic.admission.next_refusal_s(Unavailable(retry_after_s=30))) == rules.DELAY_MAX_S
    )


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
    """Refuses what asks for `/refused`."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.is_pressed = True
        self.asked = self.ended = 0

    def refusal(self, head: RequestHead) -> Unavailable | None:
        self.asked += 1
        return FULL if head.target.startswith((b"/refused", b"/manage/")) else None

    def end(
        self, owner: Owner, head: RequestHead, client: rules.Client, refusals: Sequence[Unavailable | RateLimited] = ()
    ) -> None:
        super().end(owner, head, client, refusals)
        self.ended += 1


GET = b"GET /refused HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n"
POST = b"POST /refused HTTP/1.1\r\nHost: x\r\n"
ACCEPTED = b"GET /accepted HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    with stepped_loop() as made:
        yield made


@pytest.fixture
def turnstile() -> Turnstile:
    return Turnstile()


@pytest.fixture
def connection(loop: SteppedLoop, turnstile: Turnstile) -> Connection:
    return Connection(loop, echo, state={STATE: turnstile})


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"BREW"])
def test_a_refusal_has_the_bytes_of_the_applications_own(
    loop: SteppedLoop, connection: Connection, method: bytes
) -> None:
    application = Connection(loop, refusing(FULL))
    for each in (connection, application):
        each.protocol.server_state.default_headers = [(b"date", b"Mon, 100%% \xe9"), (b"server", b"one")]
        each.send(GET.replace(b"GET", method))
    assert bytes(connection.transport.written) == bytes(application.transport.written)
    assert b"\r\nretry-after: 3\r\n" in connection.transport.written


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


def test_a_guest_who_is_refused_gets_a_page(connection: Connection) -> None:
    connection.send(b"GET /manage/token HTTP/1.1\r\nHost: x\r\nAccept-Language: de\r\n\r\n", ACCEPTED)
    page, accepted = connection.responses
    assert (page.status, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert page.headers["retry-after"] == "3"
    assert b'<html lang="de" ' in page.body
    assert accepted.status == 200


def test_the_application_is_not_called_and_the_connection_is_kept(
    loop: SteppedLoop, connection: Connection, turnstile: Turnstile
) -> None:
    connection.send(GET, ACCEPTED, GET, ACCEPTED)
    assert [each.status for each in connection.responses] == [503, 200, 503, 200]
    assert turnstile.ended == 2
    assert connection.state == "open"
    connection.pass_time(75)
    assert connection.state == "aborted"
    connection.settle()
    assert not [handle for handle in vars(loop)["_scheduled"] if not handle.cancelled()]


def test_the_body_of_a_refused_request_is_read_and_dropped(connection: Connection) -> None:
    connection.send(POST + b"Content-Length: 10\r\n\r\n", b"GET /")
    assert connection.responses == []
    connection.send(b"12345" + ACCEPTED)
    assert [each.status for each in connection.responses] == [503, 200]


def test_refusals_do_not_depend_on_how_the_bytes_are_cut(loop: SteppedLoop) -> None:
    stream = POST + b"Content-Length: 10\r\n\r\n0123456789" + ACCEPTED + GET
    for cut in range(1, len(stream)):
        connection = Connection(loop, echo, state={STATE: Turnstile()})
        connection.send(stream[:cut], stream[cut:])
        assert [each.status for each in connection.responses] == [503, 200, 503], cut


def test_a_refused_request_whose_body_never_ends_is_aborted(connection: Connection) -> None:
    connection.send(POST + b"Content-Length: 10\r\n\r\n", b"12345")
    connection.pass_time(30)
    assert connection.state == "aborted"


@pytest.mark.parametrize(
    "framing",
    [b"Transfer-Encoding: chunked", b"Content-Length: 10\r\nExpect: 100-continue", b"Content-Length: 9999999"],
)
def test_a_body_that_is_not_worth_reading_closes_the_connection(connection: Connection, framing: bytes) -> None:
    connection.send(POST + framing + b"\r\n\r\n", b"GET ", ACCEPTED)
    (response,) = connection.responses
    assert (response.status, response.headers["connection"], connection.state) == (503, "close", "half-closed")


def test_a_client_that_closes_gets_connection_close(connection: Connection) -> None:
    connection.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    (response,) = connection.responses
    assert (response.status, response.headers["connection"], connection.state) == (503, "close", "half-closed")


def test_pipelined_requests_are_refused_in_their_turn(connection: Connection) -> None:
    connection.send(ACCEPTED + GET + GET + ACCEPTED + GET)
    assert [each.status for each in connection.responses] == [200, 503, 503, 200, 503]
    assert connection.state == "open"


def test_a_client_that_does_not_read_gets_no_more_than_one_refusal(connection: Connection) -> None:
    connection.protocol.pause_writing()
    connection.send(GET * 50)
    assert connection.responses == []
    connection.protocol.resume_writing()
    connection.settle()
    assert {each.status for each in connection.responses} == {503}


def test_a_request_counts_until_its_client_has_gone_and_its_work_ended(loop: SteppedLoop, turnstile: Turnstile) -> None:
    traffic = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        assert scope[REFUSALS] == []
        await traffic.wait()

    connection = Connection(loop, slow, state={STATE: turnstile})
    connection.send(ACCEPTED)
    connection.transport.abort()
    connection.settle()
    assert turnstile.ended == 0
    traffic.set()
    connection.settle()
    assert turnstile.ended == 1


class Flooded(Turnstile):
    """Refuses what asks for `/refused`, and refuses many others at the same time."""

    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__()
        self._clock = loop.time
        self._refused_in_tick = rules.AT_ONCE + 1


@pytest.fixture
def flooded(loop: SteppedLoop) -> Connection:
    return Connection(loop, echo, state={STATE: Flooded(loop)})


def test_a_client_that_asks_again_at_once_gets_one_refusal_a_second(flooded: Connection) -> None:
    flooded.send(GET)
    for refused in range(1, 5):
        flooded.send(GET)
        flooded.pass_time(0.9)
        assert len(flooded.responses) == refused
        flooded.pass_time(0.1)
        assert len(flooded.responses) == refused + 1


def test_a_client_that_waits_as_it_was_told_is_refused_without_a_delay(flooded: Connection) -> None:
    for refused in range(1, 5):
        flooded.send(GET)
        assert len(flooded.responses) == refused
        flooded.pass_time(1.0)


def test_what_is_admitted_never_waits(flooded: Connection) -> None:
    flooded.send(GET, ACCEPTED, ACCEPTED)
    assert [each.status for each in flooded.responses] == [503, 200, 200]


def test_another_key_on_the_same_connection_does_not_wait(flooded: Connection) -> None:
    def asked(key: bytes) -> bytes:
        return GET.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer %b\r\n\r\n" % key)

    flooded.send(asked(b"one"), asked(b"two"))
    assert [each.status for each in flooded.responses] == [503, 503]
    flooded.send(asked(b"two"))
    assert len(flooded.responses) == 2


class OfAddress(Flooded):
    """Refuses each client that asks for `/refused` by the limit of its address."""

    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__(loop)
        self.clients: list[rules.Client] = []

    def of_rate_limit(self, head: RequestHead, client: rules.Client) -> RateLimited | None:
        self.clients.append(client)
        return RateLimited(1, of_address=True) if head.target == b"/refused" else None


@pytest.mark.parametrize("trusts_proxies", [False, True])
def test_a_client_that_guesses_keys_waits_whatever_the_next_key_is(loop: SteppedLoop, *, trusts_proxies: bool) -> None:
    turnstile = OfAddress(loop)
    connection = Connection(loop, echo, state={STATE: turnstile}, proxy_headers=trusts_proxies)

    def guess(key: bytes, client: bytes = b"198.51.100.1") -> bytes:
        fields = b"Authorization: Bearer %b\r\nX-Forwarded-For: %b\r\n" % (key, client)
        return GET.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n")

    connection.send(guess(b"one"), guess(b"two"))
    assert [each.status for each in connection.responses] == [429]
    connection.pass_time(1.0)
    assert [each.status for each in connection.responses] == [429] * 2
    # Behind a proxy that is trusted, another client on the same connection is another one.
    connection.send(guess(b"three", b"198.51.100.2"))
    assert len(connection.responses) == (3 if trusts_proxies else 2)
    assert turnstile.clients[-1][1] == (b"198.51.100.2" if trusts_proxies else b"")


def test_what_follows_a_refusal_that_waits_is_answered_after_it(flooded: Connection) -> None:
    flooded.send(GET, GET)
    assert len(flooded.responses) == 1
    flooded.send(ACCEPTED)
    assert [each.status for each in flooded.responses] == [503, 503, 200]
    flooded.send(GET + ACCEPTED)
    assert [each.status for each in flooded.responses] == [503, 503, 200, 503, 200]


def test_an_invalid_request_behind_a_refusal_that_waits_is_answered_after_it(flooded: Connection) -> None:
    flooded.send(GET, GET + b"no request\r\n\r\n")
    assert [each.status for each in flooded.responses] == [503, 503, 400]


def test_a_server_that_stops_sends_the_refusals_that_wait(flooded: Connection) -> None:
    flooded.send(GET, GET)
    flooded.protocol.shutdown()
    flooded.settle()
    assert [each.status for each in flooded.responses] == [503, 503]
    assert flooded.state == "closed"


def test_a_client_that_leaves_costs_nothing_more(loop: SteppedLoop, flooded: Connection) -> None:
    flooded.send(GET, GET)
    flooded.transport.abort()
    flooded.settle()
    flooded.pass_time(1.0)
    assert len(flooded.responses) == 1
    assert not [handle for handle in vars(loop)["_scheduled"] if not handle.cancelled()]


# The service ---------------------------------------------------------------------------------------------------------


async def exchanged(port: int, request: bytes) -> tuple[bytes, Any]:
    """Return the head and the body of the service's response to the bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head, orjson.loads(body)


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_late_service_refuses_before_a_key_is_looked_up(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[Any] = []
    identify_many = keys.identify_many

    def counting(*sent: Any) -> Any:
        looked_up.append(sent)
        return identify_many(*sent)

    monkeypatch.setattr(keys, "identify_many", counting)
    monkeypatch.setattr(rules, "TICK_S", 3600.0)
    app = create_app(Settings(database_url=fresh_database_url, secret_key="k" * 43))
    admission: Admission = app.state.admission
    request = b"GET %b HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer svc_x\r\nConnection: close\r\n\r\n"

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, lifespan="on", log_level="warning"))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            port = listener.getsockname()[1]
            flood = [a_request(f"Bearer svc_{number}") for number in range(3000)]
            owners = [admission.begin(head) for head in flood]
            admission.tick(LATE_S)
            response, body = await exchanged(port, request % b"/api/v1/me")
            assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"\r\nretry-after: 2\r\n" in response
            assert body["code"] == "service_unavailable"
            assert b"\r\nx-request-id: %b\r\n" % body["request_id"].encode() in response
            assert looked_up == []
            assert (await exchanged(port, request % b"/healthz"))[0].startswith(b"HTTP/1.1 200 ")
            for owner, head in zip(owners, flood, strict=True):
                admission.end(owner, head, CLIENT)
            assert (await exchanged(port, request % b"/api/v1/me"))[0].startswith(b"HTTP/1.1 401 ")
            assert len(looked_up) == 1
            server.should_exit = True
            await serving

    asyncio.run(run())
    admission.tick(ON_TIME_S)
    counted = app.state.monitor.metrics.registry.get_sample_value
    assert counted("booking_http_unavailable_total", {"reason": "late"}) == 1
    assert counted("booking_http_requests_total", {"operation": "(unrouted)", "status": "503"}) == 1


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_a_refusal_by_a_queue_is_noted_for_the_admission(
    fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(Settings(database_url=fresh_database_url, secret_key="k" * 43))
    refusals: list[Unavailable] = []

    def full(*_: object) -> None:
        raise FULL

    async def run() -> None:
        scope = {"type": "http", "method": "GET", "path": "/api/v1/me", "raw_path": b"/api/v1/me", "query_string": b""}
        monkeypatch.setattr(app.state.service.reads, "_submit", full)
        headers = [(b"authorization", b"Bearer svc_x")]
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        await app({**scope, "headers": headers, REFUSALS: refusals}, receive, send)
        assert sent[0]["status"] == 503

    asyncio.run(run())
    assert refusals == [FULL]


class Client:
    """A client of the service that keeps its connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def get(self, path: str, key: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Return the status, the headers and the body of the response."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), headers, orjson.loads(body)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()


@contextlib.asynccontextmanager
async def clients(app: Any, count: int) -> AsyncIterator[list[Client]]:
    """Serve the application, and connect so many clients."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, lifespan="on", log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        made = [Client(*await asyncio.open_connection(*listener.getsockname())) for _ in range(count)]
        yield made
        for client in made:
            await client.close()
        server.should_exit = True
        await serving


@pytest.fixture
def limited(fresh_database_url: str) -> Any:
    """An application that allows three requests an hour with a key."""
    limit = RateLimit(3, 3600)
    return create_app(
        Settings(database_url=fresh_database_url, secret_key=SECRET, secret_key_check="warn", rate_limit=limit)
    )


def without_id(answer: tuple[int, dict[str, str], dict[str, Any]]) -> Any:
    """Return an answer without what differs between two that are the same."""
    status, headers, body = answer
    own = {"x-request-id", "retry-after", "date"}
    return status, [each for each in headers.items() if each[0] not in own], {**body, "request_id": ""}


def test_a_key_that_asks_on_beyond_its_limit_costs_no_look_up(
    limited: Any, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusals pass through no lane, where other organizations would wait behind them."""
    looked_up: list[str] = []
    identify_many = keys.identify_many

    def counting(tx: Any, texts: Sequence[str], *others: Any) -> Any:
        looked_up.extend(texts)
        return identify_many(tx, texts, *others)

    monkeypatch.setattr(keys, "identify_many", counting)
    monkeypatch.setattr(rules, "LIMITED_MAX_S", 3600.0)
    with contextlib.closing(Database(fresh_database_url)) as database:
        offender, neighbour = (make_world(database, FixedClock(system_clock())).key() for _ in range(2))

    async def run() -> None:
        async with clients(limited, 2) as (flood, other):
            assert [(await flood.get("/api/v1/me", offender))[0] for _ in range(3)] == [200] * 3
            made = await flood.get("/api/v1/me", offender)
            before = len(looked_up)
            repeated = [await flood.get("/api/v1/me", offender) for _ in range(rules.AT_ONCE)]
            assert len(looked_up) == before
            assert [without_id(each) for each in repeated] == [without_id(made)] * len(repeated)
            assert (made[0], made[2]["code"], made[1]["x-ratelimit-remaining"]) == (429, "rate_limited", "0")
            assert all(1000 < int(headers["retry-after"]) <= 1200 for _, headers, _ in (made, *repeated))
            assert len({headers["x-request-id"] for _, headers, _ in repeated}) == len(repeated)
            assert (await flood.get("/api/v1/nothing", offender))[0] == 404
            for client in (other, flood):
                assert (await client.get("/api/v1/me", neighbour))[0] == 200

    asyncio.run(run())
    limited.state.admission.tick(ON_TIME_S)
    counted = limited.state.monitor.metrics.registry.get_sample_value
    assert counted("booking_http_requests_total", {"operation": "(unrouted)", "status": "429"}) == rules.AT_ONCE
    assert counted("booking_http_unavailable_total", {"reason": "rate"}) is None


def test_an_address_over_its_limit_costs_no_look_up_and_its_valid_keys_are_admitted(
    limited: Any, fresh_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses beyond the limit pass through no lane, and a key that was seen to be valid is used beside them."""
    monkeypatch.setattr(authenticator, "ANONYMOUS", RateLimit(3, 3600))
    monkeypatch.setattr(rules, "LIMITED_MAX_S", 3600.0)
    with contextlib.closing(Database(fresh_database_url)) as database:
        valid = make_world(database, FixedClock(system_clock())).key()

    async def run() -> None:
        async with clients(limited, 2) as (guessing, other):
            assert (await other.get("/api/v1/me", valid))[0] == 200
            assert [(await guessing.get("/api/v1/me", f"svc_x{n}"))[0] for n in range(3)] == [401] * 3
            made = await guessing.get("/api/v1/me", "svc_y")
            with monkeypatch.context() as patch:
                patch.setattr(limited.state.service.reads, "_submit", pytest.fail)
                repeated = [await guessing.get("/api/v1/me", f"svc_y{n}") for n in range(5)]
            assert [without_id(each) for each in repeated] == [without_id(made)] * 5
            assert (made[0], made[2]["code"], made[1]["x-ratelimit-limit"]) == (429, "rate_limited", "3")
            assert (await other.get("/api/v1/me", valid))[0] == 200
            assert (await guessing.get("/api/v1/me", valid))[0] == 200

    asyncio.run(run())
