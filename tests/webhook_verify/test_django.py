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


def view(request: Any, delivery: Any) -> HttpResponse:
    return HttpResponse(delivery.event_type)


def posted(body: bytes, environ: dict[str, str]) -> Any:
    return RequestFactory().post("/webhooks", data=body, content_type="application/json", **environ)


def test_a_body_too_large_for_django_is_answered_with_413(verifier: Verifier, environ: dict[str, str]) -> None:
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10):
        assert verified(verifier)(view)(posted(b"a" * 11, environ)).status_code == 413


def test_the_error_for_a_consumed_body_names_the_suspects(verifier: Verifier, body: bytes) -> None:
    request = posted(body, {})
    request.read()
    with pytest.raises(RuntimeError, match=r"middleware.*request\.data"):
        verified(verifier)(view)(request)


def test_no_csrf_token_is_asked_for(verifier: Verifier, body: bytes, environ: dict[str, str]) -> None:
    class Urls:
        urlpatterns = (path("webhooks", verified(verifier)(view)),)

    with override_settings(ROOT_URLCONF=Urls, MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"]):
        client = Client(enforce_csrf_checks=True)
        response = client.post("/webhooks", data=body, content_type="application/json", **environ)
    assert response.content == b"booking.created"


def test_a_class_based_view_can_be_verified(verifier: Verifier, body: bytes, environ: dict[str, str]) -> None:
    from django.views import View

    class Receive(View):
        def post(self, request: Any, delivery: Any) -> Any:
            return view(request, delivery)

    assert verified(verifier)(Receive.as_view())(posted(body, environ)).content == b"booking.created"
