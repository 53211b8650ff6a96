"""Every behaviour of a receiver becomes one of the outcomes, in time; rows W1 to W9 of the receivers, and kept
connections. Each runs on both event loops, against a real server."""

import asyncio
import contextlib
import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from booking_core.models.webhooks import AttemptError
from booking_server.adapters import connections
from booking_server.adapters.connections import HEAD_BYTES_MAX, HttpConnection, WebhookResponse
from booking_server.adapters.webhook_client import Sent, WebhookSender

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SHORT_S = 0.3
"""A deadline for receivers that make the client wait until it."""
AMPLE_S = 1.0
"""A deadline before which the head of an answer is read, also on a busy machine."""
LATE_S = 20.0
"""The tolerance after the deadline on a busy machine; these receivers would continue for longer."""

pytestmark = pytest.mark.usefixtures("descriptors")

Deliver = Callable[..., Any]
Receive = Callable[..., Any]


def outcome(sent: Sent) -> tuple[int | None, AttemptError | None]:
    return sent.status, sent.error


# Requests --------------------------------------------------------------------------------------------------------


def test_the_request_has_the_headers_and_body_of_the_worker(deliver: Deliver, receive: Receive) -> None:
    receiver = receive()
    headers = [("Content-Type", "application/json"), ("Svc-Event-Id", "e1"), ("User-Agent", "Svc-Webhooks/1.0")]
    body = '{"note": "Grüße 🛶", "amount": "1.10"}'.encode()
    assert outcome(deliver(receiver.url(path="/a?b=ä"), headers=headers, body=body)) == (200, None)
    head, _, received = receiver.requests[0].partition(b"\r\n\r\n")
    assert head.decode().split("\r\n") == [
        "POST /a?b=%C3%A4 HTTP/1.1",
        f"Host: 127.0.0.1:{receiver.port}",
        f"Content-Length: {len(body)}",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
        "Svc-Event-Id: e1",
        "User-Agent: Svc-Webhooks/1.0",
    ]
    assert received == body


@pytest.mark.parametrize("body", [b"", b"\0\r\n\r\n", b"\xff\xfe", "ü🛶".encode() * 34_000, bytes(200_000)])
def test_the_body_arrives_byte_for_byte(deliver: Deliver, receive: Receive, body: bytes) -> None:
    receiver = receive()
    assert deliver(receiver.url(), body=body).error is None
    assert receiver.bodies == [body]


@pytest.mark.parametrize("header", [("A", "b\r\nC: d"), ("A\n", "b"), ("A", "ü"), ("A b", "c"), ("", "a"), ("A", "\0")])
def test_a_header_with_a_line_break_raises(deliver: Deliver, receive: Receive, header: tuple[str, str]) -> None:
    with pytest.raises(ValueError):
        deliver(receive().url(), headers=[header])


def test_the_result_has_the_duration(run: Any, settings: Any, receive: Receive) -> None:
    receiver = receive(OK)
    times = iter([5.0, 5.25])

    async def main() -> Sent:
        sender = WebhookSender(settings(), clock=lambda: next(times))
        sent = await sender.send(receiver.url(), [], b"{}")
        await sender.close()
        return sent

    assert run(main()) == Sent(200, "ok", None, 250)


# W1: success is a complete 2xx head ------------------------------------------------------------------------------


def reset_after(data: bytes) -> Callable[[Any], None]:
    def handle(call: Any) -> None:
        call.read()
        call.send(data)
        call.reset()

    return handle


def answer_unread(call: Any) -> None:
    """Respond before the whole request is read, and read the rest afterwards."""
    call.conn.recv(100)
    call.send(b"HTTP/1.1 202 Fine\r\n\r\n")
    call.conn.shutdown(socket.SHUT_WR)
    call.wait_until_left()


