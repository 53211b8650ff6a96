"""The requests, refusals and time limits of one connection (decision R4), in simulated time."""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.api.connections import Connection, Response, SteppedLoop, echo, parsed, respond, stepped_loop

from booking_core.models.limits import REQUEST_FIELDS_MAX, REQUEST_HEAD_BYTES_MAX
from booking_server.fastapi_ext.requests import read_body
from booking_server.transport.protocol import LINGER_BYTES_MAX

GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HELLO = b"5\r\nhello\r\n0\r\n\r\n"


@pytest.fixture
def connection(loop: SteppedLoop) -> Connection:
    return Connection(loop, echo)


class Slow:
    """An application that answers with the path when it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.started: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.started.append(scope["path"])
        await self.released.wait()
        await respond(send, scope["path"].encode())


@pytest.fixture
def slow() -> Slow:
    return Slow()


def head(size: int) -> bytes:
    """Return a head of this size in bytes."""
    start = GET + b"X-Long: "
    return start + b"a" * (size - len(start) - 4) + b"\r\n\r\n"


def with_fields(count: int) -> bytes:
    """Return a head with this number of fields."""
    return GET + b"".join(b"X-%d: y\r\n" % number for number in range(count - 1)) + b"\r\n"


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def assert_refused(response: Response, status: int, code: str) -> None:
    assert (response.status, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["connection"] == "close"
    assert response.headers["x-request-id"] == response.json()["request_id"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert set(response.json()) <= {"error", "code", "details", "request_id"}


INVALID = {
    "no-host": b"GET / HTTP/1.1\r\n\r\n",
    "two-hosts": GET + b"Host: x\r\n\r\n",
    "two-different-hosts": GET + b"hOST: y\r\n\r\n",
    "empty-host": b"GET / HTTP/1.1\r\nHost: \r\n\r\n",
    "host-with-a-blank": b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
    "host-with-a-path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "length-and-chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO,
    "chunked-and-length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + HELLO,
    "two-lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "same-length-twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "list-of-lengths": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "signed-length": POST + b"Content-Length: +5\r\n\r\nhello",
    "negative-length": POST + b"Content-Length: -5\r\n\r\nhello",
    "hexadecimal-length": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "empty-length": POST + b"Content-Length:\r\n\r\nhello",
    "underscored-length": POST + b"Content-Length: 1_0\r\n\r\n",
    "huge-length": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "unknown-coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + HELLO,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "gzip-then-chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + HELLO,
    "chunked-not-last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + HELLO,
    "chunked-twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + HELLO,
    "two-codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO,
    "coding-with-vertical-tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + HELLO,
    "chunked-1.0": b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO,
    "http-0.9": b"GET /\r\n\r\n",
    "http-0.9-one-line": b"GET /\r\n",
    "http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http-1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "http-3": b"GET / HTTP/3\r\nHost: x\r\n\r\n",
    "lower-case-version": b"GET / http/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "socks": b"\x05\x01\x00",
    "line-folding": GET + b"A: b\r\n c\r\n\r\n",
    "blank-before-first-field": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "blank-before-colon": GET + b"A : b\r\n\r\n",
    "no-colon": GET + b"A\r\n\r\n",
    "no-name": GET + b": b\r\n\r\n",
    "name-in-parentheses": GET + b"(a): b\r\n\r\n",
    "nul-in-value": GET + b"A: b\x00c\r\n\r\n",
    "control-in-value": GET + b"A: b\x01c\r\n\r\n",
    "bare-lf-head": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare-lf-in-head": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare-lf-at-the-end": b"GET / HTTP/1.1\r\nHost: x\r\n\n",
    "bare-cr-in-value": GET + b"A: b\rc\r\n\r\n",
    "cr-cr-lf": GET + b"A: b\r\r\n\r\n",
    "bare-lf-first": b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two-empty-lines-first": b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "two-blanks": b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tab-in-line": b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "blank-at-the-end-of-line": b"GET / HTTP/1.1 \r\nHost: x\r\n\r\n",
    "blank-in-target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "no-target": b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes-in-target": b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    "no-path": b"GET foo HTTP/1.1\r\nHost: x\r\n\r\n",
    "authority": b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "chunk-size-no-number": CHUNKED + b"x\r\nhello\r\n0\r\n\r\n",
    "chunk-size-signed": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "chunk-size-prefixed": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "chunk-size-blank": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "chunk-size-empty": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "chunk-size-huge": CHUNKED + b"fffffffffffffffff\r\n",
    "chunk-size-bare-lf": CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    "chunk-size-endless": CHUNKED + b"0" * 10_000,
    "chunk-too-long": CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
    "chunk-end-bare-lf": CHUNKED + b"5\r\nhello\n0\r\n\r\n",
    "chunk-end-missing": CHUNKED + b"5\r\nhello0\r\n\r\n",
    "extension-blank": CHUNKED + b'5;name="value" ;x\r\nhello\r\n0\r\n\r\n',
    "extension-bare-lf": CHUNKED + b"5;a\nhello\r\n0\r\n\r\n",
    "extension-bare-cr": CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "extension-long": CHUNKED + b"5;" + b"a" * 10_000 + b"\r\nhello\r\n0\r\n\r\n",
    "extensions-many": CHUNKED + b"1;abcdefgh\r\nx\r\n" * 1000,
    "trailer-host": CHUNKED + b"0\r\nHost: y\r\n\r\n",
    "trailer-length": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n",
    "trailer-coding": CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "trailer-no-colon": CHUNKED + b"0\r\nA\r\n\r\n",
    "trailer-bare-lf": CHUNKED + b"0\r\nA: b\n\r\n",
    "trailer-long": CHUNKED + b"0\r\n" + b"A: bcdefgh\r\n" * 1000,
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_request_is_refused_and_the_connection_closed(loop: SteppedLoop, name: str) -> None:
    for cut in (100_000, 1 if len(INVALID[name]) < 200 else 97):
        connection = Connection(loop, echo)
        connection.send(*in_pieces(INVALID[name], cut))
        (response,) = connection.responses
        assert_refused(response, 400, "validation_failed")
        assert connection.state == "half-closed"


VALID = {
    "get": (GET + b"\r\n", b""),
    "http-1.0": (b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n", b""),
    "http-1.0-without-host": (b"GET /a HTTP/1.0\r\n\r\n", b""),
    "empty-line-first": (b"\r\n" + GET + b"\r\n", b""),
    "host-with-port": (b"GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", b""),
    "absolute-target": (b"GET http://y/a?b HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "unknown-method": (b"FOO /a HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "lower-case-method": (b"get /a HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "connect-to-a-path": (b"CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "length": (POST + b"Content-Length: 5\r\n\r\nhello", b"hello"),
    "no-length": (POST + b"Content-Length: 0\r\n\r\n", b""),
    "chunked": (CHUNKED + HELLO, b"hello"),
    "chunked-in-capitals": (POST + b"TRANSFER-ENCODING: Chunked\r\n\r\n" + HELLO, b"hello"),
    "chunks": (CHUNKED + b"5\r\nhello\r\n0006\r\n world\r\n0\r\n\r\n", b"hello world"),
    "extension": (CHUNKED + b'5;name="value";x\r\nhello\r\n0;y\r\n\r\n', b"hello"),
    "trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"hello"),
    "upgrade": (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n", b""),
    "upgrade-with-body": (
        POST + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n\r\nhello",
        b"hello",
    ),
    "continue": (POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    "largest-head": (head(REQUEST_HEAD_BYTES_MAX), b""),
    "most-fields": (with_fields(REQUEST_FIELDS_MAX), b""),
}


@pytest.mark.parametrize("name", VALID)
def test_a_valid_request_is_parsed_in_pieces_of_any_size(loop: SteppedLoop, name: str) -> None:
    sent, body = VALID[name]
    for cut in (len(sent), 1000, 1) if len(sent) < 5000 else (len(sent), 1000):
        connection = Connection(loop, echo)
        connection.send(*in_pieces(sent, cut))
        (response,) = connection.responses
        assert response.status == 200
        assert response.json()["method"] == sent.split()[0].decode()
        assert response.json()["body"] == body.decode()
        assert connection.state == ("half-closed" if name.startswith("http-1.0") else "open")


def test_trailers_do_not_become_headers(connection: Connection) -> None:
    connection.send(CHUNKED + b"0\r\nAuthorization: Bearer stolen\r\nIdempotency-Key: late\r\n\r\n")
    (response,) = connection.responses
    assert [name for name, _ in response.json()["headers"]] == ["host", "transfer-encoding"]


@pytest.mark.parametrize(
    "sent",
    [head(REQUEST_HEAD_BYTES_MAX + 1), with_fields(REQUEST_FIELDS_MAX + 1), b"GET /" + b"a" * REQUEST_HEAD_BYTES_MAX],
    ids=["one-byte-more", "one-field-more", "long-url"],
)
@pytest.mark.parametrize("cut", [1_000_000, 1_000])
def test_a_head_over_64_kib_or_100_fields_is_refused(connection: Connection, sent: bytes, cut: int) -> None:
    connection.send(*in_pieces(sent, cut))
    (response,) = connection.responses
    assert_refused(response, 431, "headers_too_large")
    assert connection.state == "half-closed"


def test_only_the_allowed_size_of_a_head_is_kept_and_parsed(connection: Connection) -> None:
    """The server once kept a head of 50 MiB, and copied it for each piece."""
    piece = GET + b"X: " + b"a" * 16_384
    for sent in range(1, 3_000):
        connection.send(piece) if sent < 6 else connection.protocol.data_received(piece)
        assert len(connection.protocol._head) <= REQUEST_HEAD_BYTES_MAX + len(piece)
        piece = b"a" * 16_384
        if connection.transport.written and not connection.responses:
            break
    (response,) = connection.responses
    assert_refused(response, 431, "headers_too_large")
    assert connection.protocol._discarded > 40_000_000  # read after the refusal and dropped unseen


def test_the_requests_before_an_invalid_one_are_answered_first(loop: SteppedLoop, slow: Slow) -> None:
    connection = Connection(loop, slow)
    connection.send(GET + b"\r\n" + POST + b"Content-Length: 2\r\n\r\n{}" + b"nonsense\r\n\r\n")
    assert connection.responses == []
    slow.released.set()
    connection.settle()
    first, second, third = connection.responses
    assert [first.body, second.body] == [b"/a", b"/p"]
    assert_refused(third, 400, "validation_failed")
    assert connection.state == "half-closed"


def test_a_request_with_an_invalid_body_is_not_executed(loop: SteppedLoop) -> None:
    executed = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(scope, receive)
        executed.append(body if isinstance(body, bytes) else None)
        await respond(send, b"done")

    for pieces in ([CHUNKED + b"5\r\nhelloX"], [CHUNKED, b"5\r\nhe", b"llo", b"X", b"0\r\n\r\n"]):
        connection = Connection(loop, app)
        connection.send(*pieces)
        (response,) = connection.responses
        assert_refused(response, 400, "validation_failed")
    assert not any(executed)


def test_a_queued_request_with_an_invalid_body_never_starts(loop: SteppedLoop, slow: Slow) -> None:
    connection = Connection(loop, slow)
    connection.send(GET + b"\r\n" + CHUNKED + b"x\r\n")
    slow.released.set()
    connection.settle()
    first, second = connection.responses
    assert (first.body, slow.started) == (b"/a", ["/a"])
    assert_refused(second, 400, "validation_failed")


def test_pipelined_requests_are_answered_in_order(connection: Connection) -> None:
    connection.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(100)))
    for _ in range(100):
        connection.settle()
    assert [response.json()["path"] for response in connection.responses] == [f"/{number}" for number in range(100)]


def test_a_refusal_keeps_the_request_id_of_a_readable_head(connection: Connection) -> None:
    connection.send(b"GET / HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n")
    assert connection.responses[0].headers["x-request-id"] == "mine"


def test_a_client_that_expects_100_continue_receives_it(connection: Connection) -> None:
    connection.send(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    assert bytes(connection.transport.written) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(b"hello")
    assert connection.responses[0].json()["body"] == "hello"


async def bounded(scope: Any, receive: Any, send: Any) -> None:
    """Read the body as the service does."""
    body = await read_body(scope, receive)
    await respond(send, b"ok", 200 if isinstance(body, bytes) else 413)


def test_a_client_with_too_large_a_content_length_receives_no_100_continue(loop: SteppedLoop) -> None:
    connection = Connection(loop, bounded)
    connection.send(POST + b"Expect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n")
    assert b"100 Continue" not in connection.transport.written
    (response,) = connection.responses
    assert (response.status, response.headers["connection"]) == (413, "close")
    assert connection.state == "half-closed"


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_response_before_the_end_of_the_request_closes_and_lingers(loop: SteppedLoop, framing: bytes) -> None:
    connection = Connection(loop, bounded)
    connection.send(POST + framing)
    piece = b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n"
    connection.send(*[piece] * 7)
    (response,) = connection.responses
    assert (response.status, response.headers["connection"]) == (413, "close")
    assert connection.state == "half-closed"  # and still read: the client is not reset while it writes
    assert connection.transport.is_reading
    connection.send(*[piece] * 7)
    assert connection.state == "half-closed"
    connection.pass_time(9.9)
    assert connection.state == "half-closed"
    connection.pass_time(0.2)
    assert connection.state == "aborted"


def test_lingering_has_a_limit_in_bytes_too(loop: SteppedLoop) -> None:
    connection = Connection(loop, bounded)
    connection.send(b"nonsense\r\n")
    connection.protocol.data_received(b"a" * LINGER_BYTES_MAX)
    assert connection.state == "half-closed"
    connection.protocol.data_received(b"a")
    assert connection.state == "aborted"


def test_bytes_after_the_last_request_are_ignored(connection: Connection) -> None:
    connection.send(GET + b"Connection: close\r\n\r\n" + GET + b"\r\n" + b"\x00nonsense")
    (response,) = connection.responses
    assert response.status == 200
    assert connection.state == "half-closed"


# Time ------------------------------------------------------------------------------------------------------------


def test_a_response_that_is_not_read_is_aborted_after_thirty_seconds(connection: Connection) -> None:
    connection.send(GET + b"\r\n")
    connection.transport.unread = 5000
    connection.protocol.pause_writing()
    connection.pass_time(29.9)
    assert connection.state == "open"
    connection.pass_time(0.2)
    assert connection.state == "aborted"


def test_a_client_that_reads_slowly_keeps_its_connection(connection: Connection) -> None:
    connection.send(GET + b"\r\n")
    connection.transport.unread = 5000
    connection.protocol.pause_writing()
    for _ in range(2):
        connection.transport.unread -= 1000
        connection.pass_time(30)
    assert connection.state == "open"
    connection.protocol.resume_writing()
    connection.pass_time(14)
    assert connection.state == "open"
    connection.pass_time(75)
    assert connection.state == "aborted"


@pytest.mark.parametrize(
    ("pieces", "each_second", "seconds"),
    [
        ([], b"", 10),
        ([], b"G", 10),
        ([GET + b"\r\n", b"G"], b"G", 10),
        ([POST + b"Content-Length: 1000\r\n\r\n"], b"a", 30),
        ([POST + b"Transfer-Encoding: chunked\r\n\r\n"], b"1\r\na\r\n", 30),
        ([GET + b"\r\n"], b"", 75),
        ([GET + b"\r\n", GET + b"\r\n"], b"", 75),
    ],
    ids=["silence", "head", "later-head", "body", "chunked-body", "idle", "idle-again"],
)
def test_a_client_that_is_late_is_aborted(
    connection: Connection, pieces: list[bytes], each_second: bytes, seconds: int
) -> None:
    for piece in pieces:
        connection.pass_time(60 if connection.responses else 0)
        connection.send(piece)
    answered = len(connection.responses)
    for _ in range(seconds - 1):
        connection.pass_time(1)
        if each_second:
            connection.send(each_second)
        assert connection.state == "open"
    connection.pass_time(1.1)
    assert connection.state == "aborted"
    assert len(connection.responses) == answered


def test_each_body_has_thirty_seconds_of_its_own(connection: Connection) -> None:
    for _ in range(3):
        connection.send(POST + b"Content-Length: 2\r\n\r\na")
        connection.pass_time(25)
        connection.send(b"b" + POST + b"Content-Length: 2\r\n\r\na")
        connection.pass_time(25)
        connection.send(b"b")
    assert [response.json()["body"] for response in connection.responses] == ["ab"] * 6
    assert connection.state == "open"


def test_the_time_of_the_service_does_not_count_for_the_client(loop: SteppedLoop, slow: Slow) -> None:
    connection = Connection(loop, slow)
    connection.send(GET + b"\r\n" + GET + b"\r\n" + POST + b"Content-Length: 2\r\n\r\n{")
    connection.pass_time(200)
    assert connection.state == "open"
    slow.released.set()
    connection.settle()
    connection.send(b"}")
    assert [response.body for response in connection.responses] == [b"/a", b"/a", b"/p"]


def test_a_late_head_does_not_affect_the_previous_response(loop: SteppedLoop, slow: Slow) -> None:
    connection = Connection(loop, slow)
    connection.send(GET + b"\r\n" + b"GET /never")
    connection.pass_time(11)
    assert connection.state == "open"
    slow.released.set()
    connection.settle()
    (response,) = connection.responses
    assert (response.body, response.headers["connection"], connection.state) == (b"/a", "close", "half-closed")


def test_stopping_closes_idle_connections_and_finishes_running_requests(loop: SteppedLoop, slow: Slow) -> None:
    idle, running, lingering = (Connection(loop, slow) for _ in range(3))
    running.send(GET + b"\r\n")
    lingering.send(b"nonsense\r\n")
    for connection in (idle, running, lingering):
        connection.protocol.shutdown()
    assert [idle.state, running.state, lingering.state] == ["closed", "open", "closed"]
    slow.released.set()
    running.settle()
    assert (running.responses[0].headers["connection"], running.state) == ("close", "closed")


def test_a_stopping_server_answers_the_requests_before_a_refusal_and_the_refusal(loop: SteppedLoop, slow: Slow) -> None:
    connection = Connection(loop, slow)
    connection.send(GET + b"\r\n" + b"nonsense\r\n")
    connection.protocol.shutdown()
    assert connection.responses == []
    slow.released.set()
    connection.settle()
    first, second = connection.responses
    assert (first.body, connection.state) == (b"/a", "closed")
    assert_refused(second, 400, "validation_failed")


def test_no_timer_is_left_behind(connection: Connection) -> None:
    connection.send(GET + b"Connection: close\r\n\r\n")
    connection.transport.close()
    connection.settle()
    assert connection.protocol._timers == {}
    assert connection.protocol.timeout_keep_alive_task is None


# Clients that left -------------------------------------------------------------------------------------------------


def leave(connection: Connection) -> None:
    connection.transport.close()
    connection.settle()


def stop_reading(connection: Connection) -> None:
    connection.transport.unread = 5000
    connection.protocol.pause_writing()
    connection.pass_time(30.1)


@pytest.mark.parametrize("end", [leave, stop_reading], ids=["closes", "stops-reading"])
@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_left_is_one_line_at_debug(
    loop: SteppedLoop, slow: Slow, caplog: pytest.LogCaptureFixture, end: Callable[[Connection], None], requests: int
) -> None:
    caplog.set_level(logging.DEBUG, logger="booking")
    connection = Connection(loop, slow)
    connection.send((GET + b"\r\n") * requests)
    end(connection)
    slow.released.set()
    connection.settle()
    assert connection.responses == []
    assert slow.started == ["/a"]
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("DEBUG", None)


def test_a_client_that_read_every_response_leaves_without_a_line(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="booking")
    connection.send((GET + b"\r\n") * 3)
    leave(connection)
    assert len(connection.responses) == 3
    assert caplog.records == []


def test_an_exception_after_the_client_left_is_an_error(
    loop: SteppedLoop, slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await slow.released.wait()
        raise ZeroDivisionError

    connection = Connection(loop, app)
    connection.send((GET + b"\r\n") * 3)
    leave(connection)
    slow.released.set()
    connection.settle()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


# Any bytes ---------------------------------------------------------------------------------------------------------

FRAGMENTS = [
    *(GET, POST, b"\r\n", b"\n", b"\r", b"\x00", b" ", b"hello", CHUNKED + HELLO, GET + b"\r\n"),
    *(b"Host: x\r\n", b"Content-Length: 5\r\n", b"Content-Length: 3\r\n\r\nabc", b"Connection: close\r\n"),
    *(b"Transfer-Encoding: chunked\r\n\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n"),
    *(b"Expect: 100-continue\r\n", b"X-Request-Id: mine\r\n", b"A: b\r\n" * 99, b"A: b\r\n" * 101, b"A" * 66_000),
    *(b"5\r\nhello\r\n", b"5;ext\r\nhello\r\n", b"0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n"),
    *(b"GET / HTTP/1.0\r\n", b"FOO * HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\n"),
    *INVALID.values(),
]
STREAMS = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=20), max_size=8).map(b"".join)
VOLATILE = re.compile(rb"date: [^\r]*\r\n|x-request-id: req_[^\r]*\r\n|req_[0-9a-f]{24}|HTTP/1.1 100 Continue\r\n\r\n")


def outcome(loop: SteppedLoop, pieces: Sequence[bytes]) -> tuple[bytes, str]:
    """Send the pieces, and return the responses and the state of the connection."""
    connection = Connection(loop, echo)
    connection.send(*pieces)
    for _ in range(8):
        connection.settle()
    for response in parsed(bytes(connection.transport.written)):
        assert response.status in (200, 400, 431)
        if response.status != 200:
            assert_refused(
                response, response.status, {400: "validation_failed", 431: "headers_too_large"}[response.status]
            )
    result = VOLATILE.sub(b"", bytes(connection.transport.written)), connection.state
    connection.transport.abort()
    connection.settle()
    return result


@pytest.mark.exhaustive
@settings(max_examples=300)
@given(stream=STREAMS, cuts=st.lists(st.integers(0, 70_000), max_size=6))
def test_any_bytes_in_any_pieces_have_one_outcome(stream: bytes, cuts: list[int]) -> None:
    with stepped_loop() as loop:
        loop.set_exception_handler(lambda _, context: pytest.fail(str(context)))
        whole = outcome(loop, [stream])
        bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
        assert outcome(loop, [stream[a:b] for a, b in itertools.pairwise(bounds)]) == whole
        if len(stream) < 300:
            assert outcome(loop, in_pieces(stream, 1)) == whole
