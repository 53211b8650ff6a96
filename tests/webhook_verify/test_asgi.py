from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from webhook_verify import Verifier
from webhook_verify.asgi import VerifyMiddleware


class App:
    """An application that records its requests, and responds or fails as configured."""

    def __init__(self, status: int = 204, error: Exception | None = None) -> None:
        self.status, self.error = status, error
        self.scopes: list[Any] = []
        self.messages: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        self.messages += [await receive(), await receive()]
        if self.error:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def call(app: Any, *chunks: bytes, headers: dict[str, str], path: str = "/webhooks", leave: bool = False) -> list[Any]:
    """Return the messages in response to a POST whose body arrives in chunks."""
    incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if not leave:
        incoming.append({"type": "http.request"})
    incoming.append({"type": "http.disconnect"})
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(app({"type": "http", "path": path, "headers": raw}, receive, send))
    return sent


def answer(sent: list[Any]) -> tuple[int, Any]:
    start, body = sent
    assert (b"content-length", b"%d" % len(body["body"])) in start["headers"]
    return start["status"], json.loads(body["body"])


def test_a_verified_delivery_reaches_the_application_with_its_body(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    app = App()
    sent = call(VerifyMiddleware(app, verifier), body[:10], body[10:], headers=headers)
    assert sent[0]["status"] == 204
    assert app.scopes[0]["webhook_verify.delivery"].event_id == "evt-1"
    assert app.messages == [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]


def test_a_body_is_not_read_beyond_the_limit(verifier: Verifier, headers: dict[str, str]) -> None:
    app = App()
    status, content = answer(call(VerifyMiddleware(app, verifier), *[b"a" * 4096] * 3, headers=headers))
    assert (status, content["reason"]) == (413, "body_too_large")


def test_a_client_that_leaves_is_not_answered(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    app = App()
    assert call(VerifyMiddleware(app, verifier), body[:5], headers=headers, leave=True) == []
    assert app.scopes == []


@pytest.mark.parametrize("path", ["/webhooks", "/webhooks/", "/webhooks/stripe", "/hooks"])
def test_a_guarded_path_is_guarded_with_all_below_it(path: str, verifier: Verifier) -> None:
    guarded = VerifyMiddleware(App(), verifier, paths=["/webhooks", "/hooks/"])
    assert call(guarded, b"{}", headers={}, path=path)[0]["status"] == 400


@pytest.mark.parametrize("path", ["/", "/webhooks2", "/api/webhooks"])
def test_another_path_is_left_alone(path: str, verifier: Verifier) -> None:
    app = App()
    assert call(VerifyMiddleware(app, verifier, paths="/webhooks"), b"{}", headers={}, path=path)[0]["status"] == 204
    assert "webhook_verify.delivery" not in app.scopes[0]


@pytest.mark.parametrize("paths", [[], "", ["webhooks"], ["/a", "b"]])
def test_paths_that_guard_nothing_are_refused(paths: Any, verifier: Verifier) -> None:
    with pytest.raises(ValueError, match="paths"):
        VerifyMiddleware(App(), verifier, paths=paths)


def test_lifespan_and_websockets_pass(verifier: Verifier) -> None:
    scopes = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope["type"])

    guarded = VerifyMiddleware(app, verifier)
    for kind in ("lifespan", "websocket"):
        asyncio.run(guarded({"type": kind, "path": "/"}, None, None))  # type: ignore[arg-type]
    assert scopes == ["lifespan", "websocket"]
