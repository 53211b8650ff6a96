"""The application, called as a server calls it: with the raw bytes of the request.

The test client cannot send a doubled slash, a repeated header, a custom method or a body in pieces; this module can.
"""

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.testclient import TestClient

Headers = Sequence[tuple[str | bytes, str | bytes]]
Message = MutableMapping[str, Any]

_END: Any = object()


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """The response of the application."""

    status_code: int
    raw_headers: tuple[tuple[bytes, bytes], ...]
    content: bytes
    pieces_taken: int
    """The number of chunks of the request's body that were read before the response."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name. A repeated header is an error, since one of its values would be lost."""
        assert len({name for name, _ in self.raw_headers}) == len(self.raw_headers)
        return {name.decode(): value.decode() for name, value in self.raw_headers}

    def json(self) -> Any:
        return orjson.loads(self.content)


def call(
    client: TestClient,
    method: str,
    target: str,
    *,
    key: str | None = None,
    headers: Headers = (),
    pieces: Iterable[bytes | None] = (b"",),
    address: str = "203.0.113.7",
) -> RawAnswer:
    """Send a request, and return the response.

    Args:
        target: the path and the query as in the request line.
        pieces: the parts of the body as they arrive; None: the client has disconnected.
    """
    raw_path, _, query = target.partition("?")
    sent = [*headers, *([("authorization", f"Bearer {key}")] if key else [])]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(_bytes(name).lower(), _bytes(value)) for name, value in sent],
        "client": (address, 50_000),
        "server": ("127.0.0.1", 8000),
    }

    async def run() -> RawAnswer:
        return await _run(client.app, scope, iter(pieces))

    assert client.portal is not None, "the client must be running: its event loop is the application's"
    return client.portal.call(run)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


async def _run(app: Any, scope: Message, pieces: Any) -> RawAnswer:
    sent: list[Message] = []
    pieces_read = 0
    following = next(pieces, _END)

    async def receive() -> Message:
        nonlocal pieces_read, following
        if following is None or following is _END:
            return {"type": "http.disconnect"}
        piece, following = following, next(pieces, _END)
        pieces_read += 1
        return {"type": "http.request", "body": piece, "more_body": following is not _END}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    body = b"".join(message.get("body", b"") for message in rest)
    return RawAnswer(start["status"], tuple(start["headers"]), body, pieces_read)
