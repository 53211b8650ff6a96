from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("django")

from django.http import HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from webhook_verify import Verifier
from webhook_verify.django import verified

pytestmark = pytest.mark.usefixtures("django_settings")


def post(view: Any, body: bytes, headers: dict[str, str], **meta: Any) -> Any:
    """Return the response of a view to a POST."""
    environ = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers.items()}
    request = RequestFactory().post("/webhooks", data=body, content_type="application/json", **environ, **meta)
    return view(request)


def plain(handle: Any) -> Any:
    def view(request: Any, delivery: Any) -> Any:
        return handle(delivery)

    return view


def test_a_body_too_large_for_django_is_answered_with_413(verifier: Verifier, headers: dict[str, str]) -> None:
    view = verified(verifier)(plain(None))
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        assert post(view, b"a" * 11, headers).status_code == 413


def test_a_body_that_was_read_before_is_an_error_that_names_the_suspects(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    request = RequestFactory().post("/webhooks", data=body, content_type="application/json")
    request.read()
    with pytest.raises(RuntimeError, match=r"middleware.*request\.data"):
        verified(verifier)(plain(None))(request)


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
