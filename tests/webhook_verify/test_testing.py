"""The package's helpers for tests of a receiver, and its pytest fixtures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook_verify import WebhookVerificationError, parse_header, verify
from webhook_verify.pytest import signed_webhook, webhook_secret
from webhook_verify.testing import make_event, signed_request, stale, tampered


def reason(request: tuple[dict[str, str], bytes], secret: str) -> str:
    headers, body = request
    with pytest.raises(WebhookVerificationError) as caught:
        verify(body, headers, secret)
    return caught.value.reason


def test_a_signed_request_verifies_and_carries_the_headers_of_a_delivery(secret: str) -> None:
    event = make_event("booking.created", id="evt-1")
    headers, body = signed_request(event, secret, delivery_id="attempt-1")
    delivery = verify(body, headers, secret)
    assert delivery.json() == event
    assert (delivery.event_id, delivery.event_type, delivery.delivery_id) == ("evt-1", "booking.created", "attempt-1")
    names = {"Svc-Signature", "Svc-Event-Id", "Svc-Event-Type", "Svc-Delivery-Id"}
    standard = {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert set(headers) == {"Content-Type", "User-Agent"} | names | standard
    assert headers["User-Agent"] == "Svc-Webhooks/1.0"


def test_requests_have_the_same_rendered_body_and_their_own_attempts(secret: str) -> None:
    event = make_event(id="evt-1", data={"name": "Åse"})
    (first, body), (second, same_body) = signed_request(event, secret), signed_request(event, secret)
    assert body == same_body
    assert first["Svc-Delivery-Id"] != second["Svc-Delivery-Id"]
    assert body.startswith(b'{"id":"evt-1","type":"ping","created_at":')
    assert '"name":"Åse"'.encode() in body


def test_the_time_of_a_request_may_be_given(secret: str, now: int) -> None:
    headers, body = signed_request(make_event(), secret, timestamp=now)
    assert verify(body, headers, secret, now=now).age == 0
    assert headers["webhook-timestamp"] == str(now)


def test_several_secrets_sign_as_during_a_rotation(secret: str, other_secret: str) -> None:
    headers, body = signed_request(make_event(), [other_secret, secret])
    assert len(parse_header(headers["Svc-Signature"]).signatures) == 2
    assert verify(body, headers, secret).event_type == "ping"


@pytest.mark.parametrize("event", [b"\xff", "no json", b"[]", b'{"id":1,"type":"ping"}', b"{}"])
def test_any_body_can_be_signed_and_only_an_event_has_event_headers(event: Any, secret: str) -> None:
    headers, body = signed_request(event, secret)
    assert verify(body, headers, secret).payload == body
    assert "Svc-Event-Id" not in headers


def test_a_made_up_secret_signs_all_but_the_standard_headers() -> None:
    headers, body = signed_request(make_event(), "whsec_made-up")
    assert verify(body, headers, "whsec_made-up").event_type == "ping"
    assert "webhook-id" not in headers


def test_a_tampered_or_stale_request_is_refused(secret: str) -> None:
    for event in (make_event(), b"plain"):
        assert reason(tampered(event, secret), secret) == "signature_mismatch"
    assert json.loads(tampered(make_event(), secret)[1])["tampered"] is True
    assert reason(stale(make_event(), secret), secret) == "timestamp_too_old"
    assert reason(stale(make_event(), secret, age=-3600), secret) == "timestamp_too_new"


# Fixtures of pytest --------------------------------------------------------------------------------------------------


__all__ = ["signed_webhook", "webhook_secret"]


def test_the_fixture_makes_deliveries_signed_with_the_secret_of_the_test(
    signed_webhook: Any, webhook_secret: str
) -> None:
    headers, body = signed_webhook("booking.cancelled", data={"reason": "customer"})
    delivery = verify(body, headers, webhook_secret)
    assert delivery.event_type == "booking.cancelled"
    assert delivery.json()["data"] == {"reason": "customer"}
