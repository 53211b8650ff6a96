"""Heads of ordinary responses are written as uvicorn writes them, and all others are left to it."""

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from booking_server.http.protocol import RequestCycle
from booking_server.http.response_heads import Field, known_length_head

DEFAULTS: list[Field] = [(b"date", b"Mon, 23 Nov 2026 05:00:00 GMT"), (b"server", b"booking")]
BODY = b'{"a":1}'
ORDINARY: list[Field] = [
    (b"etag", b'"4f1c"'),
    (b"content-length", b"7"),
    (b"content-type", b"application/json"),
    (b"x-ratelimit-remaining", b"599"),
    (b"x-request-id", b"req_\xe5"),
    (b"x-empty", b""),
]


class Transport:
    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.sent += b"(closed)"


def sent_by(kind: type[RequestResponseCycle], fields: list[Field], status: int = 200, method: str = "GET") -> bytes:
    """Return the bytes of a response, or of the error in their place."""

    async def respond() -> bytes:
        transport: Any = Transport()
        scope: Any = {"type": "http", "method": method, "headers": []}
        log = logging.getLogger("uvicorn")
        event = asyncio.Event()
        cycle = kind(
            scope, transport, FlowControl(transport), log, log, False, DEFAULTS, event, False, True, lambda: None
        )
        cycle.more_body = False
        messages: list[Any] = [
            {"type": "http.response.start", "status": status, "headers": fields},
            {"type": "http.response.body", "body": BODY},
        ]
        try:
            for message in messages:
                await cycle.send(message)
        except RuntimeError as error:
            return str(error).encode()
        return bytes(transport.sent)

    return asyncio.run(respond())


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(ORDINARY, id="ordinary"),
        pytest.param([(b"content-type", b"text/plain")], id="without a length"),
        pytest.param([*ORDINARY, (b"connection", b"close")], id="closing"),
        pytest.param([(b"transfer-encoding", b"chunked")], id="chunked"),
        pytest.param([(b"Content-Length", b"7"), (b"X-Upper", b"yes")], id="names in upper case"),
        pytest.param([*ORDINARY, (b"X-Upper", b"yes")], id="one name in upper case"),
        pytest.param([*ORDINARY, (b"x-split", b"a\r\nset-cookie: b")], id="a line break in a value"),
        pytest.param([*ORDINARY, (b"x-nul", b"a\x00b")], id="a control character in a value"),
        pytest.param([*ORDINARY, (b"x: y", b"z")], id="a colon in a name"),
        pytest.param([*ORDINARY, (b"x\r\ny", b"z")], id="a line break in a name"),
        pytest.param([(b"content-length", b"6")], id="a body that is longer"),
        pytest.param([(b"content-length", b"8")], id="a body that is shorter"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_response_has_the_bytes_that_uvicorn_sends(fields: list[Field], method: str) -> None:
    assert sent_by(RequestCycle, fields, method=method) == sent_by(RequestResponseCycle, fields, method=method)


def test_an_ordinary_head_is_not_left_to_uvicorn() -> None:
    assert known_length_head(200, [*DEFAULTS, *ORDINARY]) is not None
