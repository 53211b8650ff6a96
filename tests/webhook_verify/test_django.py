from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("django")

import django
from django.conf import settings
from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from webhook_verify import MemorySeenStore, Verifier
from webhook_verify.django import verified


@pytest.fixture(scope="module", autouse=True)
def configured() -> None:
    """Django keeps its settings for the life of the process."""
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="unused", USE_TZ=True)
        django.setup()


def post(view: Any, body: bytes, headers: dict[str, str], **meta: Any) -> Any:
    """Return the response of a sync or async view to a POST."""
    environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
    request = RequestFactory().post("/webhooks", data=body, content_type="application/json", **environ, **meta)
    response = view(request)
    return asyncio.run(response) if asyncio.iscoroutine(response) else response


def plain(handle: Any) -> Any:
    def view(request: Any, delivery: Any) -> Any:
        return handle(delivery)

    return view


def awaited(handle: Any) -> Any:
    async def view(request: Any, delivery: Any) -> Any:
        return handle(delivery)

    return view


both_kinds = pytest.mark.parametrize("kind", [plain, awaited], ids=["plain", "async"])


@both_kinds
def test_a_verified_delivery_reaches_the_view(
    kind: Any, verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    view = verified(verifier)(kind(lambda delivery: HttpResponse(delivery.event_id)))
    assert post(view, body, headers).content == b"evt-1"


@both_kinds
def test_unverified_request_does_not_reach_the_view(
    kind: Any, verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    response = post(verified(verifier)(kind(None)), body + b" ", headers)
    assert response.status_code == 400
    assert json.loads(response.content)["reason"] == "signature_mismatch"
    assert set(json.loads(response.content)) == {"error", "reason"}


def test_a_body_too_large_is_answered_with_413(verifier: Verifier, headers: dict[str, str]) -> None:
    view = verified(verifier)(plain(None))
    assert post(view, b"a" * 4097, headers).status_code == 413
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        assert post(view, b"a" * 11, headers).status_code == 413


def test_a_body_that_was_read_before_is_an_error_that_names_the_suspects(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    request = RequestFactory().post("/webhooks", data=body, content_type="application/json")
    request.read()
    with pytest.raises(RuntimeError, match=r"middleware.*request\.data"):
        verified(verifier)(plain(None))(request)


@both_kinds
def test_a_duplicate_is_answered_with_success(
    kind: Any, remembering: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    view = verified(remembering)(kind(lambda delivery: HttpResponse("ok")))
    assert post(view, body, headers).content == b"ok"
    again = post(view, body, headers)
    assert (again.status_code, json.loads(again.content)) == (200, {"status": "duplicate"})


@both_kinds
@pytest.mark.parametrize("status", [302, 400, 500])
def test_an_event_the_view_did_not_take_comes_again(
    kind: Any, status: int, remembering: Verifier, seen: MemorySeenStore, body: bytes, headers: dict[str, str]
) -> None:
    post(verified(remembering)(kind(lambda delivery: HttpResponse(status=status))), body, headers)
    assert seen.claim("evt-1", 1)


@both_kinds
def test_an_event_the_view_failed_on_comes_again(
    kind: Any, remembering: Verifier, seen: MemorySeenStore, body: bytes, headers: dict[str, str]
) -> None:
    def fail(delivery: Any) -> Any:
        raise LookupError

    with pytest.raises(LookupError):
        post(verified(remembering)(kind(fail)), body, headers)
    assert seen.claim("evt-1", 1)


def test_no_csrf_token_is_asked_for(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    class Urls:
        urlpatterns = (path("webhooks", verified(verifier)(plain(lambda delivery: HttpResponse("ok")))),)

    environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
    with override_settings(ROOT_URLCONF=Urls, MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"]):
        client = Client(enforce_csrf_checks=True)
        response = client.post("/webhooks", data=body, content_type="application/json", **environ)
    assert response.content == b"ok"


def test_a_class_based_view_can_be_verified(verifier: Verifier, body: bytes, headers: dict[str, str]) -> None:
    from django.views import View

    class Receive(View):
        def post(self, request: Any, delivery: Any) -> Any:
            return HttpResponse(delivery.event_type)

    assert post(verified(verifier)(Receive.as_view()), body, headers).content == b"booking.created"
