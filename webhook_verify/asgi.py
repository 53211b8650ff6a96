"""A middleware for any ASGI application that passes on verified deliveries only.

    app = VerifyMiddleware(app, verifier, paths=["/webhooks"])

The application reads the delivery from `scope["webhook_verify.delivery"]`. A KeyError there shows that a route is not
guarded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Callable

from webhook_verify.errors import WebhookVerificationError
from webhook_verify.frames import clear_frames
from webhook_verify.refusals import REJECTIONS, Rejection, answer

if TYPE_CHECKING:
    from webhook_verify.receiver import VerifiedDelivery, Verifier

    Message = MutableMapping[str, Any]
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

SCOPE_KEY = "webhook_verify.delivery"


class Disconnected(Exception):
    """The client disconnected before its body was complete, so no response can be sent."""


class VerifyMiddleware:
    """Rejects requests that do not verify, and passes verified deliveries to the application.

    When the application raises, or responds with a status other than 2xx, the event is released from the store of seen
    events.

    Args:
        app: The ASGI application.
        verifier: The verifier of the endpoint.
        paths: The guarded paths, each with all paths below it, for every method. Defaults to all paths.
    """

    def __init__(self, app: App, verifier: Verifier, paths: str | Iterable[str] | None = None) -> None:
        self._app = app
        self._verifier = verifier
        self._prefixes = None if paths is None else _prefixes(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._is_guarded(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            # The body must not become a variable of this frame: an error of the application passes through it.
            delivery = await self._accept(await _read_body(receive, self._verifier.max_body_bytes), scope["headers"])
        except Disconnected:
            return
        except REJECTIONS as refusal:
            await _answer(send, refusal)
            return
        except BaseException as error:
            clear_frames(error)
            raise
        await self._pass_on(delivery, {**scope, SCOPE_KEY: delivery}, receive, send)

    def _is_guarded(self, path: str) -> bool:
        return self._prefixes is None or f"{path}/".startswith(self._prefixes)

    async def _accept(self, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> VerifiedDelivery:
        if self._verifier.seen is None:
            return self._verifier.verify(body, headers)
        # A store of seen events may wait for a database, which would block the event loop.
        return await asyncio.to_thread(self._verifier.verify, body, headers)

    async def _pass_on(self, delivery: VerifiedDelivery, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def watched_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, _replaying(delivery.payload, receive), watched_send)
        except BaseException:
            # Not in a thread: a cancelled request must not wait for one.
            self._verifier.settle(delivery, succeeded=False)
            raise
        if self._verifier.seen is not None:
            await asyncio.to_thread(self._verifier.settle, delivery, succeeded=200 <= status < 300)


def _prefixes(paths: str | Iterable[str]) -> tuple[str, ...]:
    listed = [paths] if isinstance(paths, str) else list(paths)
    if not listed or not all(path.startswith("/") for path in listed):
        raise ValueError("paths must be one or more paths that begin with a slash; None guards every path")
    return tuple(path.rstrip("/") + "/" for path in listed)


async def _read_body(receive: Receive, limit: int) -> bytes:
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise WebhookVerificationError("body_too_large")
        more = message.get("more_body", False)
    return b"".join(chunks)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that replays the body and then passes on the messages of the server."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _answer(send: Send, refusal: Rejection) -> None:
    status, content = answer(refusal)
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
