from __future__ import annotations

import base64
from typing import Any

import pytest

from webhook_verify import Verifier, WebhookVerificationError
from webhook_verify.aws import from_lambda


def test_events_of_api_gateway_and_load_balancers_verify(
    verifier: Verifier, body: bytes, headers: dict[str, str]
) -> None:
    for event in (
        {"version": "2.0", "headers": {name.lower(): value for name, value in headers.items()}, "body": body.decode()},
        {"headers": headers, "body": base64.b64encode(body).decode(), "isBase64Encoded": True},
        {"multiValueHeaders": {name: [value] for name, value in headers.items()}, "body": body.decode()},
    ):
        delivery = verifier.verify(*from_lambda(event))
        assert (delivery.payload, delivery.event_id) == (body, "evt-1")


@pytest.mark.parametrize("event", [{}, {"body": None, "headers": None}, {"body": ""}])
def test_an_empty_request_is_one_without_a_signature(event: dict[str, Any], verifier: Verifier) -> None:
    with pytest.raises(WebhookVerificationError) as caught:
        verifier.verify(*from_lambda(event))
    assert caught.value.reason == "header_missing"


@pytest.mark.parametrize("body", ["a", "é", "===a"])
def test_base64_that_does_not_decode_does_not_verify(body: str, verifier: Verifier, headers: dict[str, str]) -> None:
    with pytest.raises(WebhookVerificationError) as caught:
        verifier.verify(*from_lambda({"headers": headers, "body": body, "isBase64Encoded": True}))
    assert caught.value.reason == "signature_mismatch"


@pytest.mark.parametrize("event", [None, "{}", [], {"body": {"id": "parsed"}}])
def test_non_mapping_event_raises_type_error(event: Any) -> None:
    with pytest.raises(TypeError):
        from_lambda(event)
