"""An answer on its way out: status, JSON bytes, headers."""

from collections.abc import Sequence
from typing import Any

from booking_core.idempotency import Answer

Headers = Sequence[tuple[bytes, bytes]]

_JSON = (b"content-type", b"application/json")
_REPLAYED = (b"idempotent-replayed", b"true")


class Reply:
    """An ASGI response made of bytes that are ready; with status 204 there is none, and nothing said of it."""

    __slots__ = ("answer", "headers")

    def __init__(self, answer: Answer, headers: Headers = ()) -> None:
        self.answer = answer
        self.headers = headers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = self.answer.body
        length = [] if self.answer.status == 204 else [_JSON, (b"content-length", b"%d" % len(body))]
        headers = [*length, *self.headers]
        if self.answer.replayed:
            headers.append(_REPLAYED)
        await send({"type": "http.response.start", "status": self.answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