@pytest.mark.parametrize(
    "handle",
    [
        OK,
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 299 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nno length, ended by closing",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nthese are no chunks",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nless",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore, and not HTTP",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 8 + OK,
        reset_after(OK),
        reset_after(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        answer_unread,
    ],
    ids=lambda handle: handle.__qualname__ if callable(handle) else str(handle),
)
def test_a_complete_2xx_head_is_a_success(deliver: Deliver, receive: Receive, handle: Any) -> None:
    sent = deliver(receive(handle).url(), body=bytes(200_000))
    assert sent.error is None
    assert 200 <= sent.status <= 299


# W2: the body does not matter ------------------------------------------------------------------------------------


def after_head(head: bytes, act: Callable[[Any], None]) -> Callable[[Any], None]:
    def handle(call: Any) -> None:
        call.read()
        call.send(head)
        act(call)

    return handle


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"
FAILED = b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.exhaustive(but=("asyncio-drips]", "uvloop-of a failure"))
@pytest.mark.parametrize(
    ("head", "act", "expected"),
    [
        (HEAD, lambda call: call.drip(b"x" * 100_000), (200, None)),
        (CHUNKED, lambda call: call.drip(b"1\r\nx\r\n" * 10_000), (200, None)),
        (HEAD, lambda call: call.wait_until_left(), (200, None)),
        (b"HTTP/1.1 200 OK\r\n\r\n", lambda call: call.wait_until_left(), (200, None)),
        (FAILED, lambda call: call.wait_until_left(), (500, AttemptError.HTTP_STATUS)),
    ],
    ids=["drips", "drips chunks", "never comes", "never ends", "of a failure never comes"],
)
def test_an_endless_body_is_cut_at_the_deadline(
    deliver: Deliver, receive: Receive, head: bytes, act: Any, expected: Any
) -> None:
    receiver = receive(after_head(head, act))
    assert outcome(deliver(receiver.url(), webhook_deadline_s=AMPLE_S)) == expected
    assert receiver.endings.acquire(timeout=30)


# W3: the deadline ------------------------------------------------------------------------------------------------


def drip_tls(call: Any) -> None:
    call.conn.recv(65_536)
    call.drip(b"\x16\x03\x03\x3f\xff" + bytes(16_383))


def interim_for_ever(call: Any) -> None:
    call.read()
    call.drip(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000)


@pytest.mark.exhaustive(but=("uvloop", "asyncio-TLS drips"))
@pytest.mark.parametrize(
    ("handle", "scheme"),
    [
        (lambda call: call.drip(b"HTTP/1.1 200 OK\r\nA: " + b"a" * 20_000), "http"),
        (interim_for_ever, "http"),
        (lambda call: call.wait_until_left(), "http"),
        (lambda call: call.receiver.closing.wait(30), "http"),
        (drip_tls, "https"),
        (lambda call: call.wait_until_left(), "https"),
    ],
    ids=["head drips", "interim for ever", "silence", "reads nothing", "TLS drips", "TLS silence"],
)
def test_a_receiver_cannot_extend_the_deadline(deliver: Deliver, receive: Receive, handle: Any, scheme: str) -> None:
    receiver = receive(handle)
    sent = deliver(receiver.url(scheme=scheme), webhook_deadline_s=SHORT_S, body=bytes(8_000_000))
    assert outcome(sent) == (None, AttemptError.TIMEOUT)
    assert 0.9 * SHORT_S * 1000 < sent.duration_ms < (SHORT_S + LATE_S) * 1000


@pytest.fixture
def black_hole() -> Iterator[int]:
    """Return a port that answers no SYN: its backlog is full, and no connection is accepted."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(16):
            client = opened.enter_context(socket.socket())
            client.settimeout(0.1)
            try:
                client.connect(listener.getsockname())
            except TimeoutError:
                break
        else:
            pytest.skip("this system takes connections beyond its backlog")
        yield listener.getsockname()[1]


def test_an_address_without_any_answer_is_a_timeout(deliver: Deliver, black_hole: int) -> None:
    sent = deliver(f"http://127.0.0.1:{black_hole}/", webhook_deadline_s=SHORT_S)
    assert outcome(sent) == (None, AttemptError.TIMEOUT)


def test_the_next_address_is_tried_when_one_is_silent_or_closed(
    deliver: Deliver, receive: Receive, names: Any, black_hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ADDRESS_S", 0.05)
    first_closed = names(hooks_example=["127.0.0.3", "127.0.0.1"])
    receiver = receive()
    ranges = {"webhook_allow_cidrs": ("127.0.0.0/8",)}
    assert deliver(receiver.url("hooks.example"), names=first_closed, **ranges).error is None

    silent_then_closed = names(hooks_example=["127.0.0.1", "127.0.0.3"])
    sent = deliver(f"http://hooks.example:{black_hole}/", names=silent_then_closed, **ranges)
    assert outcome(sent) == (None, AttemptError.CONNECT_FAILED)


def test_the_deadline_includes_dns(deliver: Deliver, names: Any) -> None:
    sent = deliver("https://hooks.example/", names=names(hooks_example=asyncio.Event), webhook_deadline_s=SHORT_S)
    assert outcome(sent) == (None, AttemptError.TIMEOUT)


# W4: just in time, and too late ----------------------------------------------------------------------------------


def test_a_response_after_the_deadline_does_not_count(deliver: Deliver, receive: Receive) -> None:
    def handle(call: Any) -> None:
        call.read()
        call.wait_until_left()  # which the sender does at the deadline
        call.send(OK)

    sent = deliver(receive(handle).url(), webhook_deadline_s=SHORT_S)
    assert outcome(sent) == (None, AttemptError.TIMEOUT)


# W5: bombs -------------------------------------------------------------------------------------------------------

ZEROS = bytes(1 << 16)


@pytest.mark.parametrize(
    "head",
    [
        HEAD,
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1048576\r\n\r\n" + gzip.compress(bytes(1 << 20)),
    ],
    ids=["1 GiB", "endless", "gzip 1000:1"],
)
def test_no_more_than_64_kib_of_a_body_is_read(
    deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    read: list[int] = []
    feed = WebhookResponse.feed
    monkeypatch.setattr(WebhookResponse, "feed", lambda self, data: (read.append(len(data)), feed(self, data))[1])
    receiver = receive(after_head(head, lambda call: call.pour(ZEROS)))
    assert outcome(deliver(receiver.url())) == (200, None)
    assert sum(read) <= 64 * 1024 + 16 * 1024
    assert receiver.endings.acquire(timeout=30)


def head_of(size: int) -> bytes:
    """Return a response whose head has this size in bytes."""
    begin, end = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: ", b"\r\n\r\n"
    return begin + b"a" * (size - len(begin) - len(end)) + end + b"ok"


@pytest.mark.parametrize(
    "pour",
    [
        after_head(b"HTTP/1.1 200 OK\r\nA: ", lambda call: call.pour(b"a" * 65_536)),
        after_head(b"HTTP/1.1 200 OK\r\n", lambda call: call.pour(b"A: b\r\n" * 10_000)),
        after_head(b"", lambda call: call.pour(b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000)),
        after_head(b"", lambda call: call.pour(b"HTTP/1.1 103 Hints\r\nA: " + b"a" * 10_000 + b"\r\n\r\n")),
        after_head(b"", lambda call: call.pour(ZEROS)),
        after_head(b"", lambda call: call.pour(b"\r\n" * 10_000)),
    ],
    ids=["long header", "10,000 headers", "interim", "long interim", "zeros", "empty lines"],
)
def test_an_endless_head_is_cut(deliver: Deliver, receive: Receive, pour: Any) -> None:
    receiver = receive(pour)
    assert outcome(deliver(receiver.url())) == (None, AttemptError.PROTOCOL_ERROR)
    assert receiver.endings.acquire(timeout=30)


# W6 and W8: invalid HTTP, and other statuses --------------------------------------------------------------------------


STATUS_LINES = [
    *(b"HTTP/1.1 " + status for status in (b"2OO OK", b"999 Odd", b"600 Odd", b"099 Odd", b"20 OK", b"2000 OK")),
    *(b"HTTP/1.1 -200 OK", b"HTTP/1.1 200 \xff", b"HTTP/1.1 200 O\0K", b"200 OK"),
    *(version + b" 200 OK" for version in (b"HTTP/2.0", b"HTTP/0.9", b"RTSP/1.0", b"ICY")),
    b"HTTP/2 200",
]
FIELDS = [b"A: \xff", b"\xc3\xbc: a", b"A: a\0b", b"A: a\rb", b"A: a\r\n b", b"A : a"]
NOT_HTTP = [
    *(line + b"\r\n\r\n" for line in STATUS_LINES),
    *(b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\n" for field in FIELDS),
    b"HTTP/1.1 200 OK\n\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + OK,
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x15\x03\x01\x00\x02\x02\x46",
    b"\0" * 100,
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: b\r\n",
    b"HTTP/1.1 20",
    b"",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" * 9 + OK,
    head_of(32 * 1024 + 1),
]
FAILURES = {
    b"410 Gone": AttemptError.HTTP_STATUS,
    b"429 Slow\r\nRetry-After: 99999999": AttemptError.HTTP_STATUS,
    b"503 Later\r\nRetry-After: Thu, 01 Jan 1970 00:00:00 GMT": AttemptError.HTTP_STATUS,
    b"400 No": AttemptError.HTTP_STATUS,
    b"599 No": AttemptError.HTTP_STATUS,
    b"300 Many": AttemptError.REDIRECT,
    b"304 Same": AttemptError.REDIRECT,
    b"399 Odd": AttemptError.REDIRECT,
}
"""The error of each status that is no success."""


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (head_of(32 * 1024), (200, None)),
        *((answered, (None, AttemptError.PROTOCOL_ERROR)) for answered in NOT_HTTP),
        *((b"HTTP/1.1 %b\r\n\r\n" % head, (int(head[:3]), error)) for head, error in FAILURES.items()),
    ],
)
def test_each_response_has_its_outcome_and_affects_no_other(
    deliver: Deliver, receive: Receive, answered: bytes, expected: tuple[int | None, AttemptError | None]
) -> None:
    first, second = deliver(receive(answered).url(), receive().url())
    assert (outcome(first), outcome(second)) == (expected, (200, None))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_closed_connection_is_not_a_response(deliver: Deliver, receive: Receive, scheme: str) -> None:
    for handle in (reset_after(b""), reset_after(b"HTTP/1.1 200 O"), b"", lambda call: call.conn.recv(1)):
        sent = deliver(receive(handle, scheme).url())
        assert outcome(sent) == (None, AttemptError.PROTOCOL_ERROR)


def test_a_closed_port_differs_from_a_silent_one(deliver: Deliver, names: Any) -> None:
    with socket.socket() as closed:  # it is bound: no other socket listens there, and it does not listen itself
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        assert outcome(deliver(url)) == (None, AttemptError.CONNECT_FAILED)
    unreachable = names(hooks_example=["255.255.255.255"])
    sent = deliver("https://hooks.example/", names=unreachable, webhook_allow_cidrs=("255.255.255.255/32",))
    assert outcome(sent) == (None, AttemptError.CONNECT_FAILED)


@pytest.mark.parametrize(
    ("rest", "can_reuse_connection"),
    [
        *((rest, True) for rest in (b"", b"\r", b"\n", b"\r\n", b"\n\r\n")),
        *((rest, False) for rest in (b" ", b"x", b"\r\nx", b"\0", b"HTTP/1.1 200 OK\r\n\r\n")),
    ],
)
def test_bytes_after_a_response_decide_if_its_connection_is_reused(rest: bytes, can_reuse_connection: bool) -> None:
    head_and_body = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    for pieces in (
        [head_and_body + rest],
        [head_and_body, rest],
        [head_and_body, *(rest[i : i + 1] for i in range(len(rest)))],
    ):
        response = WebhookResponse()
        for piece in pieces:
            response.feed(piece)
        assert (response.status, response.is_over, response.can_reuse_connection) == (200, True, can_reuse_connection)


def test_a_head_is_too_long_wherever_its_packets_end() -> None:
    whole = head_of(HEAD_BYTES_MAX + 1)
    for size in (10_000, len(whole)):
        response = WebhookResponse()
        for start in range(0, len(whole), size):
            response.feed(whole[start : start + size])
        assert (response.status, response.is_over) == (None, True)


@given(st.data())
def test_a_response_never_raises_and_any_division_parses_equally(data: st.DataObject) -> None:
    line = st.sampled_from([b"HTTP/1.1 ", b"200", b" OK", b"\r\n", b": ", b"A", b"Content-Length", b"2", b"ok", b"0"])
    other = st.sampled_from([b"Transfer-Encoding: chunked", b"100", b"HTTP/1.0 ", b"\0", b"\n", b"\r", b"\xff", b" "])
    whole = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.lists(st.one_of(line, other), max_size=40).map(b"".join),
            st.lists(st.one_of(line, other), max_size=20).map(lambda parts: OK[:-6] + b"\r\n" + b"".join(parts)),
        )
    )
    at_once, in_pieces = WebhookResponse(), WebhookResponse()
    at_once.feed(whole)
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        in_pieces.feed(whole[:cut])
        whole = whole[cut:]
    assert in_pieces.status == at_once.status
    assert in_pieces.is_over == at_once.is_over
    assert in_pieces.can_reuse_connection == at_once.can_reuse_connection


# W7: TLS ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hooks(names: Any) -> Any:
    return names(hooks_example=["127.0.0.1"])


def test_the_right_certificate_is_accepted(deliver: Deliver, receive: Receive, authority: Any, hooks: Any) -> None:
    tls = authority.server("hooks.example")
    server_names: list[str | None] = []
    tls.sni_callback = lambda connection, name, context: server_names.append(name)
    receiver = receive(tls=tls)
    assert outcome(deliver(receiver.url("hooks.example"), names=hooks)) == (200, None)
    assert server_names == ["hooks.example"]
    assert b"Host: hooks.example:%d\r\n" % receiver.port in receiver.requests[0]


def test_a_certificate_may_be_for_an_address(deliver: Deliver, receive: Receive, authority: Any) -> None:
    assert outcome(deliver(receive(scheme="https").url())) == (200, None)
    sent = deliver(receive(tls=authority.server("127.0.0.2")).url())
    assert outcome(sent) == (None, AttemptError.TLS_FAILED)


@pytest.mark.parametrize(
    "certificate",
    [
        {"names": ["hooks.example"], "self_signed": True},
        {"names": ["hooks.example"], "expired": True},
        {"names": ["hooks.example"], "weak": True},
        {"names": ["other.example"]},
        {"names": ["127.0.0.1"]},
        {"names": ["*.hooks.example"]},
        {"names": ["*.example.hooks"]},
    ],
    ids=str,
)
def test_a_wrong_certificate_is_refused(
    deliver: Deliver, receive: Receive, authority: Any, hooks: Any, certificate: dict[str, Any]
) -> None:
    names = certificate["names"]
    how = {name: value for name, value in certificate.items() if name != "names"}
    receiver = receive(tls=authority.server(*names, **how))
    assert outcome(deliver(receiver.url("hooks.example"), names=hooks)) == (None, AttemptError.TLS_FAILED)
    assert receiver.requests == []


def test_an_unknown_certificate_authority_is_not_trusted(
    deliver: Deliver, receive: Receive, authority: Any, hooks: Any
) -> None:
    receiver = receive(tls=authority.server("hooks.example"))
    sent = deliver(receiver.url("hooks.example"), names=hooks, webhook_ca_file=None)
    assert outcome(sent) == (None, AttemptError.TLS_FAILED)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated:DeprecationWarning")
def test_old_tls_is_refused(deliver: Deliver, receive: Receive, authority: Any, hooks: Any) -> None:
    for newest, expected in ((ssl.TLSVersion.TLSv1, AttemptError.TLS_FAILED), (ssl.TLSVersion.TLSv1_2, None)):
        tls = authority.server("hooks.example")
        tls.set_ciphers("DEFAULT@SECLEVEL=0")
        tls.minimum_version, tls.maximum_version = ssl.TLSVersion.TLSv1, newest
        assert deliver(receive(tls=tls).url("hooks.example"), names=hooks).error == expected


def test_a_receiver_without_tls_is_a_tls_error(deliver: Deliver, receive: Receive) -> None:
    for handle in (
        lambda call: call.send(OK),
        lambda call: call.send(b"\0" * 100),
        lambda call: call.conn.recv(1),
        lambda call: (call.conn.recv(65_536), call.reset()),
    ):
        sent = deliver(receive(handle).url(scheme="https"))
        assert outcome(sent) == (None, AttemptError.TLS_FAILED)


def test_a_receiver_may_refuse_a_client_after_the_handshake(deliver: Deliver, receive: Receive, authority: Any) -> None:
    """TLS 1.3 does so for a client without a certificate."""
    tls = authority.server("127.0.0.1")
    tls.verify_mode = ssl.CERT_REQUIRED

    def handle(call: Any) -> None:
        secured = tls.wrap_socket(call.conn, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(ssl.SSLError):
            secured.do_handshake()
        with socket.socket(fileno=secured.detach()) as plain:  # closed only when our alert was read
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(65_536):
                pass

    assert outcome(deliver(receive(handle).url(scheme="https"))) == (None, AttemptError.TLS_FAILED)


# Excerpts of answers ----------------------------------------------------------------------------------------------


LENGTH, FRAMED, CLOSED = "Content-Length", "chunks", "until it closes"


def in_packets(status: int, body: bytes, framing: str) -> Callable[[Any], None]:
    """Send the head in one packet and the body in two later ones."""
    framed = {LENGTH: f"Content-Length: {len(body)}", FRAMED: "Transfer-Encoding: chunked", CLOSED: "A: b"}[framing]
    head = f"HTTP/1.1 {status} Said\r\n{framed}\r\n\r\n".encode()
    pieces = [body[: len(body) // 2], body[len(body) // 2 :]]
    if framing == FRAMED:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece] + [b"0\r\n\r\n"]

    def handle(call: Any) -> None:
        call.read()
        call.conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (head, *pieces):
            call.send(piece)
            call.receiver.closing.wait(0.01)

    return handle


@pytest.mark.parametrize("framing", [LENGTH, FRAMED, CLOSED])
@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_excerpt_does_not_depend_on_the_packets_of_the_body(
    deliver: Deliver, receive: Receive, scheme: str, status: int, framing: str
) -> None:
    sent = deliver(receive(in_packets(status, "no seat 🛶 left".encode(), framing), scheme).url())
    assert (sent.status, sent.excerpt) == (status, "no seat 🛶 left")


@pytest.mark.parametrize(
    ("encoding", "body", "excerpt"),
    [
        ("gzip", gzip.compress(b"no", mtime=0), f"[gzip, {len(gzip.compress(b'no'))} bytes, not decompressed]"),
        ("BR", b"\x0b\x01\x80no\x03", "[br, 6 bytes, not decompressed]"),
        ("x" * 500, b"no", f"[{'x' * 40}, 2 bytes, not decompressed]"),
        ("gzip", b"", None),
        ("", b"no", "no"),
        ("identity", b"", None),
        ("identity", b"no", "no"),
        ("identity", "Grüße 🛶".encode(), "Grüße 🛶"),
        ("identity", b"a\r\nb\tc", "a  b c"),
        ("identity", b"a\0b\x1b[31m\xff", "a\ufffdb\ufffd[31m\ufffd"),
        ("identity", b"\x89PNG\r\n\x1a\n\0\0", "\ufffdPNG  \ufffd \ufffd\ufffd"),
        ("identity", b"\xc3", "\ufffd"),
        ("identity", b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        ("identity", "\u202eabc\ud7ff".encode(), "\ufffdabc\ufffd"),
        ("identity", b"x" * 5000, "x" * 1024),
        ("identity", "🛶".encode() * 5000, "🛶" * 1024),
        ("identity", b"a" + "🛶".encode() * 5000, "a" + "🛶" * 1023),
    ],
)
def test_the_excerpt_is_printable_short_and_not_decompressed(
    deliver: Deliver, receive: Receive, encoding: str, body: bytes, excerpt: str | None
) -> None:
    head = b"HTTP/1.1 500 No\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(body))
    assert deliver(receive(head + body).url()).excerpt == excerpt


def test_the_encoding_of_an_interim_response_does_not_apply_to_the_body(deliver: Deliver, receive: Receive) -> None:
    assert deliver(receive(b"HTTP/1.1 103 Hints\r\nContent-Encoding: gzip\r\n\r\n" + OK).url()).excerpt == "ok"


@pytest.mark.parametrize("status", [200, 299])
@pytest.mark.parametrize(("body", "excerpt"), [(b"sold", "sold"), ("sold 🛶".encode()[:-1], "sold "), (b"", None)])
def test_an_endless_body_is_cut_shortly_after_a_2xx_head(
    deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, excerpt: str | None
) -> None:
    """The attempt has succeeded; neither the slot nor the next event waits for the deadline."""
    monkeypatch.setattr(connections, "BODY_S", 0.05)
    head = b"HTTP/1.1 %d Said\r\nContent-Length: 100\r\n\r\n" % status
    receiver = receive(after_head(head + body, lambda call: call.wait_until_left()))
    sent = deliver(receiver.url(), webhook_deadline_s=3600.0)
    assert (sent.status, sent.excerpt) == (status, excerpt)
    assert 50 <= sent.duration_ms < LATE_S * 1000
    assert receiver.endings.acquire(timeout=30)


def test_the_body_of_a_failed_attempt_is_read_until_the_deadline(
    deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BODY_S", 0.0)
    sent = deliver(receive(in_packets(500, b"no seat left", LENGTH)).url())
    assert (sent.excerpt, sent.error) == ("no seat left", AttemptError.HTTP_STATUS)


def test_a_complete_response_ends_at_once(deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_S", 3600.0)
    for answered in (OK, b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"):
        receiver = receive(after_head(answered, lambda call: call.wait_until_left()))
        assert deliver(receiver.url(), webhook_deadline_s=3600.0).duration_ms < LATE_S * 1000


# W9: cookies, and reused connections -----------------------------------------------------------------------------


def answering(*answers: bytes) -> Callable[[Any], None]:
    """Respond to the requests of a connection in order, then close without a response."""

    def handle(call: Any) -> None:
        for answer in answers:
            if not call.read():
                return
            call.send(answer)

    return handle


def test_cookies_are_not_sent_back(deliver: Deliver, receive: Receive) -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n"
    receiver = receive(answering(head, head, head))
    deliver(*[receiver.url()] * 3)
    assert len(receiver.requests) == 3
    assert not any(b"ookie" in request for request in receiver.requests)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_connection_is_reused(deliver: Deliver, receive: Receive, scheme: str) -> None:
    receiver = receive(scheme=scheme)
    sent = deliver(*(receiver.url(path=f"/{i}") for i in range(20)))
    assert {outcome(result) for result in sent} == {(200, None)}
    assert receiver.connections == 1
    assert [request.split()[1] for request in receiver.requests] == [b"/%d" % i for i in range(20)]


@pytest.mark.parametrize(
    "answered",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        OK + OK,
        OK + b"\0",
        b"HTTP/1.1 204 No Content\r\n\r\n" + b"HTTP/1.1 500 For the next\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + bytes(65_536),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: \0\r\n\r\n",
    ],
    ids=lambda answered: str(answered[:60]),
)
def test_a_connection_that_is_not_idle_is_not_reused(deliver: Deliver, receive: Receive, answered: bytes) -> None:
    receiver = receive(answering(answered, OK))
    assert [outcome(result)[1] for result in deliver(receiver.url(), receiver.url())] == [None, None]
    assert receiver.connections == 2


def test_unsolicited_bytes_never_answer_the_next_request(
    with_sender: Any, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 3600.0)  # so that it is not closed for being idle
    sent_unasked = threading.Event()

    def handle(call: Any) -> None:
        call.read()
        call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        sent_unasked.wait(30)
        call.send(b"HTTP/1.1 500 For the next\r\nContent-Length: 0\r\n\r\n")
        call.wait_until_left()

    receiver = receive(handle)

    async def act(sender: WebhookSender) -> None:
        assert (await sender.send(receiver.url(), [], b"1")).error is None
        sent_unasked.set()
        has_ended = await asyncio.to_thread(receiver.endings.acquire, timeout=30)
        assert has_ended, "the sender has closed the connection"
        assert (await sender.send(receiver.url(), [], b"2")).error is None
        assert receiver.connections == 2

    with_sender(act)


def test_a_connection_is_used_only_for_an_address_just_checked(deliver: Deliver, receive: Receive, names: Any) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.1"], ["127.0.0.3"], ["10.0.0.1"], []])
    receiver = receive()
    moving = names(hooks_example=lambda: next(answers))
    allowed = ("127.0.0.1/32", "127.0.0.3/32")
    sent = deliver(*[receiver.url("hooks.example")] * 5, names=moving, webhook_allow_cidrs=allowed)
    assert [result.error for result in sent] == [
        None,
        None,
        AttemptError.CONNECT_FAILED,
        AttemptError.BLOCKED_ADDRESS,
        AttemptError.DNS_FAILED,
    ]
    assert (receiver.connections, len(receiver.requests)) == (1, 2)


def test_no_connection_is_shared_between_hosts(deliver: Deliver, receive: Receive, authority: Any, names: Any) -> None:
    """The certificate was verified for one name only."""
    receiver = receive(tls=authority.server("a.example", "b.example"))
    both = names(a_example=["127.0.0.1"], b_example=["127.0.0.1"])
    deliver(receiver.url("a.example"), receiver.url("b.example"), receiver.url("a.example"), names=both)
    assert receiver.connections == 2


def test_concurrent_requests_have_connections_of_their_own(with_sender: Any, receive: Receive) -> None:
    together = threading.Barrier(8)

    def handle(call: Any) -> None:
        call.read()
        together.wait(timeout=30)
        call.send(OK)
        call.wait_until_left()

    receiver = receive(handle)

    async def act(sender: WebhookSender) -> list[Sent]:
        return await asyncio.gather(*(sender.send(receiver.url(), [], b"%d" % i) for i in range(8)))

    assert {result.error for result in with_sender(act)} == {None}
    assert sorted(receiver.bodies) == [b"%d" % i for i in range(8)]


def end_after(call: Any, part: str, end: str) -> None:
    """Read a part of a request and close the connection without a response."""
    if part == "head":
        read = b""
        while b"\r\n\r\n" not in read:
            read += call.conn.recv(1)
        call.receiver.requests.append(read)
    elif part == "half a body":
        read = b""
        while len(read.partition(b"\r\n\r\n")[2]) < 50_000:
            read += call.conn.recv(1024)
        call.receiver.requests.append(read)
    else:
        call.read()
    if end == "reset":
        call.reset()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("part", ["head", "half a body", "all"])
def test_a_request_lost_on_a_reused_connection_fails_and_is_not_repeated(
    deliver: Deliver, receive: Receive, scheme: str, end: str, part: str
) -> None:
    """The receiver may have processed it. After that, no connection to the receiver is reused."""

    def handle(call: Any) -> None:
        first_head = call.read()
        call.send(OK)
        if b"Connection: close" not in first_head:
            end_after(call, part, end)

    receiver = receive(handle, scheme)
    sent = deliver(*(receiver.url(path=f"/{number}") for number in range(4)), body=bytes(100_000))
    lost = (None, AttemptError.PROTOCOL_ERROR)
    assert [outcome(result) for result in sent] == [(200, None), lost, (200, None), (200, None)]
    assert [request.split()[1] for request in receiver.requests] == [b"/0", b"/1", b"/2", b"/3"]
    assert [b"Connection: close" in request for request in receiver.requests] == [False, False, True, True]
    assert receiver.connections == 3


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_request_lost_on_a_new_connection_fails_and_is_not_repeated(
    deliver: Deliver, receive: Receive, scheme: str, end: str
) -> None:
    for part in ("head", "half a body", "all"):
        receiver = receive(lambda call, part=part: end_after(call, part, end), scheme)
        sent = deliver(receiver.url(), body=bytes(100_000))
        assert outcome(sent) == (None, AttemptError.PROTOCOL_ERROR)
        assert len(receiver.requests) == receiver.connections == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_connection_with_an_unread_end_of_stream_is_not_reused(
    with_sender: Any, receive: Receive, scheme: str, end: str
) -> None:
    """The end of stream has arrived but the event loop has not run: the request is sent on a new connection."""
    answered = threading.Semaphore(0)

    def handle(call: Any) -> None:
        call.read()
        call.send(OK)
        assert answered.acquire(timeout=30)
        if end == "reset":
            call.reset()

    receiver = receive(handle, scheme)

    async def act(sender: WebhookSender) -> list[Sent]:
        results = []
        for _ in range(3):
            results.append(await sender.send(receiver.url(), [], b"{}"))
            answered.release()
            assert receiver.endings.acquire(timeout=30)  # which keeps the loop from looking
        return results

    assert [outcome(result) for result in with_sender(act)] == [(200, None)] * 3
    assert len(receiver.requests) == receiver.connections == 3
    assert not any(b"Connection: close" in request for request in receiver.requests)


def test_a_connection_that_has_closed_sends_no_request() -> None:
    connection, closing = HttpConnection("127.0.0.1", 0.0), SimpleNamespace(is_closing=lambda: True)
    connection.connection_made(closing)  # type: ignore[arg-type]
    asyncio.run(connection.exchange(b"POST", WebhookResponse()))


def test_a_connection_that_was_idle_for_too_long_is_not_reused(with_sender: Any, receive: Receive) -> None:
    receiver = receive()

    async def act(sender: WebhookSender) -> None:
        for _ in range(2):
            await sender.send(receiver.url(), [], b"{}")
            ((idle,),) = sender._pool._idle.values()
            idle.idle_at -= connections.IDLE_S

    with_sender(act)
    assert receiver.connections == 2


@pytest.mark.exhaustive(but="asyncio")
def test_a_silent_reused_connection_costs_one_attempt(
    deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, a firewall between the two has dropped the connection."""
    calls = iter(range(100))

    def handle(call: Any) -> None:
        first = next(calls) == 0
        call.read()
        call.send(OK)
        if first:
            call.wait_until_left()

    monkeypatch.setattr(connections, "IDLE_S", 3600.0)
    receiver = receive(handle)
    sent = deliver(*[receiver.url()] * 3, webhook_deadline_s=2.0)
    assert [result.error for result in sent] == [None, AttemptError.TIMEOUT, None]
    assert b"Connection: close" in receiver.requests[-1]


def test_a_request_with_a_partial_response_is_not_repeated(deliver: Deliver, receive: Receive) -> None:
    receiver = receive(answering(OK, b"HTTP/1.1 20"))
    assert [result.error for result in deliver(*[receiver.url()] * 2)] == [None, AttemptError.PROTOCOL_ERROR]
    assert len(receiver.requests) == 2


def test_an_idle_connection_is_closed_whatever_keep_alive_the_receiver_sent(
    with_sender: Any, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.02)
    head = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=36000\r\nContent-Length: 0\r\n\r\n"
    receiver = receive(answering(*[head] * 10))

    async def act(sender: WebhookSender) -> None:
        assert (await sender.send(receiver.url(), [], b"{}")).error is None
        assert await asyncio.to_thread(receiver.endings.acquire, timeout=30)

    with_sender(act)


def test_an_old_connection_is_not_reused(deliver: Deliver, receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "AGE_S", -1.0)
    receiver = receive()
    deliver(*[receiver.url()] * 3)
    assert receiver.connections == 3


def test_idle_connections_are_limited(with_sender: Any, receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_CONNECTIONS_MAX", 3)
    receiver = receive()

    async def act(sender: WebhookSender) -> None:
        for _ in range(2):
            await asyncio.gather(*(sender.send(receiver.url(), [], b"{}") for _ in range(20)))
        assert sender._pool.size == 3

    with_sender(act)


# Our own end -----------------------------------------------------------------------------------------------------


def test_a_cancelled_attempt_closes_its_connection(with_sender: Any, receive: Receive) -> None:
    arrived = threading.Semaphore(0)

    def handle(call: Any) -> None:
        call.read()
        arrived.release()
        call.wait_until_left()

    receiver = receive(handle)

    async def act(sender: WebhookSender) -> None:
        attempt = asyncio.create_task(sender.send(receiver.url(), [], b"{}"))
        assert await asyncio.to_thread(arrived.acquire, timeout=30)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        assert await asyncio.to_thread(receiver.endings.acquire, timeout=30)

    with_sender(act)


def test_fifty_hanging_receivers_delay_no_other(with_sender: Any, receive: Receive) -> None:
    hanging, healthy = receive(lambda call: call.wait_until_left()), receive()

    async def act(sender: WebhookSender) -> None:
        hung = [asyncio.create_task(sender.send(hanging.url(), [], b"{}")) for _ in range(50)]
        for _ in range(50):
            assert (await sender.send(healthy.url(), [], b"{}")).error is None
        assert not any(task.done() for task in hung), "no other had to wait for one of them to end"
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)

    with_sender(act, webhook_deadline_s=60.0)
