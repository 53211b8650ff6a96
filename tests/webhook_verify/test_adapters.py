"""The adapters of all frameworks respond alike, and release an event that their application did not accept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from fastapi import Depends, FastAPI, HTTPException, Response
from flask import Flask
from starlette.testclient import TestClient

from webhook_verify import EventInProgress, MemorySeenStore, VerifiedDelivery, Verifier, django, flask
from webhook_verify.asgi import SCOPE_KEY, VerifyMiddleware
from webhook_verify.errors import EXPLANATIONS
from webhook_verify.fastapi import webhook
from webhook_verify.seen import DEFAULT_TTL

pytestmark = pytest.mark.usefixtures("django_settings")

View = Callable[[VerifiedDelivery], int]
"""Returns the status of the response, or raises."""
Answer = tuple[int, Any]


def asgi(verifier: Verifier, view: View, body: bytes, headers: dict[str, str]) -> Answer:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(status_code=view(scope[SCOPE_KEY]))(scope, receive, send)

    return answer(VerifyMiddleware(app, verifier), body, headers)


def answer(app: Any, body: bytes, headers: dict[str, str]) -> Answer:
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False)
    response = client.post("/webhooks", content=body, headers=headers)
    is_json = response.headers.get("content-type") == "application/json"
    return response.status_code, response.json() if is_json else None


def in_fastapi(verifier: Verifier, view: View, body: bytes, headers: dict[str, str]) -> Answer:
    app = FastAPI()

    @app.post("/webhooks")
    async def receive(delivery: Any = Depends(webhook(verifier))) -> Response:  # noqa: B008
        status = view(delivery)
        if status >= 300:
            raise HTTPException(status)
        return Response(status_code=status)

    return answer(app, body, headers)


def in_flask(verifier: Verifier, view: View, body: bytes, headers: dict[str, str]) -> Answer:
    app = Flask("receiver")
    app.post("/webhooks")(flask.verified(verifier)(lambda delivery: ("", view(delivery))))
    response = app.test_client().post("/webhooks", data=body, headers=headers)
    return response.status_code, response.json if response.is_json else None


def in_django(verifier: Verifier, view: View, body: bytes, headers: dict[str, str]) -> Answer:
    return of_django(verifier, lambda request, delivery: HttpResponse(status=view(delivery)), body, headers)


def in_async_django(verifier: Verifier, view: View, body: bytes, headers: dict[str, str]) -> Answer:
    async def receive(request: Any, delivery: Any) -> HttpResponse:
        return HttpResponse(status=view(delivery))

    return of_django(verifier, receive, body, headers)


def of_django(verifier: Verifier, view: Any, body: bytes, headers: dict[str, str]) -> Answer:
    environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
    request = RequestFactory().post("/webhooks", data=body, content_type="application/json", **environ)
    try:
        response = django.verified(verifier)(view)(request)
        response = asyncio.run(response) if asyncio.iscoroutine(response) else response
    except LookupError:
        return 500, None
    return response.status_code, json.loads(response.content) if response.content else None


each_framework = pytest.mark.parametrize("post", [asgi, in_fastapi, in_flask, in_django, in_async_django])


@each_framework
def test_a_verified_delivery_reaches_the_view(
    post: Any, verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    reached: list[str] = []
    assert post(verifier, lambda delivery: reached.append(delivery.event_id) or 204, body, headers) == (204, None)
    assert reached == ["evt-1"]


@each_framework
@pytest.mark.parametrize(
    ("sent", "status", "reason"), [(b"{} ", 400, "signature_mismatch"), (b"a" * 4097, 413, "body_too_large")]
)
def test_an_unverified_request_does_not_reach_the_view(
    post: Any, verifier: Verifier, headers: dict[str, str], sent: bytes, status: int, reason: str
) -> None:
    answered, content = post(verifier, None, sent, headers)
    assert (answered, content["reason"], set(content)) == (status, reason, {"error", "reason"})


@each_framework
def test_a_refused_request_logs_one_warning_without_its_content(
    post: Any, verifier: Verifier, headers: dict[str, str], secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    post(verifier, None, b"confidential", headers)
    (record,) = (record for record in caplog.records if record.name == "webhook_verify")
    message = record.getMessage()
    assert record.levelname == "WARNING"
    assert message == f"a delivery was refused: signature_mismatch: {EXPLANATIONS['signature_mismatch']}"
    assert not any(part in message for part in ("confidential", secret, *headers.values()))


@each_framework
def test_a_duplicate_is_answered_with_success(
    post: Any, remembering: Verifier, body: bytes, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []
    answers = [
        post(remembering, lambda delivery: reached.append(delivery.event_id) or 200, body, headers) for _ in range(2)
    ]
    assert answers == [(200, None), (200, {"status": "duplicate"})]
    assert reached == ["evt-1"]
    assert "webhook_verify" not in {record.name for record in caplog.records}


class ProgressInMemory(dict[str, str]):
    """A store with the states of its events."""

    def claim(self, event_id: str, ttl: float) -> bool:
        if self.get(event_id) == "claimed":
            raise EventInProgress(event_id)
        return self.setdefault(event_id, "claimed") == "claimed"

    def complete(self, event_id: str, ttl: float) -> None:
        assert ttl == DEFAULT_TTL
        self[event_id] = "handled"

    def release(self, event_id: str) -> None:
        del self[event_id]


@each_framework
def test_an_event_in_progress_is_a_conflict_until_it_was_handled(
    post: Any, secret: str, now: int, body: bytes, headers: dict[str, str]
) -> None:
    store = ProgressInMemory()
    verifier = Verifier(secret, clock=lambda: now, seen=store)
    states: list[str] = []

    def view(delivery: VerifiedDelivery) -> int:
        states.append(store[delivery.event_id])
        return 503 if len(states) == 1 else 204

    store.claim("evt-1", 60)
    assert post(verifier, view, body, headers) == (409, {"status": "in_progress"})
    store.release("evt-1")
    answers = [post(verifier, view, body, headers) for _ in range(3)]
    assert [status for status, _ in answers] == [503, 204, 200]
    assert (answers[2][1], states, store) == ({"status": "duplicate"}, ["claimed", "claimed"], {"evt-1": "handled"})


@each_framework
@pytest.mark.parametrize("result", [302, 400, 500, 503, LookupError()], ids=repr)
def test_an_event_that_the_view_did_not_take_comes_again(
    post: Any,
    result: int | LookupError,
    remembering: Verifier,
    seen_store: MemorySeenStore,
    body: bytes,
    headers: dict[str, str],
) -> None:
    def view(delivery: VerifiedDelivery) -> int:
        if isinstance(result, LookupError):
            raise result
        return result

    assert post(remembering, view, body, headers)[0] == (500 if isinstance(result, LookupError) else result)
    assert seen_store.claim("evt-1", 1)
